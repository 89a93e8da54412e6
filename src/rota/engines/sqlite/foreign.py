"""Verbs on the caller's own connection to the store's file (X4): ``sqlite3``, SQLAlchemy, Django."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota.engines import foreign
from rota.engines.alchemy import Lent, refusal
from rota.engines.sqlite.connecting import identity
from rota.engines.sqlite.failures import code_of, is_too_old, translated
from rota.engines.sqlite.transactions import Verbs
from rota.errors import RotaError, TransactionError
from rota.sql.drive import Op

if TYPE_CHECKING:
    from rota.contract import EngineTransaction
    from rota.engines.sqlite.engine import SqliteEngine

P = ParamSpec("P")
T = TypeVar("T")

# The types of our columns, and a row that shows both as they are.
_TYPES = frozenset({"INTEGER", "TEXT"})
_PLAIN = "rota_meta", 1
_PLAIN_ROW = "SELECT name, one FROM rota_meta, sqlite_master WHERE type = 'table' AND name = 'rota_meta'"
_WRITES_NOTHING = "DELETE FROM rota_jobs WHERE 0"


def adopt(engine: SqliteEngine, given: Any, *, asynchronous: bool) -> EngineTransaction:
    """The verbs on a connection; ``TypeError`` where it cannot lead to a SQLite file."""
    given = foreign.unwrapped(given)
    kind = foreign.recognise(given, engine.url, asynchronous=asynchronous)
    if kind.library == "sqlite3":
        return Borrowed(engine, given)
    if kind.library == "sqlalchemy":
        return Alchemy(engine, Lent(given, kind), given)
    if kind.library == "django":
        return Django(engine, given)
    raise foreign.other_engine(given, engine.url)


class Borrowed(Verbs):
    """Verbs on a ``sqlite3.Connection``. What of its settings changes how rows look is put aside for their time."""

    def __init__(self, engine: SqliteEngine, connection: Any) -> None:
        super().__init__(engine)
        self.connection = connection
        self._is_open = False

    def write(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """An operation in the caller's transaction."""
        return self._lent(lambda cursor: self._guarded(cursor, op, values))

    def _command(self, text: str) -> None:
        self._lent(lambda cursor: cursor.execute(text))

    def _lent(self, act: Callable[[Any], T]) -> T:
        connection: sqlite3.Connection = self.connection
        factory: Any = connection.text_factory
        try:
            # Made so, it does not take over the connection's row_factory.
            cursor = sqlite3.Cursor(connection)
            connection.text_factory = str
            try:
                self._begin(cursor)
                return act(cursor)
            finally:
                connection.text_factory = factory
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _begin(self, cursor: Any) -> None:
        """Be in a transaction of this file, or begin the one that Python would begin with the next write."""
        self._check_file(cursor)
        self._check_types(cursor)
        if self._in_transaction():
            self._is_open = True
            # Be the writer before anything is read. SQLite waits for others here; where it has read, it fails at once.
            cursor.execute(_WRITES_NOTHING)
            return
        if self._autocommits():
            raise TransactionError(f"{self.path}: {self._advice()}")
        # At once as a writer: what begins with reading may find that others wrote meanwhile.
        cursor.execute("BEGIN IMMEDIATE")
        self._is_open = True

    def _check_file(self, cursor: Any) -> None:
        # A connection to a file that lost its name says the name all the same.
        self.engine.look_at_file()
        file = next((row[2] for row in cursor.execute("PRAGMA database_list").fetchall() if row[1] == "main"), "")
        if not file or identity(file) != identity(self.path):
            raise TransactionError(
                f"tx= is a connection to {file or 'a database in memory'}, the store is {self.path}: only in one file "
                "are both committed together"
            )

    def _check_types(self, cursor: Any) -> None:
        """With ``detect_types`` a connection hands out what the program's converters make of values."""
        if _TYPES.isdisjoint(getattr(sqlite3, "converters", ())):
            return
        try:
            (row,) = cursor.execute(_PLAIN_ROW).fetchall()
        except (TypeError, ValueError, ArithmeticError, LookupError):
            row = None
        if row != _PLAIN:
            raise TransactionError(
                f"{self.path}: tx= is a connection with detect_types, and a converter registered for INTEGER or TEXT "
                "changes what it reads: give its type a name of its own, or use another connection"
            )

    def _autocommits(self) -> bool:
        return _autocommits(self.connection)

    def _advice(self) -> str:
        return (
            "tx= is a connection in autocommit mode and in no transaction, so each statement would be committed by "
            'itself: run connection.execute("BEGIN IMMEDIATE") first, and "COMMIT" at the end'
        )

    def _in_transaction(self) -> bool:
        open_now: bool = self.connection.in_transaction
        return open_now

    def _failure(self, error: sqlite3.Error) -> RotaError:
        if is_too_old(error):
            return self._aborted("others wrote since this transaction first read (begin it with BEGIN IMMEDIATE)")
        if isinstance(error, sqlite3.ProgrammingError) or code_of(error) == sqlite3.SQLITE_READONLY:
            return TransactionError(f"tx= cannot be used here: {error}")
        if not self._is_open:
            return translated(error, self.path)
        return super()._failure(error)

    def commit(self, then: Callable[[], None]) -> None:
        raise AssertionError("whose connection it is commits")

    def rollback(self) -> None:
        raise AssertionError("whose connection it is rolls back")

    def abandon(self) -> None:
        raise AssertionError("whose connection it is rolls back")

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        raise AssertionError("a sync connection is used by the sync facade")

    def on_commit(self, act: Callable[[], None]) -> None:
        """Nobody tells: who waits in this process or another sees that the file has changed."""


