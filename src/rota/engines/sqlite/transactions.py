"""Transactions of the engine (X1): the verbs of queues and transports, on a writer that stays in one transaction.

Each verb runs in a savepoint, so that one that fails leaves nothing; as a rule the transaction can go on after it.
"""

from __future__ import annotations

import asyncio
import copy
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota.clock import wall_clock
from rota.engines.sqlite.failures import is_busy, translated
from rota.engines.verb_lock import VerbLock
from rota.errors import RotaError, TransactionAborted, TransactionError
from rota.sql import channels
from rota.sql.drive import Cursor, Op, run

if TYPE_CHECKING:
    from rota.engines.sqlite.engine import SqliteEngine
    from rota.engines.sqlite.queue import SqliteQueue
    from rota.engines.sqlite.transport import SqliteTransport

P = ParamSpec("P")
T = TypeVar("T")

_VERB = "rota_verb"


class _Known:
    """Queues that are there for sure. What this transaction stores may yet be undone, by statements of the caller's."""

    def __init__(self, committed: set[str]) -> None:
        self._committed = committed

    def __contains__(self, name: object) -> bool:
        return name in self._committed

    def add(self, name: str) -> None: ...


class Verbs:
    """The verbs of one transaction. Stands in for the engine in copies of its queues and transports."""

    def __init__(self, engine: SqliteEngine) -> None:
        self.engine = engine
        self.path = engine.path
        self.known_queues = _Known(engine.known_queues)
        self._failed = False
        self._views: dict[int, tuple[Any, Any]] = {}

    def queue(self, queue: SqliteQueue) -> SqliteQueue:
        """Its verbs in this transaction."""
        view: SqliteQueue = self._view(queue)
        return view

    def transport(self, transport: SqliteTransport) -> SqliteTransport:
        """Its verbs in this transaction."""
        view: SqliteTransport = self._view(transport)
        return view

    def _view(self, original: Any) -> Any:
        known = self._views.get(id(original))
        if known is not None and known[0] is original:
            return known[1]
        view = copy.copy(original)
        view._engine = self
        self._views[id(original)] = original, view
        return view

    def write(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """An operation, as ``SqliteEngine.write`` takes it, in this transaction."""
        raise NotImplementedError

    def notify(self, channel: str, payload: str | None) -> None:
        """Store a notification (X6)."""
        self.write(lambda now: channels.notify(wall_clock(), channel, payload))

    def savepoint(self, name: str) -> None:
        self._command(f"SAVEPOINT {name}")

    def release(self, name: str) -> None:
        self._command(f"RELEASE {name}")

    def rollback_to(self, name: str) -> None:
        # What was noted in this transaction may be gone now.
        self._views.clear()
        try:
            self._command(f"ROLLBACK TO {name}")
            self._command(f"RELEASE {name}")
        except RotaError:
            # The transaction is over, or as good as that; whoever commits it is told.
            self._failed = True

    def _command(self, text: str) -> None:
        raise NotImplementedError

    def _guarded(self, cursor: Cursor, op: Callable[..., Op[T]], values: tuple[Any, ...]) -> T:
        """Run an operation in a savepoint."""
        cursor.execute(f"SAVEPOINT {_VERB}", ())
        try:
            result = run(op(self.engine.now(), *values), cursor)
        except BaseException:
            if self._in_transaction():
                cursor.execute(f"ROLLBACK TO {_VERB}", ())
                cursor.execute(f"RELEASE {_VERB}", ())
            raise
        cursor.execute(f"RELEASE {_VERB}", ())
        return result

    def _in_transaction(self) -> bool:
        raise NotImplementedError

    def _aborted(self, why: str) -> TransactionAborted:
        return TransactionAborted(f"{self.path}: {why}, so the transaction is rolled back: run it again")

    def _failure(self, error: sqlite3.Error) -> RotaError:
        """SQLite ends the transaction by itself at some failures; a busy one was never begun."""
        if not self._in_transaction() and not is_busy(error):
            self._failed = True
            return self._aborted(str(error))
        return translated(error, self.path)


class SqliteTransaction(Verbs):
    """One transaction on the engine's writer, whose lock it holds."""

    def __init__(self, engine: SqliteEngine, cursor: sqlite3.Cursor, lock: threading.Lock) -> None:
        super().__init__(engine)
        self._cursor = cursor
        self._lock = lock
        self.connection = cursor.connection
        self._process = os.getpid()
        self._is_over = False
        # Threads that use one transaction take turns.
        self._verb_lock = VerbLock()

    def write(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """An operation in this transaction."""
        return self._verb_lock.take(lambda: self._checked(lambda: self._guarded(self._cursor, op, values)))

    def _command(self, text: str) -> None:
        self._verb_lock.take(lambda: self._checked(lambda: self._cursor.execute(text)))

    def _checked(self, act: Callable[[], T]) -> T:
        self._check()
        try:
            return act()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise self._aborted("it is the parent's of this forked process")
        if self._failed or not self._in_transaction():
            raise self._over()

    def _over(self) -> RotaError:
        """SQLite ended it at a failure of a verb; or else a statement of the caller's did, one way or the other."""
        if self._failed:
            return self._aborted("a verb failed")
        return TransactionError(
            f"{self.path}: a statement of yours on tx.connection has ended this transaction, or closed it; leave that "
            "to the end of its block, or tx.rollback()"
        )

    def _in_transaction(self) -> bool:
        try:
            return self.connection.in_transaction
        except sqlite3.ProgrammingError:
            # Whoever was given the connection has closed it.
            return False

    def commit(self, then: Callable[[], None]) -> None:
        """Make it visible, and give the writer back."""
        if os.getpid() != self._process:
            raise self._aborted("it is the parent's of this forked process")
        whole = self._in_transaction() and not self._failed
        self._end(commit=whole)
        if not whole:
            raise self._over()
        then()

    def rollback(self) -> None:
        """Undo it, and give the writer back; quiet when it is over."""
        if os.getpid() == self._process:
            self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self.engine.end(self._cursor, self._lock, commit=commit)

    def abandon(self) -> None:
        """``rollback``."""
        self.rollback()

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a verb in the thread of transactions; it runs to its end even if its awaiting task is cancelled."""
        return asyncio.shield(self.engine.held_calls.call(verb, *args, **kwargs))

    def on_commit(self, act: Callable[[], None]) -> None:
        """Not asked: the facade knows when it commits."""
