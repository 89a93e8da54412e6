"""A worker that runs in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import rota


class Running:
    """One run; ``stop`` raises what it raised."""

    def __init__(self, worker: rota.Worker, **options: Any) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(options,), daemon=True)
        self._thread.start()
        # One with a URL may have to wait for its store.
        until(self._has_begun)

    def _run(self, options: dict[str, Any]) -> None:
        try:
            self.worker.run(**options)
        except BaseException as error:
            self.error = error

    def _has_begun(self) -> bool:
        opening = "opening" if isinstance(self.worker._store, str) else None
        return self.worker.health().state in ("working", opening) or not self.alive

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float = 15) -> None:
        """Wait for its end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the worker did not end"

    def stop(self, *, now: bool = False) -> None:
        """Stop it and wait for its end."""
        self.worker.stop(now=now)
        self.join()
        error, self.error = self.error, None
        if error is not None:
            raise error


def until(true: Callable[[], Any], seconds: float = 15) -> Any:
    """Wait until it is true; what it gave."""
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.002)
    return value


_NAMES = tuple(
    f"rota-{part}" for part in ("fetch", "settle", "beats", "supervisor", "housekeeping", "queue", "transport")
)


def worker_threads() -> list[str]:
    """Threads of workers that are there now, by name."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(_NAMES))
