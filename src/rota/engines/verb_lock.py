"""Threads that use one transaction take turns with its connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from rota.errors import TransactionError

T = TypeVar("T")


class VerbLock:
    """One verb at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = False

    def take(self, act: Callable[[], T]) -> T:
        """Do this alone. In the middle of another verb of the same thread, as in a signal's handler, it is refused."""
        with self._lock:
            if self._inside:
                raise TransactionError(
                    "a verb of this transaction is under way in this very thread: call it afterwards"
                )
            self._inside = True
            try:
                return act()
            finally:
                self._inside = False
