"""What is due when: entries in order at a cost that does not grow with the backlog.

What arrives in order is appended to a deque, only the out-of-order goes to a heap, and the two fronts are compared.
With a clock that runs forward and one usual duration nearly everything arrives in order. Nothing is searched for: an
entry that no longer counts stays until it comes to the front, or until such entries outnumber the others (then all are
dropped at once), so the size stays bounded under any rate times visibility.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

# Entries that no longer count may exceed those that do by this many before they are dropped.
SLACK = 512
# The deadline of what nobody holds: before every instant.
FREE = -(2**63)

Entry = tuple[int, int, Any]


class Timed:
    """What a ``Timers`` keeps: a group or a job. ``timer`` is its one entry that counts."""

    __slots__ = ("deadline", "timer", "token")

    deadline: int
    token: int
    timer: Entry | None

    def __lt__(self, other: object) -> bool:
        """Two entries of one item may tie in everything before the item; which goes first is then all the same."""
        return False


class Timers:
    """Groups or jobs by an instant: entries ``(when, tie, item)``; one counts while it is its item's ``timer``.

    An entry stops counting by ``drop`` or ``move`` alone, so only these look whether it is time to tidy.
    """

    __slots__ = ("fifo", "heap", "live")

    def __init__(self) -> None:
        self.fifo: deque[Entry] = deque()
        self.heap: list[Entry] = []
        self.live = 0

    def add(self, item: Timed, when: int, tie: int) -> None:
        """Put in an item that is not in."""
        self.live += 1
        item.timer = entry = (when, tie, item)
        fifo = self.fifo
        if not fifo or fifo[-1] < entry:
            fifo.append(entry)
        else:
            heappush(self.heap, entry)

    def move(self, item: Timed, when: int, tie: int) -> None:
        """Give an item that is in another instant."""
        self.live -= 1
        self.add(item, when, tie)
        if len(self) > 2 * self.live + SLACK:
            self._tidy()

    def drop(self, item: Timed) -> None:
        """Take out an item that is in."""
        item.timer = None
        self.live = live = self.live - 1
        if not live:
            self.fifo.clear()
            if self.heap:
                self.heap.clear()
        elif len(self.fifo) + len(self.heap) > 2 * live + SLACK:
            self._tidy()

    def due(self, now: int) -> bool:
        """Whether an entry, counting or not, lies before ``now``."""
        fifo, heap = self.fifo, self.heap
        return (bool(fifo) and fifo[0][0] < now) or (bool(heap) and heap[0][0] < now)

    def first(self) -> Entry | None:
        """The earliest entry that counts."""
        while True:
            fifo, heap = self.fifo, self.heap
            if heap and (not fifo or heap[0] < fifo[0]):
                entry = heap[0]
            elif fifo:
                entry = fifo[0]
            else:
                return None
            item: Timed = entry[2]
            if item.timer is entry:
                return entry
            self._shift(entry)

    def take(self, before: int) -> Timed | None:
        """Take out the first item whose instant lies before ``before``; None if there is none."""
        entry = self.first()
        if entry is None or entry[0] >= before:
            return None
        self._shift(entry)
        item: Timed = entry[2]
        item.timer = None
        self.live -= 1
        return item

    def __len__(self) -> int:
        return len(self.fifo) + len(self.heap)

    def _shift(self, first: Entry) -> None:
        """Remove the entry that is at one of the fronts."""
        if self.fifo and self.fifo[0] is first:
            self.fifo.popleft()
        else:
            heappop(self.heap)

    def _tidy(self) -> None:
        counting = [entry for entry in self.fifo if entry[2].timer is entry]
        self.fifo.clear()
        self.fifo.extend(counting)
        self.heap[:] = [entry for entry in self.heap if entry[2].timer is entry]
        heapify(self.heap)


class DeadlineTimers(Timers):
    """Timers of leases, parks and claims: an item is in until its ``deadline``.

    A renewal that prolongs costs nothing here: the entry stays, and is put in again when it comes to the front.
    """

    __slots__ = ("latest",)

    def __init__(self) -> None:
        super().__init__()
        self.latest = FREE
        """The latest deadline ever treated as lapsed; a clock behind it has gone back (C9)."""

    def renew(self, item: Timed, deadline: int) -> None:
        """Change the deadline of an item that is in."""
        item.deadline = deadline
        assert item.timer is not None
        if deadline < item.timer[0]:
            self.move(item, deadline, item.token)

    def lapsed(self, now: int) -> Iterator[Timed]:
        """Take out what lapsed, by deadline, then token."""
        while (entry := self.first()) is not None and entry[0] < now:
            item: Timed = entry[2]
            if item.deadline != entry[0]:
                self._put_off(entry)
            else:
                self.take(now)
                if item.deadline > self.latest:
                    self.latest = item.deadline
                yield item

    def next(self) -> int | None:
        """The earliest deadline, exact."""
        while (entry := self.first()) is not None:
            if entry[2].deadline == entry[0]:
                return entry[0]
            self._put_off(entry)
        return None

    def _put_off(self, entry: Entry) -> None:
        item = entry[2]
        self.move(item, item.deadline, item.token)


class Agenda:
    """Ids or keys by an instant: entries ``(when, id)``; ``holds(when, id)`` tells whether one still counts."""

    __slots__ = ("_fifo", "_heap", "_holds")

    def __init__(self, holds: Callable[[int, Any], bool]) -> None:
        self._fifo: deque[tuple[int, Any]] = deque()
        self._heap: list[tuple[int, Any]] = []
        self._holds = holds

    def put(self, when: int, what: Any, live: int) -> None:
        """Add an entry; ``live`` is how many can count at most."""
        entry = (when, what)
        fifo = self._fifo
        if not fifo or fifo[-1] <= entry:
            fifo.append(entry)
        else:
            heappush(self._heap, entry)
        if len(self) > 2 * live + SLACK:
            self._tidy()

    def take(self, until: int) -> Iterator[Any]:
        """Take out what is due at ``until`` or before, in order."""
        fifo, heap = self._fifo, self._heap
        while True:
            if heap and (not fifo or heap[0] < fifo[0]):
                if heap[0][0] > until:
                    return
                entry = heappop(heap)
            elif fifo:
                if fifo[0][0] > until:
                    return
                entry = fifo.popleft()
            else:
                return
            if self._holds(*entry):
                yield entry[1]

    def clear(self) -> None:
        """Forget everything."""
        self._fifo.clear()
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._fifo) + len(self._heap)

    def _tidy(self) -> None:
        # A set, for an entry may have been put in twice.
        counting = sorted({entry for entry in (*self._fifo, *self._heap) if self._holds(*entry)})
        self._fifo.clear()
        self._fifo.extend(counting)
        self._heap.clear()
