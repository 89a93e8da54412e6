"""Waiting in a task of an event loop: the twin of ``rota.wakeups.ThreadWaiter`` and ``rota.facade.waiting.drive``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from rota.errors import EngineBusy
from rota.facade.core import Core
from rota.facade.waiting import Step, steps

T = TypeVar("T")


class LoopWaiter:
    """A waiter for a task of the running event loop; woken from any thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self.clear = self._event.clear

    def wake(self) -> None:
        """Wake the task; a loop that is closed has nobody left to wake."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass

    async def wait(self, seconds: float) -> None:
        """Await until woken, or for ``seconds`` of real time."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass


async def adrive(
    core: Core,
    address: str,
    wait: int,
    claim: Callable[[], Awaitable[list[T]]],
    due: Callable[[], Awaitable[int | None]],
) -> list[T]:
    """Wait in this task."""
    waiter = LoopWaiter(address)
    core.wakeups.add(waiter)
    plan: Generator[Step, Any, list[T]] = steps(core, wait)
    try:
        step = next(plan)
        while True:
            if step == "claim":
                waiter.clear()
                try:
                    answer: Any = await claim()
                except EngineBusy as error:
                    step = plan.throw(error)
                    continue
            elif step == "due":
                answer = await due()
            else:
                await waiter.wait(step)
                answer = None
            step = plan.send(answer)
    except StopIteration as end:
        claims: list[T] = end.value
        return claims
    finally:
        core.wakeups.remove(waiter)
