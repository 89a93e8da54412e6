"""What an engine's transport does: the clauses T."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from rota.records import (
    DeadMessageRow,
    ExplanationRow,
    GroupRow,
    GroupState,
    LeaseClaim,
    MessageRow,
    NewMessage,
    TransportOptions,
    TransportStatsRow,
)

Position = Literal["tail", "original"]


class TransportEngine(Protocol):
    r"""One transport of one engine (T, D). Making it does no I/O; ``declared`` options are stored at first use (T11).

    ## T. Transport

    A transport is a FIFO of **messages** split into **groups**: one consumer at a time per group, fair turns between
    groups. `worker_id=None` in a claim stands for an id made of host, process and chance.

    - **T1 single active consumer.** At any instant of the clock a group has at most one message in flight. In flight:
      leased or parked with `deadline >= now` (the deadline's own instant still belongs to the holder). Strictly after
      it the message is free again, so crash recovery needs no sweeper. The test is "no valid lease anywhere in the
      group", not "the first row is free".
    - **T2 FIFO.** Only a group's head (lowest `seq`) is ever claimed. A nacked, parked, released or lapsed head stays
      the head. Publishes that do not overlap in time are delivered in the order they were published. A lower `seq` that
      appears while a lease is out (redrive to the original place) becomes the next head; the lease settles its own.
    - **T3 turns.** Among claimable groups at or above the floor the least recently *claimed* one goes first; groups
      never claimed go before all claimed ones, lowest head `seq` first. "Recently" is the order of the claims
      themselves (a counter), so it holds under a frozen, coarse or backward clock. The claim moves a group to the back;
      ack, nack, park, lapse and release do not. With `new_groups="last"` a new group enters at the back of the turns,
      as if just claimed: then, among claims whose floor admits it, a claimable group is passed over at most once by
      each other group, however many new ones arrive. The default favours quiet and new groups over busy ones and can
      starve a busy group under overload. The order is exact for claims that overlap no other transaction; overlapping
      ones may pass over a locked group or come back empty, and what appears behind the frontier (freed elsewhere,
      committed late) may be passed over for up to a second.
    - **T4 priority is a floor, not an order.** `min_priority` hides the groups below it; among the rest T3 alone
      decides. `None` is no floor. A group above the floor is found at a cost that does not grow with the number of
      groups below it.
    - **T5 a group exists while it has messages.** Its priority is fixed by the publish that creates it; later ones
      cannot change it. When the last message goes, priority and turn are forgotten (a suspension alone persists); the
      next publish makes a new group.
    - **T6 fencing.** Each claim gets a token from a counter that never goes back. Settling verbs and `extend` act only
      if the token is still the group's current one; else they change nothing and return `False` or `None`. Settling
      (also by nack) spends the token. A lease that lapsed but that nobody else took may still be settled; `extend`
      needs it unlapsed.
    - **T7 poison.** `deliveries` counts the claims of that message (this one included, released ones not). With
      `max_deliveries=N`, a head already delivered N times is dead-lettered (`max deliveries exceeded`) when a claim
      reaches it. `poison="dead-letter"`: the group goes on with the next message, in that same claim. `poison="hold"`:
      the group is suspended (also by `fail`) and later messages stay behind the failed one;
      `redrive(…, position="original")` and `resume` continue in order. `None`: a head may block its group for ever.
      Letters keep the group's priority.
    - **T8 identity.** A transport on `memory://` hands out the very object that was published (`is`), unless it has a
      codec. Durable engines encode (P1). `memory://?codec=json` makes it round-trip, so that tests refuse what
      production would. Queues always encode.
    - **T9 control plane.** A suspended group is not claimable and keeps order, backlog, priority and turn, over
      restarts; a lease held at that moment stays valid and may be settled. Suspending a group without messages holds.
      `resume(group)` lifts that suspension only (a running park or lease still counts); `resume()` lifts only the
      transport-wide one.
    - **T10 nothing is stranded.** A publish racing the ack of a group's last message leaves its message claimable.
    - **T11 options** belong to the transport, not to the handle: the first handle that names one stores it, others
      inherit it, and a conflict raises `ValueError` naming both values (`store.configure_transport(…)` changes them).
    """

    name: str
    place: str
    """Names the data, so that handles of another store or transport are told apart: engine, file and transport name."""

    def publish(
        self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None
    ) -> int: ...

    def publish_many(self, messages: Sequence[NewMessage]) -> list[int]: ...

    def claim(self, worker_id: str, n: int, visibility: int, min_priority: int | None) -> list[LeaseClaim]: ...

    def ack(self, claim: LeaseClaim) -> bool: ...

    def ack_batch(self, claims: Sequence[LeaseClaim]) -> int: ...

    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> bool:
        """Delay 0 frees, more parks (also the verb under ``retry``). Error None keeps the message's last one."""

    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> list[int | None]:
        """The new deadline for each claim, None where it is lost."""

    def release(self, claim: LeaseClaim, delay: int) -> bool: ...

    def release_batch(self, claims: Sequence[LeaseClaim]) -> int:
        """``release`` without a delay for each, in one transaction; how many were valid."""

    def fail(self, claim: LeaseClaim, error: str | None) -> bool: ...

    def suspend(self, group_id: str | None) -> bool: ...

    def resume(self, group_id: str | None) -> bool: ...

    def sweep(self) -> int: ...

    def groups(self, state: GroupState | None, limit: int, after: str | None) -> list[GroupRow]:
        """Groups that have messages, ordered by group id, code point by code point, those greater than ``after``."""

    def stats(self) -> TransportStatsRow: ...

    def peek(self, group_id: str, n: int) -> list[MessageRow]: ...

    def purge(self, group_id: str) -> int: ...

    def explain(self, group_id: str) -> ExplanationRow: ...

    def dead_letters(self, limit: int, after: int | None, group_id: str | None) -> list[DeadMessageRow]: ...

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int:
        """Delete letters by id (None: all), or those with ``died_at <= now - older_than``."""

    def redrive(self, ids: Sequence[int] | None, position: Position) -> list[int]:
        """Make letters live again (None: all); the seqs, in the order of the old ones."""

    def options(self) -> TransportOptions: ...

    def configure(self, changes: dict[str, Any]) -> TransportOptions:
        """Change stored options (T11); returns all of them."""

    def next_due(self) -> int | None:
        """The next instant after now at which something may become claimable by time alone, None if there is none."""
