"""What a worker says of itself, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["idle", "working", "stopping"]


class Counters:
    """What happened to the items of one source, counted since the worker began. Only ever counts up."""

    __slots__ = ("acked", "claimed", "failed", "handled", "lost", "released", "retried", "seconds", "timed_out")

    def __init__(self) -> None:
        self.claimed = self.handled = 0
        self.acked = self.retried = self.failed = self.released = 0
        self.lost = self.timed_out = 0
        self.seconds = 0.0


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """One queue or transport of a worker. Counts are since the worker began."""

    kind: str
    """``queue`` or ``transport``."""
    name: str
    concurrency: int
    running: int
    """Handlers running now."""
    waiting: int
    """Claimed, waiting for a free slot."""
    claimed: int
    handled: int
    """Handlers that ended, however."""
    acked: int
    retried: int
    """Given another try; for jobs out of attempts: buried by that."""
    failed: int
    released: int
    lost: int
    """Claims that were lost while a handler ran, or before its outcome could be recorded."""
    timed_out: int
    handler_seconds: float
    """Seconds all its handlers took together."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker at one moment."""

    state: State
    worker_id: str
    unsettled: int
    """Ended, not recorded in the store yet."""
    store_failing_since: float | None
    """POSIX seconds since when the store has not answered, None while it answers."""
    sources: tuple[SourceHealth, ...]
