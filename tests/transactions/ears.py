"""Who is woken: everything a store tells of, and waiters of several kinds while nothing is committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import rota
from rota.wakeups import channel_address, queue_address, transport_address

ADDRESSES = (queue_address("q"), transport_address("t"), transport_address("undone"), channel_address("c"))


class Told:
    """Every address that a store is told to wake, at once: what is told in a transaction is told by its end."""

    def __init__(self, store: Any) -> None:
        self.addresses: list[str] = []
        wakeups = store._core.wakeups
        wake: Callable[[str], None] = wakeups.wake

        def told(address: str) -> None:
            self.addresses.append(address)
            wake(address)

        wakeups.wake = told

    def since_last(self) -> list[str]:
        found, self.addresses[:] = list(self.addresses), []
        return found


class _Waiter:
    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0

    def clear(self) -> None: ...

    def wake(self) -> None:
        self.count += 1


class Ears:
    """Waiters of the store itself and of another one on the same database; on PostgreSQL also a bare LISTEN."""

    def __init__(self, store: Any, url: str) -> None:
        self._stores = [store, rota.open(url)]
        self._waiters = [[_Waiter(address) for address in ADDRESSES] for _ in self._stores]
        for one, waiters in zip(self._stores, self._waiters, strict=True):
            for waiter in waiters:
                one._core.wakeups.add(waiter)
        self._listening: Any = None
        if url.startswith("postgresql"):
            import psycopg

            self._listening = psycopg.connect(url, autocommit=True)
            channel = store._core.engine._listening.channel
            self._listening.execute(f'LISTEN "{channel}"')
        # Until whoever listens has begun to.
        time.sleep(0.3)
        self.heard()

    def heard(self) -> int:
        """How many wake-ups there were since the last call."""
        time.sleep(0.3)
        count = 0
        for waiter in (waiter for waiters in self._waiters for waiter in waiters):
            count += waiter.count
            waiter.count = 0
        if self._listening is not None:
            # A listener's messages to itself are no wake-ups.
            found = self._listening.notifies(timeout=0.05)
            count += sum(not one.payload.startswith("t") for one in found)
        return count

    def __enter__(self) -> Ears:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for one, waiters in zip(self._stores, self._waiters, strict=True):
            for waiter in waiters:
                one._core.wakeups.remove(waiter)
        self._stores[1].close()
        if self._listening is not None:
            self._listening.close()
