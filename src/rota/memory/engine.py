"""The memory engine as a whole: its queues and transports by name, channels (X6), and stores shared by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota import forks
from rota.errors import StoreClosed
from rota.holders import Holders
from rota.memory.queue import MemoryQueue
from rota.memory.queue_state import QueueState
from rota.memory.shared import Shared
from rota.memory.transport import MemoryTransport
from rota.memory.transport_state import TransportState
from rota.wakeups import ChannelQueue, Wakeups

if TYPE_CHECKING:
    from rota.contract import EngineTransaction
    from rota.memory.transactions import MemoryTransaction

P = ParamSpec("P")
T = TypeVar("T")


class MemoryEngine:
    """``rota.contract.Engine`` in this process's memory. Starts no thread; everything is lost when it closes."""

    durable = False
    transactions_at_once: int | None = None

    def __init__(
        self, url: str, *, name: str | None = None, now: Callable[[], int], max_items: int | None = None
    ) -> None:
        self.url = url
        self.name = name
        self.now = now
        self.wakeups = Wakeups()
        self.holders = Holders()
        self.shared = Shared(url, now, max_items)
        self.transport_states: dict[str, TransportState] = {}
        self.queue_states: dict[str, QueueState] = {}
        self._channels: dict[str, list[ChannelQueue]] = {}
        # The lock itself, also when the store is closed and ``shared.lock`` stands for that.
        self._lock = self.shared.lock
        self._closed = False
        self._held_to_fork = False
        forks.watch(self)

    def before_fork(self, deadline: float) -> None:
        """Let the verbs of other threads end: the child gets a whole copy."""
        self._held_to_fork = self._lock.acquire(timeout=forks.left(deadline))

    def after_fork(self, *, child: bool) -> None:
        """Go on: on either side the thread that forked has the lock, or the child has half of what another did."""
        held, self._held_to_fork = self._held_to_fork, False
        if child:
            self.wakeups.forked()
            self.holders.forked()
            self.shared.guard(self.holders)
            if not held and not self._closed:
                held = self._lock.acquire(blocking=False)
                if not held:
                    self.shared.refuse()
                    self._lock = threading.RLock()
        if held:
            self._lock.release()

    def transport(self, name: str, declared: dict[str, Any]) -> MemoryTransport:
        """A handle's transport; does nothing yet (T11)."""
        self._check_open()
        return MemoryTransport(self, name, declared)

    def queue(self, name: str) -> MemoryQueue:
        """A handle's queue; does nothing yet."""
        self._check_open()
        return MemoryQueue(self, name)

    def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""
        with self.shared.reading:
            return sorted(self.transport_states)

    def queues(self) -> list[str]:
        """Names of the queues that exist, sorted."""
        with self.shared.reading:
            return sorted(self.queue_states)

    def notify(self, channel: str, payload: str | None) -> None:
        """Hand the payload to everyone subscribed now (X6)."""
        with self.shared.lock:
            self.tell(channel, payload)

    def tell(self, channel: str, payload: str | None) -> None:
        """``notify`` under the lock."""
        for subscription in self._channels.get(channel, ()):
            subscription.put(payload)

    def subscribe(self, channel: str) -> ChannelQueue:
        """A place to which notifications of the channel go from here on."""

        def leave(subscription: ChannelQueue) -> None:
            with self._lock:
                rest = [other for other in self._channels.get(channel, ()) if other is not subscription]
                if rest:
                    self._channels[channel] = rest
                else:
                    self._channels.pop(channel, None)

        subscription = ChannelQueue(leave)
        with self.shared.reading:
            self._channels[channel] = [*self._channels.get(channel, ()), subscription]
        return subscription

    def begin(self) -> MemoryTransaction:
        """A transaction: what it does is kept until it is committed."""
        from rota.memory.transactions import MemoryTransaction

        with self.shared.reading:
            self.shared.guard(self.holders)
        return MemoryTransaction(self)

    async def abegin(self) -> MemoryTransaction:
        """``begin``, straight through."""
        return self.begin()

    def adopt(self, connection: Any, *, asynchronous: bool) -> EngineTransaction:
        """No connection leads here."""
        raise TypeError(
            f"tx= must be a transaction of {self.url}, as store.transaction() gives it, got {type(connection).__name__}"
        )

    async def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb straight through: none of them waits for anything but the lock, held for microseconds."""
        return verb(*args, **kwargs)

    async def acall_or_undo(self, verb: Callable[..., T], undo: Callable[[T], object], *args: Any) -> T:
        """Like ``acall``: no task can be cancelled in the middle of it, so nothing is ever undone."""
        return verb(*args)

    def facts(self) -> dict[str, Any]:
        """What ``rota doctor`` prints."""
        with self.shared.reading:
            return {
                "engine": "memory",
                "durability": "none: everything is lost when the process ends or the store closes",
                "shared": self.name is not None,
                "items": self.shared.items,
                "max_items": self.shared.max_items,
                "queues": len(self.queue_states),
                "transports": len(self.transport_states),
            }

    def close(self) -> None:
        """Drop the data; later verbs raise ``StoreClosed``. Quiet when repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.shared.close()
            self.transport_states = {}
            self.queue_states = {}
            self._channels = {}
        forks.forget(self)
        self.wakeups.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} is closed: open the store again")


class _Named:
    """A store shared by name, and how many have it open."""

    def __init__(self, engine: MemoryEngine, clock: object) -> None:
        self.engine = engine
        self.clock = clock
        self.users = 0


_named: dict[str, _Named] = {}
_named_lock = threading.Lock()


def _forked() -> None:
    """In a forked child: whoever held the lock is not here."""
    global _named_lock
    _named_lock = threading.Lock()


forks.in_child(_forked)


def open_memory(
    name: str | None, *, url: str, now: Callable[[], int], clock: object = None, max_items: int | None = None
) -> tuple[MemoryEngine, Callable[[], None]]:
    """Open ``memory://`` (no name: private) or ``memory://name`` (shared in the process until its last user closes).

    Returns the engine and what closes this user's part in it. ``now`` reads ``clock`` (None: the wall clock). Raises
    ``ValueError`` when the name is open with another clock or another ``max_items``.
    """
    if name is None:
        engine = MemoryEngine(url, now=now, max_items=max_items)
        return engine, engine.close
    with _named_lock:
        shared = _named.get(name)
        if shared is None:
            engine = MemoryEngine(url, name=name, now=now, max_items=max_items)
            shared = _named[name] = _Named(engine, clock)
        if shared.clock is not clock:
            raise ValueError(
                f"memory store {name!r} is open with clock={shared.clock!r}, this call says clock={clock!r}: "
                "give all who share it the same clock object"
            )
        if shared.engine.shared.max_items != max_items:
            raise ValueError(
                f"memory store {name!r} is open with max_items={shared.engine.shared.max_items!r}, this call says "
                f"max_items={max_items!r}: give all who share it the same value"
            )
        shared.users += 1
    return shared.engine, _closer(name, shared)


def _closer(name: str, shared: _Named) -> Callable[[], None]:
    open_still = [True]

    def close() -> None:
        with _named_lock:
            if not open_still:
                return
            open_still.clear()
            shared.users -= 1
            last = not shared.users
            if last:
                del _named[name]
        if last:
            shared.engine.close()
        else:
            # Waiters of the store that closes look up and see it.
            shared.engine.wakeups.wake_all()

    return close
