"""What the sources of one worker share, where they are not each for themselves: ``rota work`` runs so many commands at
once and so many in all, however many addresses it works off."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.worker.sources import Source


class Limits:
    """How many items are held at once, and how many are claimed in all.

    An item takes a place until its outcome is recorded, so that never more are under a claim of ours.
    """

    def __init__(self, at_once: int, at_most: int | None = None) -> None:
        self._at_once = at_once
        self._left = at_most
        self._sources: Sequence[Source] = ()
        # For claims under way: nobody knows yet how much of it they get.
        self._reserved = 0
        # Those that were refused, in their order: with few places and much to do, each source gets its turn.
        self._refused: deque[Source] = deque()
        self._lock = threading.Lock()
        self._unsettled: Callable[[], int] = lambda: 0
        self._on_spent: Callable[[], None] = lambda: None

    def watch(self, sources: Sequence[Source], unsettled: Callable[[], int], on_spent: Callable[[], None]) -> None:
        """These share it. ``unsettled``: how many ended and are not recorded; ``on_spent``: called when as many were
        claimed as may be in all."""
        self._sources = sources
        self._unsettled = unsettled
        self._on_spent = on_spent

    def take(self, source: Source, wanted: int) -> int:
        """How many of those it wants a source may claim now. ``claimed`` must follow when that is not 0."""
        with self._lock:
            allowed = min(wanted, self._free())
            if wanted > 0 and (allowed <= 0 or self._is_behind(source)):
                if source not in self._refused:
                    self._refused.append(source)
                return 0
            if source in self._refused:
                self._refused.remove(source)
            if allowed <= 0:
                return 0
            self._reserved += allowed
            if self._left is not None:
                self._left -= allowed
            return allowed

    def claimed(self, taken: int, count: int) -> None:
        """Of so many taken so many were claimed, and are among the source's ``live`` now or over already."""
        with self._lock:
            self._reserved -= taken
            if self._left is not None:
                self._left += taken - count
            spent = self._left == 0 and self._reserved == 0 and count > 0
        if spent:
            self._on_spent()
        self.feed()

    def may_take(self, source: Source) -> bool:
        """Whether it is worth to ask."""
        with self._lock:
            return self._free() > 0 and not self._is_behind(source)

    def feed(self) -> None:
        """There may be room: wake who was refused first."""
        with self._lock:
            first = self._refused[0] if self._refused and self._free() > 0 else None
        if first is not None:
            first.room_made.set()

    def _free(self) -> int:
        held = sum(len(source.live) for source in self._sources) + self._unsettled()
        free = self._at_once - self._reserved - held
        return free if self._left is None else min(free, self._left)

    def _is_behind(self, source: Source) -> bool:
        return bool(self._refused) and self._refused[0] is not source
