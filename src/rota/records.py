"""The data Rota speaks in: slotted records without behaviour.

Two families. *Rows* (named tuples) cross the border between facade and engine: times in whole microseconds, payloads as
stored. *Records* (dataclasses) are what callers see: times in POSIX seconds (C2), payloads decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from rota.units import Duration, Instant

JobState = Literal["new", "pending", "processing", "done", "dead", "gone"]
GroupState = Literal["ready", "leased", "parked", "suspended"]
Poison = Literal["dead-letter", "hold"]
NewGroups = Literal["first", "last"]

# -- Rows: facade <-> engine, microseconds, stored payloads ----------------------------------------------------------


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


# -- Records: what callers see ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """One job for ``enqueue_many`` with the options of ``enqueue`` (Q1, Q2)."""

    payload: Any
    name: str | None = field(default=None, kw_only=True)
    delay: Duration | None = field(default=None, kw_only=True)
    run_at: Instant | None = field(default=None, kw_only=True)
    priority: int = field(default=0, kw_only=True)
    expires: Duration | timedelta | None = field(default=None, kw_only=True)
    max_attempts: int | None = field(default=None, kw_only=True)
    visibility: Duration | None = field(default=None, kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as ``get_job``, ``jobs`` and ``peek`` show it (Q11): no token, so it cannot settle anything."""

    id: int
    queue: str
    state: JobState
    name: str | None
    payload: Any
    headers: dict[str, str]
    priority: int
    attempts: int
    max_attempts: int
    run_at: float
    enqueued_at: float
    expires_at: float | None
    worker_id: str | None
    claimed_at: float | None
    claim_expires_at: float | None
    releases: int
    last_error: str | None
    previous_error: str | None
    visibility: float
    backoff_base: float
    dead_letter_retention: float | None
    keep_done: float
    key: str | None
    result: Any
    died_at: float | None
    done_at: float | None


@dataclass(frozen=True, slots=True)
class Message:
    """A message as ``peek`` shows it."""

    seq: int
    group_id: str
    event: Any
    headers: dict[str, str]
    deliveries: int
    published_at: float
    key: str | None
    last_error: str | None
    priority: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What every dead letter has (D1); see ``DeadJob`` and ``DeadMessage``."""

    letter_id: int
    reason: str
    last_error: str
    previous_error: str | None
    died_at: float
    headers: dict[str, str]
    priority: int
    key: str | None


@dataclass(frozen=True, slots=True)
class DeadJob(DeadLetter):
    """A job taken out of circulation, whole."""

    id: int
    queue: str
    name: str | None
    payload: Any
    attempts: int
    max_attempts: int
    releases: int
    run_at: float
    enqueued_at: float
    expires_at: float | None
    worker_id: str | None


@dataclass(frozen=True, slots=True)
class DeadMessage(DeadLetter):
    """A message taken out of circulation, whole; ``priority`` is its group's."""

    seq: int
    transport: str
    group_id: str
    event: Any
    deliveries: int
    published_at: float


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a transport (``groups``). ``until`` and ``worker_id`` belong to a lease or park."""

    group_id: str
    priority: int
    messages: int
    oldest_at: float
    last_claimed_at: float | None
    state: GroupState
    until: float | None
    worker_id: str | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of a queue (Q14): exact up to 10,000, the names in ``capped`` stand for "10,000 or more"."""

    pending: int
    processing: int
    done: int
    dead: int
    capped: tuple[str, ...]
    oldest_ready_age: float | None
    next_due_at: float | None
    suspended: bool


@dataclass(frozen=True, slots=True)
class TransportStats:
    """Counts of a transport: exact up to 10,000, the names in ``capped`` stand for "10,000 or more"."""

    groups: int
    messages: int
    ready: int
    leased: int
    parked: int
    suspended_groups: int
    dead: int
    capped: tuple[str, ...]
    oldest_ready_age: float | None
    next_due_at: float | None
    suspended: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a group or job is, or is not, claimable now, since when, and until when if a time is known."""

    claimable: bool
    reason: str
    since: float | None
    until: float | None
    worker_id: str | None
