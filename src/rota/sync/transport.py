"""``Transport`` and ``Lease``, sync."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rota import rules, units
from rota.codecs import decoded
from rota.facade import ids as given
from rota.facade import waiting
from rota.facade.lost import lost_event
from rota.facade.on_demand import OnDemand
from rota.facade.settled import noted, noted_all
from rota.facade.transactions import Tx, lost
from rota.facade.transports import (
    DEFAULT_VISIBILITY,
    LeaseData,
    TransportBase,
    group_filter,
    group_name,
    redrive_position,
    required_group,
)
from rota.sync import within
from rota.telemetry import API, LOADED, active
from rota.units import Duration

if TYPE_CHECKING:
    from rota.contract import Position
    from rota.facade import present
    from rota.public import DeadLetter, DeadMessage, Explanation, Group, Message, TransportStats
    from rota.records import GroupState, LeaseClaim
else:
    present = OnDemand("rota.facade.present")


class Lease(LeaseData):
    """A lease with its verbs; each is the transport's verb of the same name."""

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """Set by the worker that runs this handler: its claim is lost or its time is over.

        Outside of a worker nobody sets it.
        """
        return lost_event(self)

    def ack(self, *, tx: Tx = None) -> bool:
        """Handled: remove the message, free the group. ``False``: the lease was lost (T6)."""
        transport = self._transport
        if tx is not None:
            return transport.ack(self, tx=tx)  # type: ignore[no-any-return]
        # ``Transport.ack`` for a lease of its own, spelled out.
        if not transport._engine.ack(self._claim):
            return False
        transport._wakeups.wake(transport._address)
        if self.remembers:
            noted(self, True)
        return True

    def nack(self, delay: Duration | None = 0, *, error: str | BaseException | None = None, tx: Tx = None) -> bool:
        """Free the message for immediate retry, or park its group for ``delay`` seconds."""
        return self._transport.nack(self, delay, error=error, tx=tx)  # type: ignore[no-any-return]

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None) -> bool:
        """``nack`` with the backoff over ``deliveries`` (Q8), or with the given delay in seconds."""
        return self._transport.retry(self, error, delay, tx=tx)  # type: ignore[no-any-return]

    def extend(self, visibility: Duration, *, tx: Tx = None) -> Lease | None:
        """Renew to now + ``visibility`` seconds under the same token; ``None``: the lease was lost."""
        return self._transport.extend(self, visibility, tx=tx)  # type: ignore[no-any-return]

    def release(self, *, delay: Duration | None = 0, tx: Tx = None) -> bool:
        """Give it back unworked: this delivery is not counted."""
        return self._transport.release(self, delay=delay, tx=tx)  # type: ignore[no-any-return]

    def fail(self, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        """Dead-letter the message now and free the group."""
        return self._transport.fail(self, error, tx=tx)  # type: ignore[no-any-return]


class Transport(TransportBase[Lease]):
    """FIFO per group, one active consumer per group, fair turns between groups (contract T).

    Settling verbs return ``False`` where the lease was lost (T6). All verbs raise ``StoreClosed`` after the store
    was closed and the engine's errors of contract E; wrong arguments raise ``TypeError`` or ``ValueError`` before any
    effect.
    """

    _lease_type = Lease

    def publish(
        self,
        group_id: str,
        event: Any,
        priority: int | None = 0,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tx: Tx = None,
    ) -> int:
        """Append ``event`` to the group and return its ``seq`` (T2, T5); with a taken ``key`` the existing one (Q15).

        Raises ``PayloadError`` or ``PayloadTooLarge`` for an event that cannot be stored (P1, P2).
        """
        message = self._new(group_id, event, priority, key, headers)
        if API in LOADED and (spans := active()) is not None:
            with spans.send(self.name, group=group_id) as send:
                message = (*message[:4], send.headers(message[4]))
                if tx is not None:
                    return send.stored(within.within(self, tx, "publish", *message))
                return self._woken(send.stored(self._engine.publish(*message)))
        if tx is not None:
            return within.within(self, tx, "publish", *message)  # type: ignore[no-any-return]
        return self._woken(self._engine.publish(*message))

    def publish_many(self, items: Iterable[tuple[str, Any] | tuple[str, Any, int]], *, tx: Tx = None) -> list[int]:
        """Append ``(group_id, event[, priority])`` items, all or nothing; their seqs in order."""
        messages = self._new_many(items)
        if API in LOADED and (spans := active()) is not None:
            with spans.send(self.name, len(messages)) as send:
                messages = send.messages(messages)
                if tx is not None:
                    return within.within(self, tx, "publish_many", messages)  # type: ignore[no-any-return]
                return self._woken(self._engine.publish_many(messages))
        if tx is not None:
            return within.within(self, tx, "publish_many", messages)  # type: ignore[no-any-return]
        return self._woken(self._engine.publish_many(messages))

    def claim(
        self,
        worker_id: str | None = None,
        visibility: Duration | None = DEFAULT_VISIBILITY,
        min_priority: int | None = None,
        *,
        wait: Duration | None = 0,
    ) -> Lease | None:
        """Lease the head of the group whose turn it is (T1-T4), waiting up to ``wait`` real seconds (X7)."""
        if type(wait) is int and wait == 0:
            # ``_claim`` and ``_lease``, spelled out: every call counts in a cycle of some two microseconds.
            claims = self._engine.claim(*self._ask(worker_id, 1, visibility, min_priority))
            if not claims:
                return None
            claim = claims[0]
            codec = self._codec
            return Lease(claim, claim[2] if codec is None else decoded(codec, claim[2]), self)
        claims = self._claim(worker_id, 1, visibility, min_priority, wait)
        return self._lease(claims[0]) if claims else None

    def claim_batch(
        self,
        worker_id: str | None,
        n: int,
        visibility: Duration | None = DEFAULT_VISIBILITY,
        min_priority: int | None = None,
        *,
        wait: Duration | None = 0,
    ) -> list[Lease]:
        """Up to ``n`` leases, each of another group; returns at the first non-empty result."""
        return self._leases(self._claim(worker_id, given.count(n), visibility, min_priority, wait))

    def _claim(
        self,
        worker_id: str | None,
        n: int,
        visibility: Duration | None,
        min_priority: int | None,
        wait: Duration | None,
    ) -> list[LeaseClaim]:
        ask = self._ask(worker_id, n, visibility, min_priority)
        if wait == 0 and type(wait) is int:
            return self._engine.claim(*ask) if n else self._none()
        pause = units.pause(wait, "wait")
        if not n:
            return self._none()
        engine = self._engine
        return waiting.drive(self._core, self._address, pause, partial(engine.claim, *ask), engine.next_due)

    def ack(self, lease: Lease, *, tx: Tx = None) -> bool:
        """Handled: remove the message, free the group."""
        claim = self._own(lease)
        if tx is not None:
            return within.settle(self, tx, lease, "ack", claim)
        done = claim is not None and self._woken(self._engine.ack(claim))
        return noted(lease, done) if lease.remembers else done

    def ack_batch(self, leases: Iterable[Lease], *, tx: Tx = None) -> int:
        """``ack`` several; how many were still valid."""
        held = list(leases)
        claims = self._own_many(held)
        if tx is not None:
            return within.settle_all(self, tx, held, self._asked_for(held, claims), claims)
        return noted_all(held, self._woken(self._engine.ack_batch(claims)))

    def nack(
        self, lease: Lease, delay: Duration | None = 0, *, error: str | BaseException | None = None, tx: Tx = None
    ) -> bool:
        """Free the message for immediate retry, or park its whole group for ``delay`` seconds."""
        ask = units.pause(delay, "delay"), rules.clean_error(error)
        claim = self._own(lease)
        if tx is not None:
            return within.settle(self, tx, lease, "nack", claim, *ask)
        return noted(lease, claim is not None and self._woken(self._engine.nack(claim, *ask)))

    def retry(
        self, lease: Lease, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None
    ) -> bool:
        """``nack`` with the backoff over ``deliveries`` (Q8), or with the given delay in seconds."""
        claim = self._own(lease)
        if tx is not None:
            return within.settle(
                self,
                tx,
                lease,
                "nack",
                claim,
                0 if claim is None else self._curve(claim, delay),
                rules.clean_error(error),
            )
        return noted(
            lease,
            claim is not None
            and self._woken(self._engine.nack(claim, self._curve(claim, delay), rules.clean_error(error))),
        )

    def extend(self, lease: Lease, visibility: Duration, *, tx: Tx = None) -> Lease | None:
        """Renew an unlapsed lease to now + ``visibility`` seconds under the same token; ``None`` when lost."""
        renewed = self.extend_batch([lease], visibility, tx=tx)
        if tx is not None and renewed[0] is None:
            raise lost([lease])
        return renewed[0]

    def extend_batch(self, leases: Iterable[Lease], visibility: Duration, *, tx: Tx = None) -> list[Lease | None]:
        """``extend`` several: the new lease for each, ``None`` where it was lost."""
        asked, claims, microseconds = self._to_extend(leases, visibility)
        if tx is not None:
            return self._extended(asked, within.within(self, tx, "extend", claims, microseconds))
        return self._extended(asked, self._engine.extend(claims, microseconds))

    def release(self, lease: Lease, *, delay: Duration | None = 0, tx: Tx = None) -> bool:
        """Give it back unworked (this delivery is not counted), at once or after ``delay`` seconds."""
        pause = units.pause(delay, "delay")
        claim = self._own(lease)
        if tx is not None:
            return within.settle(self, tx, lease, "release", claim, pause)
        return noted(lease, claim is not None and self._woken(self._engine.release(claim, pause)))

    def fail(self, lease: Lease, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        """Dead-letter the message now (``"failed"``) and free the group."""
        text = rules.clean_error(error)
        claim = self._own(lease)
        if tx is not None:
            return within.settle(self, tx, lease, "fail", claim, text)
        return noted(lease, claim is not None and self._woken(self._engine.fail(claim, text)))

    def suspend(self, group_id: str | None = None) -> bool:
        """Stop handing out one group, or the whole transport, until ``resume`` (T9). Whether that changed anything."""
        return self._engine.suspend(group_name(group_id))

    def resume(self, group_id: str | None = None) -> bool:
        """Lift the suspension of one group, or the transport-wide one only (T9). Whether that changed anything."""
        return self._woken(self._engine.resume(group_name(group_id)))

    def sweep(self) -> int:
        """Delete dead letters and keys whose time is over; how many letters."""
        return self._engine.sweep()

    def groups(self, state: GroupState | None = None, limit: int | None = 100, after: str | None = None) -> list[Group]:
        """Groups that have messages, by group id, those greater than ``after``."""
        return [present.group(row) for row in self._engine.groups(*group_filter(state, limit, after))]

    def stats(self) -> TransportStats:
        """Counts, exact up to 10,000 and marked when capped; oldest ready age; next due time."""
        return present.transport_stats(self._engine.stats())

    def peek(self, group_id: str, n: int | None = 10) -> list[Message]:
        """The first ``n`` messages of a group in order, without claiming."""
        rows = self._engine.peek(required_group(group_id), given.shown(n))
        return [present.message(row, self._codec) for row in rows]

    def purge(self, group_id: str) -> int:
        """Remove the group's messages, leased ones too; a suspension stays. How many."""
        return self._engine.purge(required_group(group_id))

    def explain(self, group_id: str) -> Explanation:
        """Why a group is not claimable now, and since when."""
        return present.explanation(self._engine.explain(required_group(group_id)))

    def dead_letters(
        self, limit: int | None = 100, after: int | None = None, *, group_id: str | None = None
    ) -> list[DeadMessage]:
        """Dead letters by ``letter_id``, those greater than ``after`` (D2)."""
        rows = self._engine.dead_letters(given.limit(limit), given.after(after), group_name(group_id))
        return [present.dead_message(row, self.name, self._codec) for row in rows]

    def purge_dead(
        self, ids: Iterable[int | DeadLetter] | Literal["all"] | None = None, *, older_than: Duration | None = None
    ) -> int:
        """Delete dead letters by letter id, all, or those at least ``older_than`` seconds old (D2). How many."""
        return self._engine.purge_dead(*given.purge(ids, older_than))

    def redrive(
        self, ids: Iterable[int | DeadLetter] | Literal["all"], *, position: Position | None = "tail"
    ) -> list[int]:
        """Make dead letters live again at the tail of their groups or at their original place (D3); their seqs."""
        return self._woken(self._engine.redrive(given.letters(ids), redrive_position(position)))
