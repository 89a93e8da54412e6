"""One opened store, shared by its sync and its async facade."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rota import forks, names, rules
from rota.clock import SteeredClock
from rota.codecs import Codec
from rota.errors import StoreClosed

if TYPE_CHECKING:
    from rota.contract import Engine, QueueEngine, TransportEngine


class Chance(Protocol):
    """A source of chance for the backoff's jitter (Q8), like ``random.Random``."""

    def random(self) -> float: ...


class _Closed:
    """Stands in for a handle's engine once its store is closed: every verb raises ``StoreClosed``."""

    def __getattr__(self, verb: str) -> Any:
        raise StoreClosed(f"the store is closed, so {verb}() cannot be done: open it again with rota.open(url)")


_CLOSED: Any = _Closed()


class Handle(Protocol):
    """What the core needs to know of a handle of either facade."""

    _engine: Any


class Core:
    """An engine with the settings of one ``rota.open`` and the handles made from it."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: SteeredClock | None,
        rng: Chance,
        max_payload_bytes: int,
        codec: Codec | None,
        close: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.wakeups = engine.wakeups
        self.steered = clock
        self.rng = rng
        self.max_payload_bytes = max_payload_bytes
        self.codec = codec
        self.closed = False
        self._close = close
        self._lock = threading.Lock()
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()
        self._declared: dict[str, dict[str, Any]] = {}
        self._worker = (0, "")
        self._held_to_fork = False
        if clock is not None:
            clock.subscribe(self.clock_moved)
        forks.watch(self)

    def transport(self, name: str, declared: dict[str, Any]) -> TransportEngine:
        """The engine's side of a transport. Options in conflict within this store are refused at once (T11)."""
        with self._lock:
            self.check_open()
            self._declared[name] = rules.merge_options(name, self._declared.get(name, {}), declared)
            return self.engine.transport(name, declared)

    def configured(self, name: str, changes: dict[str, Any]) -> None:
        """Remember options changed through this store, so that new handles are compared with the new values."""
        with self._lock:
            self._declared[name] = self._declared.get(name, {}) | changes

    def queue(self, name: str) -> QueueEngine:
        """The engine's side of a queue."""
        self.check_open()
        return self.engine.queue(name)

    def adopt(self, handle: Handle) -> None:
        """Remember a handle, so that closing the store closes it too."""
        self._handles.add(handle)

    def worker_id(self) -> str:
        """The id of claims that name none: one for this store and process, also after a fork."""
        pid = os.getpid()
        if self._worker[0] != pid:
            self._worker = (pid, names.new_worker_id())
        return self._worker[1]

    def clock_moved(self) -> None:
        """A steered clock was moved: whoever waits looks again (C4)."""
        self.wakeups.wake_all()

    def before_fork(self, deadline: float) -> None:
        """Take the lock, so that no other thread is in the middle of what it guards."""
        self._held_to_fork = self._lock.acquire(timeout=forks.left(deadline))

    def after_fork(self, *, child: bool) -> None:
        """Give it back; a child has a new one."""
        held, self._held_to_fork = self._held_to_fork, False
        if child:
            self._lock = threading.Lock()
        elif held:
            self._lock.release()

    def check_open(self) -> None:
        """Raise ``StoreClosed`` after ``close``."""
        if self.closed:
            raise StoreClosed("the store is closed: open it again with rota.open(url)")

    def close(self) -> None:
        """Close every handle and waiter of this store; quiet when repeated. Not inside a transaction."""
        if self.engine.holders:
            self.engine.holders.check()
        with self._lock:
            if self.closed:
                return
            self.closed = True
            for handle in list(self._handles):
                handle._engine = _CLOSED
        self.wakeups.wake_all()
        self._close()
