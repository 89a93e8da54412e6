"""SQLAlchemy's connections and sessions as both SQL engines use them (X4).

Everything goes through ``exec_driver_sql``: the transaction begins with the first statement that SQLAlchemy sees, and
with its asyncpg dialect no other way. SQLAlchemy itself is never imported: what is given brings it along.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from rota.engines.foreign import Kind
from rota.errors import RotaError

P = ParamSpec("P")
T = TypeVar("T")

_OPTIONS = {"preserve_rowcount": True}


class Lent:
    """A connection or session, as ``tx=`` was given it."""

    def __init__(self, given: Any, kind: Kind) -> None:
        self._given = given() if type(given).__name__ in ("scoped_session", "async_scoped_session") else given
        self._session = kind.session
        self._asynchronous = kind.asynchronous
        # The sync object behind an async one, while a verb runs.
        self._inner: Any = None if kind.asynchronous else self._given
        self._used: Any = None

    @property
    def connection(self) -> Any:
        """SQLAlchemy's connection; a session takes one from its engine first."""
        self._used = self._inner.connection() if self._session else self._inner
        return self._used

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
        return self.connection.exec_driver_sql(text, values or None, execution_options=_OPTIONS)

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
        """A session tells when it has committed; a connection tells before, which is of no use."""
        if self._session:
            session = self._given.sync_session if self._asynchronous else self._given
            gatherer = _gatherers.get(session)
            if gatherer is None:
                gatherer = _gatherers[session] = _Gatherer(session)
            gatherer.add(session, self._used, act)


class _Gatherer:
    """What is to be done when a session commits; what was asked for in an undone savepoint is dropped with it."""

    def __init__(self, session: Any) -> None:
        self._acts: list[tuple[Any, Any, Callable[[], None]]] = []
        event = sys.modules["sqlalchemy"].event
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_soft_rollback", self._undone)

    def add(self, session: Any, connection: Any, act: Callable[[], None]) -> None:
        self._acts.append((session.get_nested_transaction() or session.get_transaction(), connection, act))

    def _committed(self, session: Any) -> None:
        # Savepoints are told of too.
        if session.in_nested_transaction():
            return
        root = session.get_transaction()
        acts, self._acts = self._acts, []
        for transaction, connection, act in acts:
            # What belongs to another one was closed without a word. And a session that was bound to a connection in a
            # transaction has not committed that one.
            if root in _line(transaction) and not connection.in_transaction():
                try:
                    act()
                except RotaError:
                    pass

    def _undone(self, session: Any, previous: Any) -> None:
        self._acts = [one for one in self._acts if previous not in _line(one[0])]


def misused(error: Exception) -> bool:
    """Whether SQLAlchemy refused by itself, as for a connection that is closed or a session without a single engine."""
    names = {cls.__name__ for cls in type(error).__mro__ if cls.__module__.startswith("sqlalchemy.")}
    return "InvalidRequestError" in names and "PendingRollbackError" not in names


_gatherers: weakref.WeakKeyDictionary[Any, _Gatherer] = weakref.WeakKeyDictionary()


def _line(transaction: Any) -> list[Any]:
    """A session's transaction and those it is nested in."""
    line = []
    while transaction is not None:
        line.append(transaction)
        transaction = transaction.parent
    return line
