"""Verbs on the caller's own connection to the store's database (X4): psycopg, asyncpg, SQLAlchemy, Django."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from rota.engines import foreign
from rota.engines.alchemy import Lent, refusal
from rota.engines.postgres.arrays import Array
from rota.engines.postgres.sessions import PLAIN
from rota.engines.postgres.transactions import Verbs
from rota.engines.postgres.verbs import BoundVerb
from rota.errors import TransactionError
from rota.sql.drive import Block

if TYPE_CHECKING:
    from rota.contract import EngineTransaction
    from rota.engines.postgres.engine import PostgresEngine

P = ParamSpec("P")
T = TypeVar("T")

# Whether a connection is in a transaction, in none, or in one that failed.
Standing = Literal["open", "idle", "failed"]

_DRIVERS = frozenset({"psycopg", "psycopg2", "asyncpg", "sqlalchemy"})
_STANDINGS: dict[Any, Standing] = {
    TransactionStatus.IDLE: "idle",
    TransactionStatus.INTRANS: "open",
    TransactionStatus.ACTIVE: "open",
}
# What drivers say of themselves, not the server: as that another statement is under way on the connection.
_MISUSES = frozenset({"InterfaceError", "ProgrammingError"})
# Connections of which it is known where they lead, by the driver's own object: one look is a round trip.
_known: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def adopt(engine: PostgresEngine, given: Any, *, asynchronous: bool) -> EngineTransaction:
    """The verbs on a connection; ``TypeError`` where it cannot lead to PostgreSQL."""
    given = foreign.unwrapped(given)
    kind = foreign.recognise(given, engine.url, asynchronous=asynchronous)
    if kind.library == "psycopg":
        return AsyncPsycopg(engine, given) if asynchronous else Psycopg(engine, given)
    if kind.library == "asyncpg":
        return Asyncpg(engine, given)
    if kind.library == "sqlalchemy":
        return Alchemy(engine, Lent(given, kind), given)
    if kind.library == "django":
        return Django(engine, given)
    raise foreign.other_engine(given, engine.url)


class Borrowed(Verbs):
    """Verbs on somebody's connection."""

    advice = "write with connection.transaction()"

    def __init__(self, engine: PostgresEngine, connection: Any) -> None:
        super().__init__(engine)
        self.connection = connection

    def _standing(self) -> Standing:
        raise NotImplementedError

    def _autocommits(self) -> bool:
        """Whether the driver begins no transaction by itself."""
        raise NotImplementedError

    def _driver(self) -> Any:
        """The driver's own connection."""
        return self.connection

    def _check(self) -> None:
        self._check_begun()
        if _known.get(self._driver()) == self.engine.whereabouts():
            return
        block, values = next(self.engine.where.op())
        here = _place(self._reply(block, values)[0])
        # The server may have been restarted since the engine asked.
        if here not in (self.engine.whereabouts(), self.engine.whereabouts(again=True)):
            raise self._elsewhere(here)
        _known[self._driver()] = here

    async def _acheck(self) -> None:
        self._check_begun()
        if _known.get(self._driver()) == await self.engine.awhereabouts():
            return
        block, values = next(self.engine.where.op())
        here = _place((await self._areply(block, values))[0])
        if here != await self.engine.awhereabouts() and here != await self.engine.awhereabouts(again=True):
            raise self._elsewhere(here)
        _known[self._driver()] = here

    def _check_begun(self) -> None:
        standing = self._standing()
        if standing == "idle" and self._autocommits():
            raise TransactionError(
                f"{self.engine.url}: tx= is a connection in autocommit mode and in no transaction, so each statement "
                f"would be committed by itself: {self.advice}"
            )

    def _elsewhere(self, here: tuple[Any, ...]) -> TransactionError:
        return TransactionError(
            f"tx= is a connection to the database {here[0]!r}, of another server or without the store's schema; the "
            f"store is {self.engine.url}: only in one database are both committed together"
        )

    def _failure(self, error: Exception) -> Exception:
        original: Exception = getattr(error, "orig", None) or error
        errors = self.engine.errors
        if isinstance(original, UnicodeError):
            return errors.misused(original)
        if type(original).__module__.partition(".")[0] not in _DRIVERS and not isinstance(original, OSError):
            return error
        lost = self._lost()
        if not lost and getattr(original, "sqlstate", None) is None and _MISUSES & _names(original):
            return errors.misused(original)
        return errors.in_transaction(original, lost=lost)

    def _lost(self) -> bool:
        return bool(getattr(self._driver(), "closed", False))

    def commit(self, then: Callable[[], None]) -> None:
        raise AssertionError("whose connection it is commits")

    def rollback(self) -> None:
        raise AssertionError("whose connection it is rolls back")

    def abandon(self) -> None:
        raise AssertionError("whose connection it is rolls back")

    def on_commit(self, act: Callable[[], None]) -> None:
        """Nobody tells: who waits polls."""


