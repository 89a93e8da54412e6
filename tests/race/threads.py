"""Threads that start at one instant and whose errors are not lost."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 60.0


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls in threads that begin together; their results in order. The first error is raised here."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            gate.wait(PATIENCE)
            results[place] = calls[place]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"a thread did not end within {PATIENCE} s"
    if errors:
        raise errors[0]
    return results


@contextmanager
def switching_often(seconds: float = 5e-6) -> Iterator[None]:
    """Let the interpreter change threads in the middle of verbs, not only every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
