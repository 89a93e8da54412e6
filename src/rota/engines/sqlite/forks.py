"""SQLite connections do not survive a fork: the child opens its own. What is open when the process ends is closed.

An inherited connection must never be closed in the child, not even when the interpreter ends: SQLite would believe it
holds the locks of the parent. So it is leaked, with a reference that nobody gives back.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Protocol

from rota.engines.sqlite import connecting
from rota.errors import RotaError


class _Forked(Protocol):
    def forked(self) -> None: ...

    def close(self) -> None: ...


_engines: weakref.WeakSet[Any] = weakref.WeakSet()
_leaked: list[object] = []


def watch(engine: _Forked) -> None:
    """Call ``engine.forked()`` in every child forked from here on."""
    _engines.add(engine)


def forget(engine: _Forked) -> None:
    """It is closed: a child has nothing to leak, and nothing is left to close."""
    _engines.discard(engine)


def leak(thing: object) -> None:
    """Keep an object for as long as the process lives, and beyond the interpreter's clean-up."""
    _leaked.append(thing)
    try:
        import ctypes
    except ImportError:
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    connecting.forked()
    for engine in list(_engines):
        engine.forked()


def _at_exit() -> None:
    """The last connection of all checkpoints when it closes, which has to be under the lock; sockets are removed."""
    for engine in list(_engines):
        try:
            engine.close()
        except RotaError:
            pass


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