class _Cursor(psycopg.Cursor[Any]):
    """For threads."""

    adapters = PLAIN


class _AsyncCursor(psycopg.AsyncCursor[Any]):
    """For event loops."""

    adapters = PLAIN


class Psycopg(Borrowed):
    """Verbs on a ``psycopg.Connection``."""

    _cursors: Any = _Cursor

    def _standing(self) -> Standing:
        return _STANDINGS.get(self.connection.pgconn.transaction_status, "failed")

    def _autocommits(self) -> bool:
        return bool(self.connection.autocommit)

    def _check_begun(self) -> None:
        super()._check_begun()
        told = self.connection.pgconn.parameter_status
        if told(b"server_encoding") == b"SQL_ASCII" and told(b"client_encoding") not in (b"UTF8", b"SQL_ASCII"):
            raise TransactionError(
                f"{self.engine.url}: tx= is a connection with the client_encoding "
                f"{self.connection.info.encoding}, in a database that keeps bytes as they come: there Rota needs UTF8"
            )

    def _cursor(self) -> Any:
        # Of our own: the connection's row factory does not count.
        return self._cursors(self.connection, row_factory=tuple_row)

    def _reply(self, block: Block, values: Any) -> Any:
        cursor = self._cursor()
        cursor.execute(self.engine.runner.text(block.text), values)
        return cursor.fetchall() if block.rows else cursor.rowcount


class AsyncPsycopg(Psycopg):
    """Verbs on a ``psycopg.AsyncConnection``."""

    advice = "write async with connection.transaction()"
    _cursors = _AsyncCursor

    async def _areply(self, block: Block, values: Any) -> Any:
        cursor = self._cursor()
        await cursor.execute(self.engine.runner.text(block.text), values)
        return await cursor.fetchall() if block.rows else cursor.rowcount


class Django(Psycopg):
    """Verbs on Django's connection, with psycopg 3."""

    advice = foreign.DJANGO_ADVICE

    def __init__(self, engine: PostgresEngine, given: Any) -> None:
        self._wrapper = foreign.django_wrapper(given)
        connection = foreign.unwrapped(self._wrapper.connection)
        if not isinstance(connection, psycopg.Connection):
            raise foreign.other_engine(given, engine.url)
        super().__init__(engine, connection)

    def _autocommits(self) -> bool:
        return foreign.django_autocommits(self._wrapper)

    def _check_begun(self) -> None:
        foreign.check_django(self._wrapper, self.engine.url)
        super()._check_begun()

    def on_commit(self, act: Callable[[], None]) -> None:
        foreign.django_on_commit(self._wrapper, self._acting(act))


