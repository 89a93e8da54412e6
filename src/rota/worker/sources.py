"""A queue or transport a worker works off, and the items it holds of it.

The two classes at the end are all the worker knows of the difference between jobs and messages.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rota import units
from rota.errors import PayloadError
from rota.facade.transports import DEFAULT_VISIBILITY
from rota.units import MICROSECONDS
from rota.wakeups import ThreadWaiter
from rota.worker import handles, plan
from rota.worker.health import Counters, SourceHealth
from rota.worker.limits import Limits
from rota.worker.logs import WARNING, item_fields, reason, tell
from rota.worker.plan import Settlement, Why
from rota.worker.registry import Handler, SourceSpec

if TYPE_CHECKING:
    from rota.sync.store import Store

_monotonic = time.monotonic


class Held:
    """One item under our claim."""

    __slots__ = ("began", "claim", "handle", "handler", "in_row", "runs_in", "settlement", "since", "source", "why")

    def __init__(self, source: Source, handler: Handler | None, handle: Any, claim: Any, since: float) -> None:
        self.source = source
        self.handler = handler
        self.handle = handle
        self.claim = claim
        # From here on, on the monotonic clock, the claim holds for its visibility: taken before the claim was made.
        self.since = since
        self.why: Why | None = None
        self.began = 0.0
        self.settlement: Settlement = plan.ACK
        # The task or child its handler runs in.
        self.runs_in: Any = None
        # Its task waits for a turn at a transaction.
        self.in_row = False


class Source:
    """What both kinds share: what is held and waits, how much to claim, what was counted."""

    kind: str

    def __init__(self, spec: SourceSpec, store: Store, worker_id: str) -> None:
        self.spec = spec
        self.name = spec.name
        self.label = spec.label
        self.worker_id = worker_id
        self.core = store._core
        self.concurrency = spec.concurrency
        # Held and not ended. Sets and deques, changed by several threads: each single operation on them is atomic.
        self.live: set[Held] = set()
        self.waiting: deque[Held] = deque()
        # Handlers running on the loop, and in threads or children.
        self.running = self.in_threads = 0
        self.filling = False
        """Whether handlers are just begun on the loop."""
        # No longer ``live`` and not yet handed over to be settled: a worker that stops has to wait for these, too.
        self.ending = self.ending_on_loop = 0
        self.counters = Counters()
        self.lock = threading.Lock()
        """Guards counting by several threads; a loop's handlers end in one thread and need none."""
        self.shortest = float("inf")
        """The shortest visibility claimed so far, in seconds."""
        # Handlers of different kinds share the slots, so that nothing may be claimed ahead of free ones.
        # What takes a process each is claimed when it can begin.
        kinds = {handler.runs for handler in spec.handlers}
        self.ahead_allowed = len(kinds) == 1 and "command" not in kinds
        self._pace = plan.Pace()
        self._busy_since = self._arrived_at = _monotonic()
        self.idle_since = self._busy_since
        self._finished_before = 0
        # Set while the fetching thread waits for room.
        self.hungry = False
        self.refill_at = 0
        self.room_made = threading.Event()
        self.waiter = ThreadWaiter("")
        self.limits: Limits | None = None
        self.closing = False
        """Set when the worker stops: who waits for a turn at a transaction is not to begin any more."""

    # -- How much to claim -------------------------------------------------------------------------------------------

    def room(self, unsettled: int) -> int:
        """How many to claim now."""
        self._measure()
        ahead = self._pace.ahead if self.ahead_allowed else 0
        self.refill_at = plan.refill_at(self.concurrency, ahead)
        return plan.room(len(self.live), unsettled, self.concurrency, ahead)

    def _measure(self) -> None:
        now = _monotonic() if self.live else self.idle_since
        finished = self.counters.handled
        pace = plan.paced(self._pace, finished - self._finished_before, now - self._busy_since)
        if pace is not None:
            self._pace, self._finished_before, self._busy_since = pace, finished, now

    def arrived(self, helds: list[Held]) -> None:
        """They are held now."""
        now = _monotonic()
        if not self.live:
            # The time without work does not count.
            self._busy_since += now - max(self.idle_since, self._busy_since)
        self._arrived_at = now
        self.live.update(helds)
        self.counters.claimed += len(helds)

    def surplus(self) -> list[Held]:
        """Those that wait beyond what the handlers' pace allows, taken out: they are to be given back."""
        ahead = self._pace.ahead if self.ahead_allowed else 0
        taken: list[Held] = []
        for _ in range(plan.surplus(len(self.waiting), ahead, _monotonic() - self._arrived_at)):
            try:
                taken.append(self.waiting.pop())
            except IndexError:
                break
        return taken

    def take_waiting(self) -> list[Held]:
        """Everything that waits for a slot, taken out."""
        taken: list[Held] = []
        try:
            while True:
                taken.append(self.waiting.popleft())
        except IndexError:
            return taken

    def feed(self) -> None:
        """Wake the fetching thread if it waits for room and there is some."""
        if self.limits is not None:
            self.limits.feed()
        if self.hungry and len(self.live) <= self.refill_at:
            self.hungry = False
            self.room_made.set()

    # -- What differs ------------------------------------------------------------------------------------------------

    def claim(self, n: int) -> list[Held]:
        """Claim up to n, not ``live`` yet. Those no handler can have come with their settlement, handler None."""
        raise NotImplementedError

    def renew(self, helds: list[Held]) -> list[bool]:
        """Heartbeat each; False where the claim is lost."""
        raise NotImplementedError

    def ack_many(self, helds: Sequence[Held]) -> int:
        """Ack; how many were valid."""
        raise NotImplementedError

    def release_many(self, helds: Sequence[Held]) -> int:
        """Give back at once; how many were valid."""
        raise NotImplementedError

    def settle(self, held: Held) -> bool:
        """Carry out the settlement of one; False where the claim was lost."""
        raise NotImplementedError

    def ack_arguments(self, held: Held, result: Any) -> tuple[Any, ...]:
        """What to call the handle's own ``ack`` with."""
        return ()

    def visibility(self, held: Held) -> float:
        """Seconds its claim holds from one beat to the next."""
        raise NotImplementedError

    def sweep(self) -> None:
        """Bury what is expired, forget what its retention is over for."""
        raise NotImplementedError

    def next_due(self) -> int | None:
        """When something may become claimable by time alone, in microseconds."""
        raise NotImplementedError

    def health(self) -> SourceHealth:
        """Its numbers at this moment."""
        counters, now = self.counters, _monotonic()
        began = [held.began for held in list(self.live) if held.began]
        return SourceHealth(
            kind=self.kind,
            name=self.name,
            concurrency=self.concurrency,
            running=self.running + self.in_threads,
            waiting=len(self.waiting),
            claimed=counters.claimed,
            handled=counters.handled,
            acked=counters.acked,
            retried=counters.retried,
            failed=counters.failed,
            released=counters.released,
            lost=counters.lost,
            timed_out=counters.timed_out,
            beats_failed=counters.beats_failed,
            handler_seconds=counters.seconds,
            handled_within=counters.within(),
            longest_running=max(0.0, now - min(began, default=now)),
        )


