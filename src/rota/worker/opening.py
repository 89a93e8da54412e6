"""Opening the store of a URL for a run: waited for while it cannot be reached, until the worker is told to stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import rota.sync.store as stores
from rota.errors import EngineBusy, EngineUnavailable
from rota.sync.store import Store
from rota.worker import plan
from rota.worker.logs import INFO, WARNING, tell

# How soon a stop is noticed.
_LOOK = 0.05


async def opened(url: str, told: Callable[[], bool]) -> Store | None:
    """The store; None when told to stop meanwhile. What waiting does not help with is raised."""
    if url.lower().startswith("memory:"):
        return None if told() else stores.open(url)
    tries = 0
    while not told():
        try:
            store = await _Attempt(url).result(told)
        except (EngineUnavailable, EngineBusy) as error:
            if isinstance(error, EngineUnavailable) and error.lasting:
                raise
            tries += 1
            if tries & (tries - 1) == 0:
                tell(WARNING, "store_failing", tries=tries, error=f"{type(error).__name__}: {error}")
            pause_ends = time.monotonic() + plan.outage_pause(tries, (time.monotonic() * 1_000) % 1)
            # A stop comes from another thread, or as a signal.
            while not told() and (pause := pause_ends - time.monotonic()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(min(pause, _LOOK))
        else:
            if tries and store is not None:
                tell(INFO, "store_back")
            return store
    return None


class _Attempt:
    """One try, in a thread of its own. A store that is opened when nobody waits for it any more is closed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._wanted = True
        self._store: Store | None = None
        self._error: BaseException | None = None

    async def result(self, told: Callable[[], bool]) -> Store | None:
        """The store, or what opening it raised; None when told to stop first."""
        threading.Thread(target=self._open, name="rota-opening", daemon=True).start()
        try:
            while not self._ended.done() and not told():
                await asyncio.wait([self._ended], timeout=_LOOK)
            with self._lock:
                if self._error is not None:
                    raise self._error
                if told():
                    return None
                store, self._store = self._store, None
                return store
        finally:
            with self._lock:
                self._wanted = False
                self._close()

    def _open(self) -> None:
        try:
            store = stores.open(self._url)
        except BaseException as error:
            self._error = error
        else:
            with self._lock:
                self._store = store
                if not self._wanted:
                    self._close()
        try:
            self._loop.call_soon_threadsafe(self._tell_ended)
        except RuntimeError:
            # The loop is closed: nobody waits.
            pass

    def _tell_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()