class Django(Borrowed):
    """Verbs on Django's connection."""

    def __init__(self, engine: SqliteEngine, given: Any) -> None:
        self._wrapper = foreign.django_wrapper(given)
        connection = foreign.unwrapped(self._wrapper.connection)
        if not isinstance(connection, sqlite3.Connection):
            raise foreign.other_engine(given, engine.url)
        super().__init__(engine, connection)

    def _begin(self, cursor: Any) -> None:
        foreign.check_django(self._wrapper, self.path)
        super()._begin(cursor)

    def _autocommits(self) -> bool:
        return foreign.django_autocommits(self._wrapper)

    def _advice(self) -> str:
        return foreign.DJANGO_ADVICE

    def on_commit(self, act: Callable[[], None]) -> None:
        foreign.django_on_commit(self._wrapper, act)


class Alchemy(Borrowed):
    """Verbs on a connection or session of SQLAlchemy, with the drivers ``pysqlite`` and ``aiosqlite``."""

    def __init__(self, engine: SqliteEngine, lent: Lent, given: Any) -> None:
        super().__init__(engine, given)
        self._lending = lent

    def _lent(self, act: Callable[[Any], T]) -> T:
        try:
            name, _ = self._lending.dialect
            if name != "sqlite":
                raise foreign.other_engine(self.connection, self.engine.url)
            return self._begun(act)
        except Exception as error:
            original = getattr(error, "orig", None)
            if isinstance(original, sqlite3.Error):
                raise self._failure(original) from error
            refused = refusal(error)
            if refused is not None:
                raise refused from error
            raise

    def _begun(self, act: Callable[[Any], T]) -> T:
        name, _ = self._lending.dialect
        if name != "sqlite":
            raise foreign.other_engine(self.connection, self.engine.url)
        cursor = Cursor(self._lending)
        self._begin(cursor)
        return act(cursor)

    def _autocommits(self) -> bool:
        return _autocommits(self._lending.driver)

    def _in_transaction(self) -> bool:
        open_now: bool = self._lending.driver.in_transaction
        return open_now

    def _advice(self) -> str:
        return "SQLAlchemy's connection is in AUTOCOMMIT and in no transaction: use one with another isolation level"

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a verb where SQLAlchemy runs sync code for an async connection."""
        return self._lending.arun(verb, *args, **kwargs)

    def on_commit(self, act: Callable[[], None]) -> None:
        self._lending.on_commit(act)


def _autocommits(connection: Any) -> bool:
    """Whether Python's driver begins no transaction by itself; ``autocommit`` is there since 3.12."""
    autocommit = getattr(connection, "autocommit", -1)
    return autocommit is True or (autocommit == -1 and connection.isolation_level is None)


class Cursor:
    """What operations need of a driver's cursor, on SQLAlchemy."""

    def __init__(self, lent: Lent) -> None:
        self._lent = lent
        self._result: Any = None

    @property
    def rowcount(self) -> int:
        count: int = self._result.rowcount
        return count

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> Cursor:
        self._result = self._lent.execute(text, values)
        return self

    def executemany(self, text: str, values: list[tuple[Any, ...]]) -> Cursor:
        self._result = self._lent.execute(text, values)
        return self

    def fetchall(self) -> list[Any]:
        return list(map(tuple, self._result.fetchall()))