# -- Queues ------------------------------------------------------------------------------------------------------------


class QueueSource(Source):
    """A queue."""

    kind = "queue"

    def __init__(self, spec: SourceSpec, store: Store, worker_id: str) -> None:
        super().__init__(spec, store, worker_id)
        self._queue = store.queue(spec.name, codec=spec.option("codec"))
        self.waiter = ThreadWaiter(self._queue._address)
        self._visibility: int | None = spec.option("visibility")
        self._makers: dict[Handler, Callable[[Any], Any]] = {
            handler: self._maker(store, handler) for handler in spec.handlers
        }
        self._only = spec.default if not spec.tasks else None

    def _maker(self, store: Store, handler: Handler) -> Callable[[Any], Any]:
        """Makes the handle a handler takes, its payload decoded by the handler's codec."""
        codec = handler.codec or self.spec.option("codec")
        queue: Any
        if handler.runs == "loop":
            queue = store.as_async().queue(self.name, codec=codec)
            queue._job_type = handles.WorkerAsyncJob
        else:
            queue = store.queue(self.name, codec=codec)
            queue._job_type = handles.WorkerJob
        make: Callable[[Any], Any] = queue._job
        return make

    def claim(self, n: int) -> list[Held]:
        since = _monotonic()
        claims = self._queue._engine.claim(self.worker_id, n, self._visibility)
        if not claims:
            return []
        shortest = claims[0].visibility if len(claims) == 1 else min([claim[16] for claim in claims])
        self.shortest = min(self.shortest, shortest / MICROSECONDS)
        only = self._only
        if only is not None:
            make = self._makers[only]
            helds = [Held(self, only, make(claim), claim, since) for claim in claims]
        else:
            helds = [self._told_apart(claim, since) for claim in claims]
        for held in helds:
            if held.handler is not None and isinstance(held.handle.payload, PayloadError):
                held.settlement = plan.undecodable(held.handle.payload)
                held.handler = None
                tell(WARNING, "undecodable", error=reason(held.handle.payload), **item_fields(self, held.claim))
        return helds

    def _told_apart(self, claim: Any, since: float) -> Held:
        handler = self.spec.handler_of(claim.name)
        if handler is not None:
            return Held(self, handler, self._makers[handler](claim), claim, since)
        held = Held(self, None, self._queue._job(claim), claim, since)
        held.settlement = plan.unknown_name(claim.releases, self.core.rng.random())
        tell(WARNING, "unknown_name", delay=held.settlement.delay, **item_fields(self, claim))
        return held

    def renew(self, helds: list[Held]) -> list[bool]:
        kept = self._queue._engine.heartbeat([held.claim for held in helds], None)
        for held, deadline in zip(helds, kept, strict=True):
            if deadline is not None:
                held.handle._expires = deadline
        return [deadline is not None for deadline in kept]

    def ack_many(self, helds: Sequence[Held]) -> int:
        if len(helds) == 1:
            return int(self._queue._engine.ack(helds[0].claim, None))
        return self._queue._engine.ack_batch([held.claim for held in helds], [], self.worker_id)

    def release_many(self, helds: Sequence[Held]) -> int:
        return self._queue._woken(self._queue._engine.release_batch([held.claim for held in helds]))

    def settle(self, held: Held) -> bool:
        queue, what = self._queue, held.settlement
        if what.kind == "ack":
            return queue._engine.ack(held.claim, self._result(held, what.result))
        # Not the handler's, which remembers what its handler settled.
        handle = queue._job_type(held.claim, None, queue)
        if what.kind == "retry":
            return queue.retry(handle, what.error, what.delay)
        if what.kind == "fail":
            return queue.fail(handle, what.error)
        return queue.release(handle, delay=what.delay)

    def ack_arguments(self, held: Held, result: Any) -> tuple[Any, ...]:
        return () if result is None or self._result(held, result) is None else (result,)

    def _result(self, held: Held, result: Any) -> str | None:
        """The result as text; one that cannot be carried is dropped: the work is done, and must not be done again."""
        try:
            text: str | None = held.handle._queue._result(result)
        except Exception as error:
            # A codec of the application's may raise anything.
            tell(WARNING, "result_dropped", error=reason(error), **item_fields(self, held.claim))
            return None
        return text

    def visibility(self, held: Held) -> float:
        microseconds: int = held.claim.visibility
        return microseconds / MICROSECONDS

    def sweep(self) -> None:
        self._queue.sweep_expired()

    def next_due(self) -> int | None:
        return self._queue._engine.next_due()


