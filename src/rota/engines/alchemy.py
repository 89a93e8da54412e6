"""SQLAlchemy's connections and sessions as both SQL engines use them (X4).

Everything goes through ``exec_driver_sql``: the transaction begins with the first statement that SQLAlchemy sees, and
with its asyncpg dialect no other way. SQLAlchemy itself is never imported: what is given brings it along.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from rota.engines.foreign import Kind
from rota.errors import RotaError, TransactionAborted, TransactionError

P = ParamSpec("P")
T = TypeVar("T")

_OPTIONS = {"preserve_rowcount": True}
# In the ``info`` of a session: so it goes when the session goes.
_KEY = "rota.after_commit"


class Lent:
    """A connection or session, as ``tx=`` was given it."""

    def __init__(self, given: Any, kind: Kind) -> None:
        self._given = given() if type(given).__name__ in ("scoped_session", "async_scoped_session") else given
        self._session = kind.session
        self._asynchronous = kind.asynchronous
        # The sync object behind an async one, while a verb runs.
        self._inner: Any = None if kind.asynchronous else self._given
        # SQLAlchemy's transaction on the connection that the last statement went over.
        self._transaction: Any = None

    @property
    def connection(self) -> Any:
        """SQLAlchemy's connection; a session takes one from its engine first."""
        return self._inner.connection() if self._session else self._inner

    @property
    def driver(self) -> Any:
        """The driver's own connection."""
        return self.connection.connection.driver_connection

    @property
    def dialect(self) -> tuple[str, str]:
        """The database and the driver, such as postgresql and asyncpg."""
        dialect = self.connection.dialect
        return dialect.name, dialect.driver

    def execute(self, text: str, values: Any) -> Any:
        """One statement, or one for each of a list of values; SQLAlchemy's result."""
        connection = self.connection
        result = connection.exec_driver_sql(text, values or None, execution_options=_OPTIONS)
        self._transaction = connection.get_transaction()
        return result

    def arun(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run something that uses this, for an async connection or session."""

        def inside(inner: Any) -> T:
            self._inner = inner
            try:
                return act(*args, **kwargs)
            finally:
                self._inner = None

        running: Awaitable[T] = self._given.run_sync(inside)
        return running

    def on_commit(self, act: Callable[[], None]) -> None:
        """Have ``act`` called after the commit, by a session.

        A connection of SQLAlchemy's tells of its commit before the database is asked for it, and of what comes later
        only listeners of its whole engine hear; adding one while the engine is in use, in another thread or task,
        breaks what SQLAlchemy does there.
        """
        if self._session and self._transaction is not None:
            session = self._given.sync_session if self._asynchronous else self._given
            gatherer = session.info.get(_KEY)
            if gatherer is None:
                gatherer = session.info[_KEY] = _Gatherer(session)
            gatherer.add(session, self._transaction, act)


def refusal(error: Exception) -> RotaError | None:
    """What SQLAlchemy refuses by itself, before any driver is asked; None for other errors."""
    kinds = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("sqlalchemy.")}
    if "InvalidRequestError" not in kinds:
        return None
    told = str(error.args[0]).rstrip(".") if error.args else type(error).__name__
    if "PendingRollbackError" in kinds:
        return TransactionAborted(f"{told}: the transaction is rolled back, run it again")
    if "UnboundExecutionError" in kinds:
        told = (
            "it is a session with several engines, or with none: give the connection to the store's database, as with "
            "tx=session.connection(bind_arguments={'mapper': Order})"
        )
    elif "MissingGreenlet" in kinds:
        told = (
            "it belongs to an async engine: use the async facade with the AsyncSession or AsyncConnection itself, or "
            "call this within its run_sync"
        )
    return TransactionError(f"tx= cannot be used here: {told}")


class _Gatherer:
    """What is to be done when a session commits; what was asked for in an undone savepoint is dropped with it."""

    def __init__(self, session: Any) -> None:
        self._root: Any = None
        # With the session's transaction and the connection's.
        self._acts: list[tuple[Any, Any, Callable[[], None]]] = []
        event = sys.modules["sqlalchemy"].event
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_soft_rollback", self._undone)

    def add(self, session: Any, real: Any, act: Callable[[], None]) -> None:
        root = session.get_transaction()
        if root is not self._root:
            # What is left was closed without a word.
            self._root, self._acts = root, []
        self._acts.append((session.get_nested_transaction() or root, real, act))

    def _committed(self, session: Any) -> None:
        # Savepoints are told of too.
        if session.in_nested_transaction() or session.get_transaction() is not self._root:
            return
        acts, self._acts, self._root = self._acts, [], None
        for _, real, act in acts:
            # A session may have joined a transaction that somebody else is going to end, one way or the other.
            if real.is_active:
                continue
            try:
                act()
            except Exception:
                # In the middle of the caller's own commit; what is to be done is a hint (X7).
                logging.getLogger("rota").warning("waking waiters after a commit failed", exc_info=True)

    def _undone(self, session: Any, previous: Any) -> None:
        self._acts = [one for one in self._acts if previous not in _line(one[0])]


def _line(transaction: Any) -> list[Any]:
    """A session's transaction and those it is nested in."""
    line = []
    while transaction is not None:
        line.append(transaction)
        transaction = transaction.parent
    return line
