"""SQLAlchemy's connections and sessions as both SQL engines use them (X4).

Everything goes through ``exec_driver_sql``: the transaction begins with the first statement that SQLAlchemy sees, and
with its asyncpg dialect no other way. SQLAlchemy itself is never imported: what is given brings it along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from rota.engines.alchemy_commits import after_commit
from rota.engines.foreign import Kind

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
        self._used = self.connection
        return self._used.exec_driver_sql(text, values or None, execution_options=_OPTIONS)

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
        """Have ``act`` called after the commit of the transaction that the last verb was in."""
        after_commit(self._used, act)
