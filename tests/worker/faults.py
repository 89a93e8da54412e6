"""Faults put between the worker and its engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import rota


class Faults:
    """Verbs of a store's queues and transports that fail as long as ``fails`` says so; counts every call."""

    def __init__(self, store: rota.Store) -> None:
        self.fails: dict[str, Callable[[tuple[Any, ...]], BaseException | None]] = {}
        self.calls: dict[str, int] = {}
        self._lock = threading.Lock()
        engine: Any = store._core.engine
        for kind in ("queue", "transport"):
            setattr(engine, kind, self._wrapping(getattr(engine, kind)))

    def _wrapping(self, make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: _Faulty(make(*args), self)

    def times(self, verb: str, count: int, error: BaseException) -> None:
        """Let a verb fail so many times."""
        left = [count]

        def fail(args: tuple[Any, ...]) -> BaseException | None:
            left[0] -= 1
            return error if left[0] >= 0 else None

        self.fails[verb] = fail

    def called(self, verb: str, args: tuple[Any, ...]) -> None:
        with self._lock:
            self.calls[verb] = self.calls.get(verb, 0) + 1
            error = self.fails[verb](args) if verb in self.fails else None
        if error is not None:
            raise error


class _Faulty:
    def __init__(self, engine: Any, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._engine, verb)
        if not callable(real):
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self._faults.called(verb, args)
            return real(*args, **kwargs)

        return call
