"""Signals that stop a worker in the main thread; the earlier handlers come back afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rota.worker.coroutines import Leave
from rota.worker.runtime import Runtime

_NUMBERS = [signal.SIGTERM, signal.SIGINT]
# A terminal that closes. Many programs have a use of their own for it, which stays.
_HANGUP = getattr(signal, "SIGHUP", None)


class Ears:
    """The signals that came in one run, from its beginning on, also while it waits for its store."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.listening = False
        self._runtime: Runtime | None = None
        self._blocked = False

    def tell(self, runtime: Runtime) -> None:
        """From here on signals are this runtime's orders; what came before is in ``numbers``."""
        self._runtime = runtime
        if self.listening and hasattr(signal, "pthread_kill"):
            runtime.on_blocked = self._break_off

    def forget(self) -> None:
        """Its runtime has ended, and breaks nothing off any more."""
        if self._runtime is not None:
            self._runtime.on_blocked = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Nothing here may take a lock: it comes in the middle of anything."""
        if self._blocked:
            raise Leave
        self.numbers.append(number)
        if self._runtime is not None:
            self._runtime.orders.put("signal")

    def _break_off(self) -> None:
        self._blocked = True
        # Everything is given back. What blocks the main thread is broken off there, by a signal to ourselves.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


@contextmanager
def heard(wanted: bool) -> Iterator[Ears]:
    """Within this block a signal stops the worker, a second one at once. Elsewhere than in the main thread: nothing."""
    ears = Ears()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield ears
        return
    ears.listening = True
    earlier: dict[signal.Signals, Any] = {}
    try:
        for number in _heeded():
            earlier[number] = signal.signal(number, ears.on_signal)
        yield ears
    finally:
        ears.forget()
        for number, handler in earlier.items():
            # None: it was not set by Python, and cannot be set back by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _heeded() -> list[signal.Signals]:
    """What the parent made us ignore (nohup, a shell's background job) stays ignored."""
    heeded = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    if _HANGUP is not None and signal.getsignal(_HANGUP) is signal.SIG_DFL:
        heeded.append(_HANGUP)
    return heeded
