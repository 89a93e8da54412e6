"""What is put in order when this process forks (``os.fork``, ``multiprocessing``).

The child has one thread. A lock that another thread held would stay held in it for ever, and what the lock guards would
stay half done. So whoever has such locks takes them before a fork, and gives them back on both sides of it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

# How long a fork waits for what other threads are in the middle of, in seconds: in all, and at least for each lock, so
# that one that is never given back does not spoil the others.
PATIENCE = 10.0
_LEAST = 0.1


def left(deadline: float) -> float:
    """How many seconds to wait for a lock."""
    return max(deadline - time.monotonic(), _LEAST)


class Forking(Protocol):
    """Something with locks of its own."""

    def before_fork(self, deadline: float) -> None:
        """Take the locks, at the latest until ``time.monotonic()`` reaches the deadline."""

    def after_fork(self, *, child: bool) -> None:
        """Give them back. A child may find that ``before_fork`` was never called: not every fork is Python's."""


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_in_child: list[Callable[[], None]] = []
_prepared: list[Forking] = []
_turn = threading.RLock()


def watch(one: Forking) -> None:
    """Prepare it for every fork from here on, as long as it lives."""
    _watched.add(one)


def forget(one: Forking) -> None:
    """It is closed; quiet if it was not watched."""
    _watched.discard(one)


def in_child(act: Callable[[], None]) -> None:
    """Call ``act`` in every child, before anything that is watched."""
    _in_child.append(act)


def _before() -> None:
    deadline = time.monotonic() + PATIENCE
    # One fork at a time: two threads that took the locks in different orders would wait for each other.
    _turn.acquire()
    for one in list(_watched):
        _prepared.append(one)
        one.before_fork(deadline)


def _after_in_parent() -> None:
    try:
        while _prepared:
            _prepared.pop().after_fork(child=False)
    finally:
        _turn.release()


def _after_in_child() -> None:
    global _turn
    _turn = threading.RLock()
    _prepared.clear()
    for act in _in_child:
        act()
    for one in list(_watched):
        one.after_fork(child=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
