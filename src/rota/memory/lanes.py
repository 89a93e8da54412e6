"""Lanes: what is claimable, one lane per priority, each in claim order.

As in ``schedule`` a lane is a deque for what arrives in order and a heap for the rest. An item's place in the order
never changes while it is in a lane, so entries of the deque are the items themselves. Deletion is a flag (``queued``)
checked when the entry comes to the front; an item that must leave its lane alive is replaced by a copy (``replaced``).
"""

from __future__ import annotations

import copy
from bisect import insort
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from rota.memory.schedule import Timed

# Unused lanes are kept up to this many: one group that comes and goes would otherwise make a lane each time.
_SPARE_LANES = 16
# Flagged entries in one lane before they may be dropped at once.
_SLACK = 64


class Queued(Timed):
    """What a lane keeps. ``queued``: it has an entry in its lane that counts."""

    __slots__ = ("lane", "queued")

    lane: Any
    queued: bool


Q = TypeVar("Q", bound=Queued)


class Lane(Generic[Q]):
    """The claimable items of one priority; the order is the subclass's."""

    __slots__ = ("early", "living", "priority", "stale")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.early: list[Any] = []
        self.living = 0
        """How many items have this priority, claimable or not."""
        self.stale = 0
        """Entries that no longer count."""

    def discard(self, item: Q) -> None:
        """Take out a queued item for good: this very object must not come back."""
        item.queued = False
        self.stale += 1
        if self.stale > _SLACK and 2 * self.stale > len(self):
            self._tidy()

    def replaced(self, item: Q) -> Q:
        """Take out a queued item that lives on: as the copy returned."""
        alive = copy.copy(item)
        self.discard(item)
        alive.queued = False
        return alive

    def __len__(self) -> int:
        raise NotImplementedError

    def _tidy(self) -> None:
        self.early[:] = [entry for entry in self.early if entry[-1].queued]
        heapify(self.early)
        for fifo in self._fifos():
            counting = [item for item in fifo if item.queued]
            fifo.clear()
            fifo.extend(counting)
        self.stale = 0

    def _fifos(self) -> tuple[deque[Q], ...]:
        raise NotImplementedError


class TurnLane(Lane[Any]):
    """Groups by turn (T3). Fresh groups and turned ones each arrive in order, and all fresh ones go first."""

    __slots__ = ("fresh", "turned")

    def __init__(self, priority: int) -> None:
        super().__init__(priority)
        self.fresh: deque[Any] = deque()
        self.turned: deque[Any] = deque()

    def push(self, group: Any) -> None:
        """Add a group that is not queued."""
        group.queued = True
        turn = group.turn
        fifo = self.fresh if turn < 0 else self.turned
        if not fifo or fifo[-1].turn < turn:
            fifo.append(group)
        else:
            heappush(self.early, (turn, group))

    def pop(self) -> Any | None:
        """Take out the first group."""
        while True:
            fifo = self.fresh or self.turned
            early = self.early
            if early and (not fifo or early[0][0] < fifo[0].turn):
                group = heappop(early)[1]
            elif fifo:
                group = fifo.popleft()
            else:
                return None
            if group.queued:
                group.queued = False
                return group
            self.stale -= 1

    def front(self) -> int | None:
        """The turn of the first group."""
        while True:
            fifo = self.fresh or self.turned
            early = self.early
            if early and (not fifo or early[0][0] < fifo[0].turn):
                turn, group = early[0]
                if group.queued:
                    return int(turn)
                heappop(early)
            elif fifo:
                group = fifo[0]
                if group.queued:
                    return int(group.turn)
                fifo.popleft()
            else:
                return None
            self.stale -= 1

    def __len__(self) -> int:
        return len(self.fresh) + len(self.turned) + len(self.early)

    def _fifos(self) -> tuple[deque[Any], ...]:
        return self.fresh, self.turned


class JobLane(Lane[Any]):
    """Jobs by ready time, then id (Q4)."""

    __slots__ = ("fifo",)

    def __init__(self, priority: int) -> None:
        super().__init__(priority)
        self.fifo: deque[Any] = deque()

    def push(self, job: Any) -> None:
        """Add a job that is not queued."""
        job.queued = True
        fifo = self.fifo
        if fifo:
            last, run_at = fifo[-1], job.run_at
            if last.run_at > run_at or (last.run_at == run_at and last.id > job.id):
                heappush(self.early, (run_at, job.id, job))
                return
        fifo.append(job)

    def pop(self) -> Any | None:
        """Take out the first job."""
        fifo, early = self.fifo, self.early
        while True:
            if early and (not fifo or early[0] < (fifo[0].run_at, fifo[0].id)):
                job = heappop(early)[2]
            elif fifo:
                job = fifo.popleft()
            else:
                return None
            if job.queued:
                job.queued = False
                return job
            self.stale -= 1

    def restore(self, popped: list[Any]) -> None:
        """Put back what was popped last, in the order it was popped: all of it goes before what is still here."""
        for job in popped:
            job.queued = True
        self.fifo.extendleft(reversed(popped))

    def __len__(self) -> int:
        return len(self.fifo) + len(self.early)

    def _fifos(self) -> tuple[deque[Any], ...]:
        return (self.fifo,)


L = TypeVar("L", TurnLane, JobLane)


class Lanes(Generic[L]):
    """The lanes of the priorities in use."""

    __slots__ = ("_make", "by_priority", "ordered")

    def __init__(self, make: Callable[[int], L]) -> None:
        self._make: Callable[[int], L] = make
        self.by_priority: dict[int, L] = {}
        self.ordered: list[L] = []
        """Highest priority first."""

    def join(self, priority: int) -> L:
        """The lane for a new item of this priority."""
        lane = self.by_priority.get(priority)
        if lane is None:
            lane = self.open(priority)
        lane.living += 1
        return lane

    def open(self, priority: int) -> L:
        """A lane for a priority that has none."""
        lane = self.by_priority[priority] = self._make(priority)
        insort(self.ordered, lane, key=lambda other: -other.priority)
        return lane

    def unused(self, lane: L) -> None:
        """The last item of this lane is gone."""
        if len(self.ordered) > _SPARE_LANES:
            del self.by_priority[lane.priority]
            self.ordered.remove(lane)
