"""Transactions on memory (X1): what verbs do is judged at once, kept, and applied under the lock at commit.

Until then nothing shows: ids, keys and room are reserved, what was settled is pinned (X2). No thread waits for a
transaction here; who needs what one holds gets ``EngineBusy``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota import rules
from rota.errors import StoreClosed
from rota.memory.groups import Message
from rota.memory.keys import Keys
from rota.memory.pins import Pin
from rota.memory.queue_state import QueueState
from rota.memory.transport_letters import arrive
from rota.memory.transport_state import TransportState
from rota.records import JobClaim, LeaseClaim, NewJob, NewMessage

if TYPE_CHECKING:
    from rota.memory.engine import MemoryEngine
    from rota.memory.queue import MemoryQueue
    from rota.memory.transport import MemoryTransport

P = ParamSpec("P")
T = TypeVar("T")


class MemoryTransaction:
    """One transaction: a log of what to do at commit, and of what to undo instead."""

    connection = None

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine
        self.shared = engine.shared
        self._acts: list[Callable[[], object]] = []
        # Reservations and pins: each is given back whether the transaction is committed or not.
        self._held: list[Callable[[], object]] = []
        self._marks: dict[str, tuple[int, int]] = {}

    def queue(self, queue: MemoryQueue) -> Any:
        """Its verbs in this transaction."""
        return QueueVerbs(self, queue)

    def transport(self, transport: MemoryTransport) -> Any:
        """Its verbs in this transaction."""
        return TransportVerbs(self, transport)

    def notify(self, channel: str, payload: str | None) -> None:
        """Tell everyone who is subscribed, at commit (X6)."""
        with self.shared.reading:
            self.later(partial(self.engine.tell, channel, payload))

    # -- The log -------------------------------------------------------------------------------------------------------

    def later(self, act: Callable[[], object]) -> None:
        """Do this at commit."""
        self._acts.append(act)

    def hold(self, give_back: Callable[[], object]) -> None:
        """Something is held until the end."""
        self._held.append(give_back)

    def reserve(self, keys: Keys, key: str | None, item: int) -> None:
        """Room for one item, and its key."""
        self.shared.items += 1
        self.hold(self._give_room_back)
        if key is not None:
            keys.reserve(key, self, item)
            self.hold(partial(keys.unreserve, key))

    def _give_room_back(self) -> None:
        self.shared.items -= 1

    def settle(self, pin: Pin, act: Callable[[], object]) -> None:
        """A pinned item is settled: its token is spent for this transaction too."""
        pin.settled = True
        self.later(act)
        self.hold(partial(self._unsettle, pin))

    def _unsettle(self, pin: Pin) -> None:
        pin.settled = False

    def renew(self, pin: Pin, deadline: int, act: Callable[[], object]) -> None:
        """A pinned item is held for longer, or shorter."""
        self.hold(partial(setattr, pin, "deadline", pin.deadline))
        pin.deadline = deadline
        self.later(act)

    # -- Ends ----------------------------------------------------------------------------------------------------------

    def savepoint(self, name: str) -> None:
        self._marks[name] = len(self._acts), len(self._held)

    def release(self, name: str) -> None:
        del self._marks[name]

    def rollback_to(self, name: str) -> None:
        acts, held = self._marks.pop(name)
        try:
            with self.shared.reading:
                self._give_back(acts, held)
        except StoreClosed:
            pass

    def commit(self, then: Callable[[], None]) -> None:
        """Make all of it visible at once."""
        shared = self.shared
        with shared.reading:
            acts = list(self._acts)
            # Whoever commits is not refused by the guard; nobody else gets in meanwhile.
            shared.lock = shared.reading
            try:
                self._give_back(0, 0)
                for act in acts:
                    act()
            finally:
                shared.guard(self.engine.holders)
        then()

    def rollback(self) -> None:
        """Forget it all."""
        try:
            with self.shared.reading:
                self._give_back(0, 0)
        except StoreClosed:
            pass

    def abandon(self) -> None:
        """``rollback``."""
        self.rollback()

    def _give_back(self, acts: int, held: int) -> None:
        del self._acts[acts:]
        while len(self._held) > held:
            self._held.pop()()

    async def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb straight through."""
        return verb(*args, **kwargs)

    def on_commit(self, act: Callable[[], None]) -> None:
        """Not asked: the facade knows when it commits."""


