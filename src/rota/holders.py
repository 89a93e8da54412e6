"""Who holds an open transaction of a store (X1): a thread, or a task.

A write on the same store without ``tx=`` from whoever holds a transaction would wait for itself, or slip out of the
transaction unnoticed. So engines ask here: only while a transaction is open, so that it costs nothing otherwise.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from rota.errors import TransactionError

P = ParamSpec("P")
T = TypeVar("T")


def current_task() -> Any | None:
    """The task running in this thread, if asyncio is in use at all."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Holders:
    """The threads and tasks that hold transactions of one engine. True while there are any."""

    def __init__(self) -> None:
        self._held: set[Any] = set()
        self._elsewhere = threading.local()

    def __bool__(self) -> bool:
        return bool(self._held)

    def check_free(self) -> None:
        """Refuse a second transaction of whoever holds one."""
        if self.here():
            raise TransactionError(
                "this thread or task holds a transaction of this store already: use that one, or tx.savepoint()"
            )

    def enter(self, holder: Any) -> None:
        """This thread's number, or task, begins a transaction."""
        self._held.add(holder)

    def leave(self, holder: Any) -> None:
        """Its transaction is over; quiet when repeated."""
        self._held.discard(holder)

    def here(self) -> bool:
        """Whether this thread, or the task running in it, holds a transaction."""
        held = self._held
        if not held:
            return False
        if threading.get_ident() in held or getattr(self._elsewhere, "holds", False):
            return True
        task = current_task()
        return task is not None and task in held

    def check(self) -> None:
        """Refuse a write without ``tx=`` by whoever holds a transaction."""
        if self.here():
            raise TransactionError(
                "this thread or task holds an open transaction of this store: give the verb tx=, or call it after the "
                "transaction (claims take no tx=: claim before it)"
            )

    def for_task(self, verb: Callable[P, T]) -> Callable[P, T]:
        """The verb, to be run in another thread for the task running here: it counts as that task."""
        if not self.here():
            return verb

        def as_holder(*args: P.args, **kwargs: P.kwargs) -> T:
            self._elsewhere.holds = True
            try:
                return verb(*args, **kwargs)
            finally:
                self._elsewhere.holds = False

        return as_holder

    def forked(self) -> None:
        """In a forked child: the transactions are the parent's."""
        self._held.clear()
