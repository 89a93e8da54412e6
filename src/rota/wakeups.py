"""Wake-ups (X7) and channels (X6) within one process.

Wake-ups are hints. A waiter is registered *before* it looks for work, so that nothing published between its look and
its sleep is missed; whoever makes something claimable calls ``wake``. No thread is started here. Engines that reach
other processes extend ``Wakeups``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol


def queue_address(name: str) -> str:
    """Where waiters of a queue wait."""
    return "q:" + name


def transport_address(name: str) -> str:
    """Where waiters of a transport wait."""
    return "t:" + name


def channel_address(channel: str) -> str:
    """Where listeners of a channel wait."""
    return "c:" + channel


class Waiter(Protocol):
    """One place to sleep at an address: ``clear``, look for work, then wait."""

    address: str

    def clear(self) -> None: ...

    def wake(self) -> None: ...


class ThreadWaiter:
    """A waiter for a thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._event = threading.Event()
        self.clear = self._event.clear
        self.wake = self._event.set

    def wait(self, seconds: float) -> None:
        """Sleep until woken, or for ``seconds`` of real time."""
        self._event.wait(seconds)


class Wakeups:
    """The waiters of one engine, by address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[Waiter]] = {}
        self.closed = False

    def add(self, waiter: Waiter) -> None:
        """Register a waiter; from here on no wake-up of its address is missed."""
        with self._lock:
            # Copy on write: ``wake`` reads these lists without the lock.
            self._waiters[waiter.address] = [*self._waiters.get(waiter.address, ()), waiter]

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out; quiet if it is not there."""
        with self._lock:
            rest = [other for other in self._waiters.get(waiter.address, ()) if other is not waiter]
            if rest:
                self._waiters[waiter.address] = rest
            else:
                self._waiters.pop(waiter.address, None)

    def wake(self, address: str) -> None:
        """Wake whoever waits at ``address``, here and wherever the engine can reach; called after the commit."""
        if self._waiters:
            self.wake_here(address)

    def wake_here(self, address: str) -> None:
        """Wake the waiters of this process at ``address``."""
        for waiter in self._waiters.get(address, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake every waiter of this process: the clock was moved, or nobody knows what happened."""
        with self._lock:
            everybody = [waiter for waiters in self._waiters.values() for waiter in waiters]
        for waiter in everybody:
            waiter.wake()

    def forked(self) -> None:
        """In a forked child: whoever held the lock is not here."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wake everybody for good: waiters see ``closed`` and raise ``StoreClosed`` (X8)."""
        self.closed = True
        self.wake_all()


class ChannelQueue:
    """A ``Subscription`` of this process: what was notified since the last ``take``, oldest first (X6).

    At most ``LIMIT`` payloads wait for a listener that does not listen; the oldest are dropped first (at most once).
    """

    LIMIT = 100_000

    def __init__(self, close: Callable[[ChannelQueue], None]) -> None:
        self._payloads: deque[str | None] = deque(maxlen=self.LIMIT)
        self._close = close

    def put(self, payload: str | None) -> None:
        """Add one payload."""
        self._payloads.append(payload)

    def take(self) -> list[str | None]:
        """Everything that arrived since the last call."""
        taken: list[str | None] = []
        while self._payloads:
            taken.append(self._payloads.popleft())
        return taken

    def close(self) -> None:
        """Stop receiving; quiet when closed already."""
        self._close(self)
