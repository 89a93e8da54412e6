"""``ManualClock``: time that moves only when a test says so (C4)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from rota import units

_START = 1_700_000_000


class ManualClock:
    """A thread-safe clock for tests; moving it wakes whoever waits.

    With ``autojump=True`` a ``wait=`` takes no real time: the clock jumps to the next instant at which something
    becomes claimable, or to the end of the wait.
    """

    def __init__(self, start: units.Instant = _START, *, autojump: bool = False) -> None:
        self.autojump = autojump
        self._now = units.instant(start, "start")
        self._lock = threading.Lock()
        self._callbacks: list[weakref.WeakMethod[Callable[[], None]]] = []

    def now(self) -> float:
        """The time in POSIX seconds."""
        return units.seconds(self._now)

    def now_microseconds(self) -> int:
        """The time in whole microseconds, exact."""
        return self._now

    def advance(self, seconds: units.Duration) -> None:
        """Move by ``seconds`` (negative: back) and wake waiters."""
        step = units.duration(seconds, "seconds")
        with self._lock:
            if abs(self._now + step) > units.LIMIT:
                raise ValueError(f"the clock at {self.now()!r} cannot go {seconds!r} seconds from there")
            self._now += step
        self._tell()

    def set(self, instant: units.Instant) -> None:
        """Move to ``instant`` (it may lie in the past) and wake waiters."""
        target = units.instant(instant, "instant")
        with self._lock:
            self._now = target
        self._tell()

    def jump_to(self, microseconds: int) -> None:
        """Move forward to an instant in microseconds; a clock already past it stays."""
        with self._lock:
            if microseconds <= self._now:
                return
            self._now = microseconds
        self._tell()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call a bound method after every move, while its object lives."""
        with self._lock:
            self._callbacks.append(weakref.WeakMethod(callback))

    def _tell(self) -> None:
        with self._lock:
            living = [(reference, reference()) for reference in self._callbacks]
            self._callbacks = [reference for reference, callback in living if callback is not None]
        for _, callback in living:
            if callback is not None:
                callback()

    def __repr__(self) -> str:
        return f"ManualClock({self.now()!r}, autojump={self.autojump})"
