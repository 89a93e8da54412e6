"""Clocks (C3, C4): where an engine on this host gets ``now``, in whole microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import FunctionType
from typing import Protocol, runtime_checkable

from rota.units import MICROSECONDS


@runtime_checkable
class Clock(Protocol):
    """Anything that tells POSIX seconds, like ``rota.testing.ManualClock``."""

    def now(self) -> float: ...


@runtime_checkable
class SteeredClock(Protocol):
    """A clock whose time is moved by hand: it tells exact microseconds, wakes waiters when moved, and may jump (C4)."""

    autojump: bool

    def now(self) -> float: ...

    def now_microseconds(self) -> int: ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every move, for as long as its owner lives (held weakly)."""

    def jump_to(self, microseconds: int) -> None:
        """Move forward to this instant; never back."""


def wall_clock() -> int:
    """The host's wall clock in whole microseconds."""
    return time.time_ns() // 1_000


def microseconds_of(clock: Clock | None) -> Callable[[], int]:
    """The function an engine calls for ``now``."""
    if clock is None:
        return wall_clock
    if isinstance(clock, type) and isinstance(vars(clock).get("now"), FunctionType):
        raise TypeError(f"clock must be an instance, got the class {clock!r}: write {clock.__name__}(…)")
    if isinstance(clock, SteeredClock):
        return clock.now_microseconds
    if not isinstance(clock, Clock):
        raise TypeError(f"clock must have a now() method that returns POSIX seconds, got {clock!r}")
    now = clock.now
    return lambda: round(now() * MICROSECONDS)