# -- Transports --------------------------------------------------------------------------------------------------------


class TransportSource(Source):
    """A transport."""

    kind = "transport"

    def __init__(self, spec: SourceSpec, store: Store, worker_id: str) -> None:
        super().__init__(spec, store, worker_id)
        (handler,) = spec.handlers
        self._handler = handler
        codec = handler.codec or spec.option("codec")
        options = spec.option("options", {})
        self._transport = store.transport(spec.name, codec=codec, **options)
        self.waiter = ThreadWaiter(self._transport._address)
        visibility: int = spec.option("visibility") or DEFAULT_VISIBILITY * MICROSECONDS
        self._visibility, self._seconds = visibility, units.seconds(visibility)
        self.shortest = self._seconds
        self._floor: int | None = spec.option("min_priority")
        self._share: float = spec.option("priority_share", 1.0)
        self._shared = spec.option("priority_share") is not None
        self._claims = 0
        handles_by: Any = self._transport
        if handler.runs == "loop":
            handles_by = store.as_async().transport(spec.name, codec=codec)
            handles_by._lease_type = handles.WorkerAsyncLease
        else:
            handles_by = store.transport(spec.name, codec=codec)
            handles_by._lease_type = handles.WorkerLease
        self._make: Callable[[Any], Any] = handles_by._lease

    def claim(self, n: int) -> list[Held]:
        since = _monotonic()
        claims = self._claim(n)
        handler, make = self._handler, self._make
        helds = [Held(self, handler, make(claim), claim, since) for claim in claims]
        if self._transport._codec is not None:
            for held in helds:
                if isinstance(held.handle.event, PayloadError):
                    held.settlement = plan.undecodable(held.handle.event)
                    held.handler = None
                    tell(WARNING, "undecodable", error=reason(held.handle.event), **item_fields(self, held.claim))
        return helds

    def _claim(self, n: int) -> list[Any]:
        """A share of the claims tries the floor first, then what is below it; the others go by turn alone."""
        claim = self._transport._engine.claim
        if not self._shared:
            return claim(self.worker_id, n, self._visibility, self._floor)
        number, self._claims = self._claims, self._claims + 1
        if not plan.floor_first(number, self._share):
            return claim(self.worker_id, n, self._visibility, None)
        claims = claim(self.worker_id, n, self._visibility, self._floor)
        if len(claims) < n:
            try:
                claims += claim(self.worker_id, n - len(claims), self._visibility, None)
            except Exception:
                # What we have must not be forgotten for that. If it stays so, the next claim tells.
                if not claims:
                    raise
        return claims

    def renew(self, helds: list[Held]) -> list[bool]:
        kept = self._transport._engine.extend([held.claim for held in helds], self._visibility)
        for held, deadline in zip(helds, kept, strict=True):
            if deadline is not None:
                # Only the deadline is new; the token, which settles it, stays.
                held.handle._claim = held.claim._replace(deadline=deadline)
        return [deadline is not None for deadline in kept]

    def ack_many(self, helds: Sequence[Held]) -> int:
        engine = self._transport._engine
        if len(helds) == 1:
            return int(self._transport._woken(engine.ack(helds[0].claim)))
        return self._transport._woken(engine.ack_batch([held.claim for held in helds]))

    def release_many(self, helds: Sequence[Held]) -> int:
        return self._transport._woken(self._transport._engine.release_batch([held.claim for held in helds]))

    def settle(self, held: Held) -> bool:
        transport, what = self._transport, held.settlement
        handle = transport._lease_type(held.claim, None, transport)
        delay = None if what.delay is None else max(what.delay, 0)
        if what.kind == "ack":
            return self.ack_many([held]) == 1
        if what.kind == "retry":
            return transport.retry(handle, what.error, delay)
        if what.kind == "fail":
            return transport.fail(handle, what.error)
        return transport.release(handle, delay=delay or 0)

    def visibility(self, held: Held) -> float:
        return self._seconds

    def sweep(self) -> None:
        self._transport.sweep()

    def next_due(self) -> int | None:
        return self._transport._engine.next_due()


def make_source(spec: SourceSpec, store: Store, worker_id: str) -> Source:
    """The source a spec describes, on an opened store."""
    return (QueueSource if spec.kind == "queue" else TransportSource)(spec, store, worker_id)
