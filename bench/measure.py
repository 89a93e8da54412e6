"""How every benchmark here measures: rounds of ours and of the yardstick alternate, and the median of each counts."""

from __future__ import annotations

import gc
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True)
class Timed:
    """Seconds per operation over several rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def per_second(self) -> str:
        low, high = 1 / max(self.seconds), 1 / min(self.seconds)
        return f"{1 / self.median:,.0f}/s ({low:,.0f}–{high:,.0f})"


def time_of(operations: int, run: Callable[[], object]) -> float:
    """Seconds per operation of one round; the collector runs before it, not because of the last one."""
    gc.collect()
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / operations


def alternate(*sides: Callable[[], float], rounds: int = ROUNDS) -> list[Timed]:
    """Run the sides in turn, ``rounds`` times; each call returns its seconds per operation."""
    results: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for side, result in zip(sides, results, strict=True):
            result.append(side())
    return [Timed(tuple(result)) for result in results]


def heading(title: str) -> None:
    """A title with the machine's facts."""
    print(f"{title}: Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")


def line(what: str, value: float, goal: str, ok: bool, detail: str) -> None:
    """One result: what, the ratio, the goal, whether it is met, and the figures behind it."""
    print(f"{what:<58} {value:>10,.2f}   goal {goal:<8} {'met' if ok else 'MISSED':<7} {detail}")
    sys.stdout.flush()


def at_least(what: str, value: float, goal: float, detail: str) -> None:
    """A ratio that should be at least the goal."""
    line(what, value, f">= {goal:g}", value >= goal, detail)


def at_most(what: str, value: float, goal: float, detail: str) -> None:
    """A ratio that should be at most the goal."""
    line(what, value, f"<= {goal:g}", value <= goal, detail)
