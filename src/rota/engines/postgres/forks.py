"""Connections do not survive a fork: the child opens its own.

An inherited connection must never say goodbye in the child, not even when the interpreter ends: the server would end
the parent's session. So it is leaked, with a reference that nobody gives back.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol


class _Forked(Protocol):
    def forked(self) -> None: ...


_engines: weakref.WeakSet[Any] = weakref.WeakSet()
_leaked: list[object] = []


def watch(engine: _Forked) -> None:
    """Call ``engine.forked()`` in every child forked from here on."""
    _engines.add(engine)


def forget(engine: _Forked) -> None:
    """It is closed: a child has nothing to leak."""
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
    for engine in list(_engines):
        engine.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