class Asyncpg(Borrowed):
    """Verbs on an ``asyncpg.Connection``, or what its pool lends."""

    advice = "write async with connection.transaction()"

    def _standing(self) -> Standing:
        if self.connection.is_closed():
            return "failed"
        return "open" if self.connection.is_in_transaction() else "idle"

    def _autocommits(self) -> bool:
        return True

    def _driver(self) -> Any:
        # A pool's connection stands before the real one, and only as long as it is lent.
        return getattr(self.connection, "_con", self.connection)

    def _lost(self) -> bool:
        # A pool's connection that was given back is none.
        return self._driver() is not None and bool(self.connection.is_closed())

    async def _areply(self, block: Block, values: Any) -> Any:
        text = self.engine.runner.text(block.text).decode()
        if not values:
            return await (self.connection.fetch(text) if block.rows else self.connection.execute(text))
        return await self.connection.fetch(numbered(text, values), *values)


class Alchemy(Borrowed):
    """Verbs on a connection or session of SQLAlchemy, with psycopg or asyncpg."""

    advice = "use one with another isolation level than AUTOCOMMIT"

    def __init__(self, engine: PostgresEngine, lent: Lent, given: Any) -> None:
        super().__init__(engine, given)
        self._lent = lent

    def _driver(self) -> Any:
        return self._lent.driver

    def _standing(self) -> Standing:
        driver = self._driver()
        if self._lent.dialect[1] == "asyncpg":
            return "open" if driver.is_in_transaction() else "idle"
        status = driver.info.transaction_status if self._lent.dialect[1] == "psycopg2" else None
        return _STANDINGS.get(driver.pgconn.transaction_status if status is None else status, "failed")

    def _autocommits(self) -> bool:
        """SQLAlchemy begins with the first statement it sees, if it does."""
        self._lent.execute("SELECT 1", None)
        return self._standing() == "idle"

    def _check_begun(self) -> None:
        name, driver = self._lent.dialect
        if name != "postgresql" or driver not in ("psycopg", "psycopg_async", "psycopg2", "asyncpg"):
            raise foreign.other_engine(self.connection, self.engine.url)
        super()._check_begun()

    def _failure(self, error: Exception) -> Exception:
        refused = refusal(error)
        if refused is None:
            return super()._failure(error)
        refused.__cause__ = error
        return refused

    def _lost(self) -> bool:
        try:
            driver = self._driver()
            closed: Any = driver.is_closed() if self._lent.dialect[1] == "asyncpg" else driver.closed
            return bool(closed)
        except Exception:
            # Invalidated: there is no driver's connection any more.
            return True

    def _reply(self, block: Block, values: Any) -> Any:
        text = self.engine.runner.text(block.text).decode()
        if self._lent.dialect[1] == "asyncpg" and values:
            text = numbered(text, values)
        result = self._lent.execute(text, tuple(values))
        return list(map(tuple, result.fetchall())) if block.rows else result.rowcount

    async def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb where SQLAlchemy runs sync code for an async connection."""
        if isinstance(verb, BoundVerb):
            # What goes over connections of our own is done here, where they are async too.
            before = self._before(verb)
            if before is not None:
                await self.engine.runner.acarry_out(before, (), {})
        await self.engine.awhereabouts()
        return await self._lent.arun(verb, *args, **kwargs)

    def on_commit(self, act: Callable[[], None]) -> None:
        self._lent.on_commit(self._acting(act))


def _place(row: Any) -> tuple[Any, ...]:
    """What the engine's own connections say; psycopg gives bytes where the connection's encoding is SQL_ASCII."""
    return tuple(value.decode() if isinstance(value, bytes) else value for value in row)


def _names(error: Exception) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


@lru_cache(maxsize=256)
def _numbered(text: str, arrays: tuple[str | None, ...]) -> str:
    numbers = iter(enumerate(arrays, 1))

    def placeholder(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        number, array = next(numbers)
        # An array is written as text: its type's own codec is not asked.
        return f"${number}" if array is None else f"${number}::text::{array}"

    return re.sub(r"%s|%%", placeholder, text)


def numbered(text: str, values: tuple[Any, ...]) -> str:
    """A statement with the placeholders that asyncpg takes."""
    return _numbered(text, tuple(value.type if isinstance(value, Array) else None for value in values))
