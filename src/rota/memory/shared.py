"""What all queues and transports of one memory store share: the lock, the clock, the counters and the cap."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rota.clock import wall_clock
from rota.errors import EngineFull, EngineUnavailable, RotaError, StoreClosed
from rota.holders import Holders

_serials = itertools.count(1)


class Shared:
    """One memory store's data, less its queues and transports."""

    __slots__ = (
        "items",
        "lock",
        "max_items",
        "next_id",
        "next_letter",
        "next_seq",
        "next_token",
        "now",
        "on_wall_clock",
        "reading",
        "serial",
        "url",
    )

    def __init__(self, url: str, now: Callable[[], int], max_items: int | None) -> None:
        self.url = url
        self.now = now
        self.on_wall_clock = now is wall_clock
        self.max_items = max_items
        self.items = 0
        """Everything kept: live jobs and messages, done records, dead letters."""
        # Reentrant: a signal handler or finaliser that comes in the middle of a verb and uses the store does not hang.
        # And ``release`` knows its owner: try/acquire/finally/release is as safe as ``with`` then, at half the cost.
        self.lock: Any = threading.RLock()
        # For verbs that only look, and for those of transactions: the lock itself also while writes are guarded.
        self.reading: Any = self.lock
        self.serial = next(_serials)
        # One counter for tokens and turns, so that the order of claims is the order of tokens (T3, T6).
        self.next_token = itertools.count(1).__next__
        self.next_seq = itertools.count(1).__next__
        self.next_id = itertools.count(1).__next__
        self.next_letter = itertools.count(1).__next__

    def make_room(self, more: int) -> None:
        """Refuse what would go over the cap; called before any effect."""
        if self.max_items is not None and self.items + more > self.max_items:
            raise EngineFull(
                f"{self.url} holds {self.items} items and takes at most max_items={self.max_items}, "
                f"so {more} more were refused: settle, purge or sweep some, or open it with a higher max_items"
            )

    def guard(self, holders: Holders) -> None:
        """While a transaction is open, writes of whoever holds it are refused (X1), at no cost at other times."""
        if not isinstance(self.lock, _Refusing):
            self.lock = _Guarding(self, holders) if holders else self.reading

    def close(self) -> None:
        """Every later verb raises ``StoreClosed``: it finds this instead of the lock, at no cost while open."""
        self.lock = self.reading = _Refusing(StoreClosed, f"{self.url} is closed: open the store again")

    def refuse(self) -> None:
        """In a child forked while another thread was in the middle of a verb: the data may be half changed."""
        self.lock = self.reading = _Refusing(
            EngineUnavailable,
            f"this process was forked while another thread was in the middle of a call to {self.url}, so its copy of "
            "the store is of no use: open one after the fork",
        )


class _Guarding:
    """Stands in the place of the lock while a transaction is open, and takes itself away after it."""

    def __init__(self, shared: Shared, holders: Holders) -> None:
        self._shared = shared
        self._lock = shared.reading
        self._holders = holders

    def acquire(self) -> None:
        self._holders.check()
        self._lock.acquire()
        if not self._holders and self._shared.lock is self:
            self._shared.lock = self._lock

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()


class _Refusing:
    """Stands in the place of the lock of a store that cannot be used."""

    def __init__(self, kind: type[RotaError], why: str) -> None:
        self._kind = kind
        self._why = why

    def acquire(self) -> None:
        raise self._kind(self._why)

    def release(self) -> None: ...

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
