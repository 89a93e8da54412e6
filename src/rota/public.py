"""The data classes callers see: times in POSIX seconds (C2), payloads decoded. Loaded when first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.records import GroupState, JobState
from rota.units import Duration, Instant


@dataclass(frozen=True, slots=True)
class Item:
    """One job for ``enqueue_many`` with the options of ``enqueue`` (Q1, Q2)."""

    payload: Any
    name: str | None = field(default=None, kw_only=True)
    delay: Duration | None = field(default=None, kw_only=True)
    run_at: Instant | None = field(default=None, kw_only=True)
    priority: int | None = field(default=0, kw_only=True)
    expires: Duration | None = field(default=None, kw_only=True)
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
