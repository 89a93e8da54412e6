"""Waiting for work (X7, X8, C4): when to look again, decided once for threads and tasks.

``steps`` is a generator that asks for a claim, for the next due instant, or for a pause; ``drive`` carries out what it
asks in a thread, ``rota.aio.waiting`` in a task. Wake-ups cut a pause short; without them it never exceeds ``POLL``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Literal, TypeVar

from rota.errors import EngineBusy
from rota.facade.core import Core
from rota.units import MICROSECONDS
from rota.wakeups import ThreadWaiter

T = TypeVar("T")
# A waiter looks again at least this often, in seconds of real time: within a second of a lost wake-up (X7).
POLL = 0.5
# It never pauses for less: neither a due instant that turns out useless nor a lock that stays makes a busy loop.
_SHORTEST = 0.001
_AFTER_BUSY = 0.05

Step = Literal["claim", "due"] | float


def steps(core: Core, wait: int) -> Generator[Step, Any, list[T]]:
    """Look until something is claimed or ``wait`` microseconds are over; asked for work at least twice."""
    if core.steered is not None and core.steered.autojump:
        return (yield from _jumping(core, core.steered, wait))
    end = time.monotonic() + wait / MICROSECONDS
    while True:
        core.check_open()
        busy: EngineBusy | None = None
        claims: list[T] = []
        try:
            claims = yield "claim"
        except EngineBusy as error:
            busy = error
        remaining = end - time.monotonic()
        if claims:
            return claims
        if remaining <= 0:
            if busy is not None:
                raise busy
            return claims
        if busy is not None:
            yield min(remaining, _AFTER_BUSY)
        else:
            pause = yield from _pause(core)
            yield min(remaining, pause)


def _pause(core: Core) -> Generator[Step, Any, float]:
    """Seconds until the next look: until something is due, at most ``POLL``. A steered clock wakes by itself."""
    if core.steered is not None:
        return POLL
    return pause_until(core, (yield "due"))


def pause_until(core: Core, due: int | None) -> float:
    """Seconds to pause when the next thing is due at this instant, in microseconds: at most ``POLL`` (X7)."""
    if due is None:
        return POLL
    return min(POLL, max((due - core.engine.now()) / MICROSECONDS, _SHORTEST))


def _jumping(core: Core, clock: Any, wait: int) -> Generator[Step, Any, list[T]]:
    """C4: no real time passes; the clock jumps to the next due instant, or to the end of the wait."""
    now = core.engine.now
    end = now() + wait
    while True:
        core.check_open()
        claims: list[T] = yield "claim"
        if claims or now() >= end:
            return claims
        due: int | None = yield "due"
        clock.jump_to(end if due is None else min(due, end))


def drive(core: Core, address: str, wait: int, claim: Callable[[], list[T]], due: Callable[[], int | None]) -> list[T]:
    """Wait in this thread."""
    waiter = ThreadWaiter(address)
    core.wakeups.add(waiter)
    try:
        plan: Generator[Step, Any, list[T]] = steps(core, wait)
        step = next(plan)
        while True:
            if step == "claim":
                waiter.clear()
                try:
                    answer: Any = claim()
                except EngineBusy as error:
                    step = plan.throw(error)
                    continue
            elif step == "due":
                answer = due()
            else:
                waiter.wait(step)
                answer = None
            step = plan.send(answer)
    except StopIteration as end:
        claims: list[T] = end.value
        return claims
    finally:
        core.wakeups.remove(waiter)
