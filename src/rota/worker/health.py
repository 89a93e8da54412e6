"""What a worker says of itself, as plain data."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

State = Literal["idle", "opening", "working", "stopping"]

# Upper bounds of what handlers take, in seconds: from no-ops to what runs for an hour.
BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)


class Counters:
    """What happened to the items of one source, counted since the worker began. Only ever counts up."""

    __slots__ = (
        "acked",
        "beats_failed",
        "claimed",
        "failed",
        "handled",
        "lost",
        "released",
        "retried",
        "seconds",
        "spread",
        "timed_out",
    )

    def __init__(self) -> None:
        self.claimed = self.handled = 0
        self.acked = self.retried = self.failed = self.released = 0
        self.lost = self.timed_out = self.beats_failed = 0
        self.seconds = 0.0
        # How many handlers took up to each of BOUNDS and longer than the one before; the last: longer than all.
        self.spread = [0] * (len(BOUNDS) + 1)

    def took(self, seconds: float) -> None:
        """A handler ended after so many seconds."""
        self.seconds += seconds
        self.spread[bisect_left(BOUNDS, seconds)] += 1

    def within(self) -> tuple[tuple[float, int], ...]:
        """For each bound how many took that long or less; the last bound is infinity."""
        return tuple(zip((*BOUNDS, float("inf")), accumulate(self.spread), strict=True))


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """One queue or transport of a worker. Counts are since its run began."""

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
    beats_failed: int
    """Heartbeats the store did not answer; each is tried again soon."""
    handler_seconds: float
    """Seconds all its handlers took together."""
    handled_within: tuple[tuple[float, int], ...]
    """Pairs of seconds and how many handlers took that long or less; the last pair is (infinity, all of them)."""
    longest_running: float
    """Seconds the longest of those running has been running, 0 when none runs."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker at one moment (``Worker.health``)."""

    state: State
    """``opening``: waits for its store; ``working``; ``stopping``: claims no more; ``idle``: does not run."""
    worker_id: str
    started_at: float | None
    """POSIX seconds when its run began, None when it does not run."""
    unsettled: int
    """Ended, not recorded in the store yet."""
    store_failing_since: float | None
    """POSIX seconds since when the store has not answered, None while it answers."""
    sources: tuple[SourceHealth, ...]
