"""Turns of transactional handlers: no more of them at once than their engine has transactions for, in the order they
came, threads and tasks alike. One that waits here holds nothing, and its claim is renewed meanwhile.

Where there is one writer, heartbeats take turns too, before all others: else their thread would wait in the engine for
as long as a handler takes, and see nobody's timeout.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

# A thread that waits for its turn looks this often whether it is still wanted.
_LOOK = 0.1


class Turn:
    """A place in the row: ``mine`` once it came."""

    __slots__ = ("mine", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.mine = False


class Turns:
    """The row before one engine."""

    def __init__(self, at_once: int) -> None:
        self._lock = threading.Lock()
        self.at_once = at_once
        self._free = at_once
        self._row: deque[Turn] = deque()
        self.process = os.getpid()

    def wait(self, wanted: Callable[[], bool]) -> Turn | None:
        """Wait in this thread; what to give ``leave``, None once it is not wanted any more."""
        came = threading.Event()
        turn = self.ask(came.set)
        try:
            while not turn.mine:
                if not wanted():
                    self.leave(turn)
                    return None
                came.wait(_LOOK)
        except BaseException:
            self.leave(turn)
            raise
        return turn

    async def await_turn(self) -> Turn:
        """Wait in this task."""
        loop, came = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(came.set)

        turn = self.ask(wake)
        try:
            if not turn.mine:
                await came.wait()
        except BaseException:
            self.leave(turn)
            raise
        return turn

    def ask(self, wake: Callable[[], None], *, first: bool = False) -> Turn:
        """A turn: taken already, or one that ``wake`` tells of, which must not wait. ``first``: before all others."""
        turn = Turn(wake)
        with self._lock:
            if self._free:
                self._free -= 1
                turn.mine = True
            elif first:
                self._row.appendleft(turn)
            else:
                self._row.append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """Its turn is over, or it waits no more."""
        with self._lock:
            if not turn.mine:
                if turn in self._row:
                    self._row.remove(turn)
                return
            turn.mine = False
            while self._row:
                following = self._row.popleft()
                following.mine = True
                try:
                    following.wake()
                except RuntimeError:
                    # Its loop is closed.
                    following.mine = False
                    continue
                return
            self._free += 1


_all: weakref.WeakKeyDictionary[Any, Turns] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def turns(engine: Any) -> Turns | None:
    """The row before an engine, None where there is room for all."""
    if engine.transactions_at_once is None:
        return None
    with _making:
        found = _all.get(engine)
        # A forked child has none of its parent's transactions.
        if found is None or found.process != os.getpid():
            found = _all[engine] = Turns(engine.transactions_at_once)
        return found
