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


@contextmanager
def heard_by(runtime: Runtime, wanted: bool) -> Iterator[None]:
    """Within this block a signal stops the worker, a second one at once. Elsewhere than in the main thread: nothing."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    blocked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock: it comes in the middle of anything.
        if blocked:
            raise Leave
        runtime.signals.append(number)
        runtime.orders.put("signal")

    def on_blocked() -> None:
        nonlocal blocked
        blocked = True
        # Everything is given back. What blocks the main thread is broken off there, by a signal to ourselves.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    earlier: dict[signal.Signals, Any] = {}
    if hasattr(signal, "pthread_kill"):
        runtime.on_blocked = on_blocked
    try:
        for number in _heeded():
            earlier[number] = signal.signal(number, on_signal)
        yield
    finally:
        runtime.on_blocked = None
        for number, handler in earlier.items():
            # None: it was not set by Python, and cannot be set back by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _heeded() -> list[signal.Signals]:
    """What the parent made us ignore (nohup, a shell's background job) stays ignored."""
    heeded = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    if _HANGUP is not None and signal.getsignal(_HANGUP) is signal.SIG_DFL:
        heeded.append(_HANGUP)
    return heeded