class QueueVerbs:
    """A queue's verbs in one transaction."""

    def __init__(self, tx: MemoryTransaction, queue: MemoryQueue) -> None:
        self._tx = tx
        self._queue = queue
        self._shared = tx.shared

    def enqueue(self, job: NewJob) -> int:
        return self.enqueue_many([job])[0]

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]:
        with self._shared.reading:
            state = self._queue.writing() if jobs else self._queue.reading()
            now = self._shared.now()
            state.make_room(jobs, now, self._tx)
            return [self._enqueue(state, job, now) for job in jobs]

    def _enqueue(self, state: QueueState, job: NewJob, now: int) -> int:
        if job.key is not None:
            holder = state.keys.holder(job.key, now, self._tx)
            if holder is not None:
                return holder
        number = self._shared.next_id()
        self._tx.reserve(state.keys, job.key, number)
        self._tx.later(partial(state.append, job, now, number))
        return number

    def ack(self, claim: JobClaim, result: str | None) -> bool:
        return self._settle(claim, lambda state, now: partial(state.end_acked, claim.id, result, now))

    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> int:
        count = 0
        with self._shared.reading:
            for claim in claims:
                count += claim.worker_id == worker_id and self.ack(claim, None)
            state = self._queue.reading()
            for number in ids:
                bare = state.bare_claim(number, worker_id)
                count += bare is not None and self.ack(bare, None)
        return count

    def retry(self, claim: JobClaim, error: str | None, delay: int) -> bool:
        return self._settle(claim, lambda state, now: partial(state.end_retried, claim.id, error, delay, now))

    def fail(self, claim: JobClaim, error: str | None) -> bool:
        return self._settle(claim, lambda state, now: partial(state.end_failed, claim.id, error, now))

    def release(self, claim: JobClaim, delay: int | None) -> bool:
        return self._settle(claim, lambda state, now: partial(state.end_released, claim.id, delay, now))

    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> list[int | None]:
        deadlines: list[int | None] = []
        with self._shared.reading:
            state = self._queue.reading()
            for claim in claims:
                now = self._shared.now()
                pin = self._pinned(state, claim, now)
                if pin is None:
                    deadlines.append(None)
                    continue
                deadline = now + (claim.visibility if extend is None else extend)
                self._tx.renew(pin, deadline, partial(state.renew, claim.id, deadline, now))
                deadlines.append(deadline)
        return deadlines

    def _settle(self, claim: JobClaim, act: Callable[[QueueState, int], Callable[[], object]]) -> bool:
        with self._shared.reading:
            state = self._queue.reading()
            now = self._shared.now()
            pin = self._pinned(state, claim, now)
            if pin is None:
                return False
            self._tx.settle(pin, act(state, now))
            return True

    def _pinned(self, state: QueueState, claim: JobClaim, now: int) -> Pin | None:
        """The pin of a job whose claim is valid for this transaction (Q6)."""
        pin = state.pinned.owned(claim.id, self._tx)
        if pin is None:
            if state.valid(claim, now) is None:
                return None
            self._tx.hold(partial(state.unpin, claim.id))
            return state.pin(claim.id, self._tx)
        if pin.settled or pin.token != claim.token or rules.lapsed(pin.deadline, now):
            return None
        return pin if state.jobs[claim.id].worker_id == claim.worker_id else None


class TransportVerbs:
    """A transport's verbs in one transaction."""

    def __init__(self, tx: MemoryTransaction, transport: MemoryTransport) -> None:
        self._tx = tx
        self._transport = transport
        self._shared = tx.shared

    def publish(self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None) -> int:
        return self.publish_many([NewMessage(group_id, event, priority, key, headers)])[0]

    def publish_many(self, messages: Sequence[NewMessage]) -> list[int]:
        with self._shared.reading:
            state = self._transport.writing()
            now = self._shared.now()
            state.make_room(messages, now, self._tx)
            return [self._publish(state, message, now) for message in messages]

    def _publish(self, state: TransportState, new: NewMessage, now: int) -> int:
        if new.key is not None:
            holder = state.keys.holder(new.key, now, self._tx)
            if holder is not None:
                return holder
        seq = self._shared.next_seq()
        self._tx.reserve(state.keys, new.key, seq)
        message = Message(seq, new.event, new.headers, now, new.key)
        self._tx.later(partial(arrive, state, new.group_id, new.priority, message))
        return seq

    def ack(self, claim: LeaseClaim) -> bool:
        return self._settle(claim, lambda state, now: partial(state.ack, claim))

    def ack_batch(self, claims: Sequence[LeaseClaim]) -> int:
        return sum(map(self.ack, claims))

    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> bool:
        return self._settle(claim, lambda state, now: partial(state.give_back, claim, delay, error, True, now))

    def release(self, claim: LeaseClaim, delay: int) -> bool:
        return self._settle(claim, lambda state, now: partial(state.give_back, claim, delay, None, False, now))

    def fail(self, claim: LeaseClaim, error: str | None) -> bool:
        return self._settle(claim, lambda state, now: partial(state.end_failed, claim, error, now))

    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> list[int | None]:
        deadlines: list[int | None] = []
        with self._shared.reading:
            state = self._transport.writing()
            for claim in claims:
                now = self._shared.now()
                pin = self._pinned(state, claim, unlapsed_at=now)
                if pin is None:
                    deadlines.append(None)
                    continue
                deadline = now + visibility
                self._tx.renew(pin, deadline, partial(state.renew, claim, deadline))
                deadlines.append(deadline)
        return deadlines

    def _settle(self, claim: LeaseClaim, act: Callable[[TransportState, int], Callable[[], object]]) -> bool:
        with self._shared.reading:
            state = self._transport.writing()
            pin = self._pinned(state, claim)
            if pin is None:
                return False
            self._tx.settle(pin, act(state, self._shared.now()))
            return True

    def _pinned(self, state: TransportState, claim: LeaseClaim, *, unlapsed_at: int | None = None) -> Pin | None:
        """The pin of a group whose lease is the current one for this transaction (T6)."""
        pin = state.pinned.owned(claim.group_id, self._tx)
        if pin is None:
            group, _ = state.leased(claim)
            if group is None or (unlapsed_at is not None and rules.lapsed(group.deadline, unlapsed_at)):
                return None
            self._tx.hold(partial(state.unpin, claim.group_id))
            return state.pin(claim.group_id, self._tx)
        if pin.settled or pin.token != claim.token:
            return None
        return None if unlapsed_at is not None and rules.lapsed(pin.deadline, unlapsed_at) else pin
