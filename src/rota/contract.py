"""The contract between the facade and an engine.

An engine stores and decides; the facade checks input, encodes payloads, wakes waiters and makes handles. So an engine's
methods get clean values only (names checked, times in whole microseconds, payloads encoded) and return rows. Every verb
reads ``now`` once, after it holds its locks (C7), and is atomic. A method never blocks to wait for work.

Raw driver exceptions never leave an engine (E).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from rota.records import (
    DeadJobRow,
    DeadMessageRow,
    ExplanationRow,
    GroupRow,
    GroupState,
    JobClaim,
    JobRow,
    LeaseClaim,
    MessageRow,
    NewJob,
    NewMessage,
    QueueStatsRow,
    TransportOptions,
    TransportStatsRow,
)
from rota.wakeups import Wakeups

P = ParamSpec("P")
T = TypeVar("T")

ListedState = Literal["pending", "processing", "done", "dead"]
Position = Literal["tail", "original"]
# Counts in ``stats`` are exact up to here (Q14).
COUNT_CAP = 10_000


class TransportEngine(Protocol):
    """One transport of one engine (T, D). Making it does no I/O; ``declared`` options are stored at first use (T11)."""

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


class QueueEngine(Protocol):
    """One queue of one engine (Q, D). Making it does no I/O."""

    name: str
    place: str

    def enqueue(self, job: NewJob) -> int: ...

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]: ...

    def claim(self, worker_id: str, n: int, visibility: int | None) -> list[JobClaim]: ...

    def ack(self, claim: JobClaim, result: str | None) -> bool: ...

    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> int:
        """Q9: claims are fenced by token and worker, bare ids by worker and deadline only."""

    def retry(self, claim: JobClaim, error: str | None, delay: int) -> bool: ...

    def fail(self, claim: JobClaim, error: str | None) -> bool: ...

    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> list[int | None]:
        """Reset each claim's deadline to now + (extend, else that claim's visibility); None where it is lost."""

    def release(self, claim: JobClaim, delay: int | None) -> bool: ...

    def cancel(self, job_id: int) -> bool: ...

    def get_job(self, job_id: int) -> JobRow | None: ...

    def sweep_expired(self) -> int: ...

    def peek(self, n: int) -> list[JobRow]:
        """What a claim of n would hand out now, in its order, without claiming. A suspended queue still shows it."""

    def jobs(self, state: ListedState | None, limit: int, after: int | None) -> list[JobRow]:
        """Jobs by ascending id, those greater than ``after``; None means every state."""

    def purge(self, state: ListedState) -> int: ...

    def explain(self, job_id: int) -> ExplanationRow: ...

    def stats(self) -> QueueStatsRow: ...

    def suspend(self) -> bool: ...

    def resume(self) -> bool: ...

    def dead_letters(self, limit: int, after: int | None) -> list[DeadJobRow]: ...

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int: ...

    def redrive(self, ids: Sequence[int] | None) -> list[int]: ...

    def next_due(self) -> int | None: ...


class Subscription(Protocol):
    """One listener's place in a channel (X6)."""

    def take(self) -> list[str | None]:
        """The payloads that arrived since the last call, oldest first; never blocks."""

    def close(self) -> None: ...


class Engine(Protocol):
    """One opened engine, shared by its sync and async facades."""

    url: str
    """For people: never contains a password."""
    wakeups: Wakeups
    durable: bool
    """Durable engines always encode events (T8, P1)."""

    now: Callable[[], int]

    def transport(self, name: str, declared: dict[str, Any]) -> TransportEngine: ...

    def queue(self, name: str) -> QueueEngine: ...

    def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""

    def queues(self) -> list[str]: ...

    def notify(self, channel: str, payload: str | None) -> None: ...

    def subscribe(self, channel: str) -> Subscription: ...

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run one of this engine's verbs for the async facade without blocking the loop."""

    def acall_or_undo(self, verb: Callable[..., T], undo: Callable[[T], object], *args: Any) -> Awaitable[T]:
        """``acall`` for claims: when the awaiting task is cancelled while the verb runs, ``undo`` gets its result."""

    def facts(self) -> dict[str, Any]:
        """What ``rota doctor`` prints of this engine."""

    def close(self) -> None:
        """Let running verbs end, then release everything; later verbs raise ``StoreClosed``. Quiet when repeated."""
