"""The data that crosses the border between facade and engine: named tuples without behaviour.

Times are whole microseconds, payloads are as stored. What callers see is in ``rota.public``.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

JobState = Literal["new", "pending", "processing", "done", "dead", "gone"]
GroupState = Literal["ready", "leased", "parked", "suspended"]
Poison = Literal["dead-letter", "hold"]
NewGroups = Literal["first", "last"]


class Stamp(NamedTuple):
    """The options that rule one job's life (Q1). ``dead_letter_retention`` None means for ever."""

    visibility: int
    max_attempts: int
    backoff_base: int
    dead_letter_retention: int | None
    keep_done: int
    key_ttl: int


class NewJob(NamedTuple):
    """A checked and encoded job on its way into a queue."""

    payload: str
    stamp: Stamp
    name: str | None = None
    delay: int | None = None
    run_at: int | None = None
    priority: int = 0
    expires: int | None = None
    key: str | None = None
    headers: dict[str, str] | None = None


class JobClaim(NamedTuple):
    """What a claim hands out. ``visibility`` is this claim's own; ``token`` its fence."""

    id: int
    name: str | None
    payload: str
    headers: dict[str, str] | None
    priority: int
    attempts: int
    max_attempts: int
    run_at: int
    enqueued_at: int
    expires_at: int | None
    worker_id: str
    token: int
    claimed_at: int
    claim_expires_at: int
    releases: int
    last_error: str | None
    visibility: int
    backoff_base: int


class JobRow(NamedTuple):
    """Everything an engine knows of one job, live or ended."""

    id: int
    state: JobState
    name: str | None
    payload: str
    headers: dict[str, str] | None
    priority: int
    attempts: int
    run_at: int
    enqueued_at: int
    expires_at: int | None
    worker_id: str | None
    claimed_at: int | None
    claim_expires_at: int | None
    releases: int
    last_error: str | None
    previous_error: str | None
    key: str | None
    stamp: Stamp
    result: str | None = None
    done_at: int | None = None
    died_at: int | None = None


class DeadJobRow(NamedTuple):
    """A dead job: its letter around its row (whose ``state`` is ``dead``)."""

    letter_id: int
    reason: str
    job: JobRow


class NewMessage(NamedTuple):
    """A checked message on its way into a transport; ``event`` is text, or the object itself without a codec (T8)."""

    group_id: str
    event: Any
    priority: int = 0
    key: str | None = None
    headers: dict[str, str] | None = None


class LeaseClaim(NamedTuple):
    """What a transport's claim hands out. ``priority`` is the group's, ``backoff_base`` the transport's."""

    seq: int
    group_id: str
    event: Any
    token: int
    worker_id: str
    deliveries: int
    deadline: int
    priority: int
    headers: dict[str, str] | None
    published_at: int
    backoff_base: int


class MessageRow(NamedTuple):
    """Everything an engine knows of one message."""

    seq: int
    group_id: str
    event: Any
    headers: dict[str, str] | None
    deliveries: int
    published_at: int
    key: str | None
    last_error: str | None
    previous_error: str | None
    priority: int


class DeadMessageRow(NamedTuple):
    """A dead message: its letter around its row."""

    letter_id: int
    reason: str
    died_at: int
    message: MessageRow


class GroupRow(NamedTuple):
    """One group of a transport. ``until`` is the deadline of a lease or park."""

    group_id: str
    priority: int
    messages: int
    oldest_at: int
    last_claimed_at: int | None
    state: GroupState
    until: int | None
    worker_id: str | None


class QueueStatsRow(NamedTuple):
    """Counts of a queue; a name in ``capped`` was counted only up to the cap (Q14)."""

    pending: int
    processing: int
    done: int
    dead: int
    capped: tuple[str, ...]
    oldest_ready_at: int | None
    next_due_at: int | None
    suspended: bool
    now: int


class TransportStatsRow(NamedTuple):
    """Counts of a transport; a name in ``capped`` was counted only up to the cap."""

    groups: int
    messages: int
    ready: int
    leased: int
    parked: int
    suspended_groups: int
    dead: int
    capped: tuple[str, ...]
    oldest_ready_at: int | None
    next_due_at: int | None
    suspended: bool
    now: int


class ExplanationRow(NamedTuple):
    """Why something is, or is not, claimable. Instants in microseconds."""

    claimable: bool
    reason: str
    since: int | None
    until: int | None
    worker_id: str | None


class TransportOptions(NamedTuple):
    """The options of a transport (T11), all resolved."""

    max_deliveries: int | None = None
    poison: Poison = "dead-letter"
    new_groups: NewGroups = "first"
    backoff_base: int = 5_000_000
    dead_letter_retention: int | None = None
    key_ttl: int = 300_000_000
