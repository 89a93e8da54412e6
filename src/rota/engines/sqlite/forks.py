"""SQLite connections do not survive a fork. What is open when the process ends is closed.

A child that has inherited a connection cannot use its file in any way: SQLite keeps one account of the locks on a file
for all connections of a process, and in the child that account speaks of locks which only the parent has. A connection
opened there takes none, so others believe they are alone and throw the log away with all that the child has committed.
So the connections are closed before a fork, and both sides open new ones. Where that could not be done the child
leaks what it inherited, with a reference that nobody gives back, and refuses the file.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Protocol

from rota import forks
from rota.engines.sqlite import connecting
from rota.errors import RotaError


class _Engine(forks.Forking, Protocol):
    def close(self) -> None: ...


_engines: weakref.WeakSet[Any] = weakref.WeakSet()
_leaked: list[object] = []


def watch(engine: _Engine) -> None:
    """Prepare the engine for every fork from here on, and close it at exit."""
    _engines.add(engine)
    forks.watch(engine)


def forget(engine: _Engine) -> None:
    """It is closed."""
    _engines.discard(engine)
    forks.forget(engine)


def leak(thing: object) -> None:
    """Keep an object for as long as the process lives, and beyond the interpreter's clean-up."""
    _leaked.append(thing)
    try:
        import ctypes
    except ImportError:
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _at_exit() -> None:
    """The last connection of all checkpoints when it closes, which has to be under the lock; sockets are removed."""
    for engine in list(_engines):
        try:
            engine.close()
        except RotaError:
            pass


atexit.register(_at_exit)
forks.in_child(connecting.forked)
