"""Every kind of connection that ``tx=`` takes, with one face: begin, statements of the caller's own, savepoint, end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, ClassVar

from rota.testing.colours import Runner

DROP = "DROP TABLE IF EXISTS effects"
TABLE = "CREATE TABLE effects (kind text NOT NULL, n bigint NOT NULL, PRIMARY KEY (kind, n))"


class Lender:
    """A transaction at a time. ``tx`` is what verbs are given."""

    asynchronous = False
    tells = False
    """Whether local waiters are woken by its commit."""

    def __init__(self, url: str, store: Any, runner: Runner | None) -> None:
        self.url = url
        self.store = store
        self.runner = runner
        self.tx: Any = None
        self.open()

    def open(self) -> None: ...

    def begin(self) -> None: ...

    def execute(self, text: str) -> None:
        raise NotImplementedError

    def note(self, kind: str, number: int) -> None:
        """A row of the caller's own."""
        self.execute(f"INSERT INTO effects (kind, n) VALUES ('{kind}', {number})")

    def commit(self) -> None:
        self.tx.commit()

    def rollback(self) -> None:
        self.tx.rollback()

    def savepoint(self) -> Callable[[], None]:
        """Set one; what undoes it."""
        self.execute("SAVEPOINT mine")
        return lambda: self.execute("ROLLBACK TO SAVEPOINT mine")

    def close(self) -> None:
        self.tx.close()

    @property
    def file(self) -> str:
        return self.url.removeprefix("sqlite:///")


class Own(Lender):
    """The store's own transaction."""

    tells = True

    def begin(self) -> None:
        self.tx = self.store.transaction().__enter__()

    def execute(self, text: str) -> None:
        self.tx.connection.execute(text)

    def commit(self) -> None:
        self.tx.__exit__(None, None, None)

    def savepoint(self) -> Callable[[], None]:
        savepoint = self.tx.savepoint()
        savepoint.__enter__()
        error = KeyError()
        return lambda: savepoint.__exit__(KeyError, error, None)

    def close(self) -> None: ...


class AsyncOwn(Own):
    asynchronous = True

    def execute(self, text: str) -> None:
        self.runner.call(self.tx.connection.execute, text)  # type: ignore[union-attr]


class Memory(Own):
    """On memory there is no table for rows of the caller's own: a list that is added to others at the commit."""

    committed: ClassVar[dict[str, list[tuple[str, int]]]] = {}

    def begin(self) -> None:
        self._noted: list[tuple[str, int]] = []
        super().begin()

    def note(self, kind: str, number: int) -> None:
        self._noted.append((kind, number))

    def commit(self) -> None:
        super().commit()
        self.committed.setdefault(self.url, []).extend(self._noted)

    def savepoint(self) -> Callable[[], None]:
        undo, length = super().savepoint(), len(self._noted)

        def both() -> None:
            undo()
            del self._noted[length:]

        return both


class AsyncMemory(Memory):
    asynchronous = True


class Sqlite3(Lender):
    def open(self) -> None:
        self.tx = sqlite3.connect(self.file, timeout=20)
        # None of this is Rota's business.
        self.tx.row_factory = sqlite3.Row
        self.tx.text_factory = bytes

    def execute(self, text: str) -> None:
        self.tx.execute(text)


class Sqlite3ByHand(Sqlite3):
    def open(self) -> None:
        self.tx = sqlite3.connect(self.file, timeout=20, isolation_level=None)

    def begin(self) -> None:
        self.tx.execute("BEGIN IMMEDIATE")


class Psycopg(Lender):
    def open(self) -> None:
        import psycopg

        self.tx = psycopg.connect(self.url, row_factory=psycopg.rows.dict_row)

    def execute(self, text: str) -> None:
        self.tx.execute(text)


class AlchemyConnection(Lender):
    def open(self) -> None:
        import sqlalchemy

        self.engine = sqlalchemy.create_engine(
            self.url.replace("postgresql:", "postgresql+psycopg:"), **self._patience()
        )
        self.tx = self._connect()

    def _patience(self) -> dict[str, Any]:
        return {"connect_args": {"timeout": 20}} if self.url.startswith("sqlite") else {}

    def _connect(self) -> Any:
        return self.engine.connect()

    def execute(self, text: str) -> None:
        import sqlalchemy

        self.tx.execute(sqlalchemy.text(text))

    def savepoint(self) -> Callable[[], None]:
        nested = self.tx.begin_nested()
        return lambda: nested.rollback()

    def close(self) -> None:
        self.tx.close()
        self.engine.dispose()


class AlchemySession(AlchemyConnection):
    tells = True

    def _connect(self) -> Any:
        from sqlalchemy.orm import Session

        return Session(self.engine)


class Django(Lender):
    tells = True

    def open(self) -> None:
        import django
        from django.conf import settings
        from django.db import connections

        self.alias = f"lent{id(self)}"
        if not settings.configured:
            settings.configure(DATABASES={}, USE_TZ=True)
            django.setup()
        if self.url.startswith("sqlite"):
            where: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": self.file}
            where["OPTIONS"] = {"timeout": 20}
        else:
            import psycopg

            found = psycopg.conninfo.conninfo_to_dict(self.url)
            where = {"ENGINE": "django.db.backends.postgresql", "NAME": found["dbname"], "USER": found["user"]}
            where |= {
                "HOST": found["host"],
                "PORT": str(found.get("port", 5432)),
                "PASSWORD": found.get("password", ""),
            }
        connections.settings[self.alias] = connections.configure_settings({"default": {}, self.alias: where})[
            self.alias
        ]
        self.tx = connections[self.alias]

    def begin(self) -> None:
        from django.db import transaction

        self.atomic = transaction.atomic(using=self.alias)
        self.atomic.__enter__()

    def execute(self, text: str) -> None:
        with self.tx.cursor() as cursor:
            cursor.execute(text)

    def commit(self) -> None:
        self.atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        error = KeyError()
        self.atomic.__exit__(KeyError, error, None)

    def savepoint(self) -> Callable[[], None]:
        from django.db import transaction

        nested = transaction.atomic(using=self.alias)
        nested.__enter__()
        error = KeyError()
        return lambda: nested.__exit__(KeyError, error, None)


class Asynchronous(Lender):
    """Those whose methods are coroutines."""

    asynchronous = True

    def open(self) -> None:
        assert self.runner is not None
        self.call = self.runner.call
        self.tx = self.call(self._open)

    async def _open(self) -> Any:
        raise NotImplementedError

    def execute(self, text: str) -> None:
        self.call(self.tx.execute, text)

    def commit(self) -> None:
        self.call(self.tx.commit)

    def rollback(self) -> None:
        self.call(self.tx.rollback)

    def close(self) -> None:
        self.call(self.tx.close)


class AsyncPsycopg(Asynchronous):
    async def _open(self) -> Any:
        import psycopg

        return await psycopg.AsyncConnection.connect(self.url)


class Asyncpg(Asynchronous):
    async def _open(self) -> Any:
        import asyncpg

        return await asyncpg.connect(self.url)

    def begin(self) -> None:
        self.transaction = self.tx.transaction()
        self.call(self.transaction.start)

    def commit(self) -> None:
        self.call(self.transaction.commit)

    def rollback(self) -> None:
        self.call(self.transaction.rollback)

    def savepoint(self) -> Callable[[], None]:
        nested = self.tx.transaction()
        self.call(nested.start)
        return lambda: self.call(nested.rollback)


class AsyncAlchemyConnection(Asynchronous):
    driver = "asyncpg"

    async def _open(self) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine

        url, options = self.url.replace("postgresql:", f"postgresql+{self.driver}:"), {}
        if url.startswith("sqlite:"):
            url, options = url.replace("sqlite:", "sqlite+aiosqlite:"), {"connect_args": {"timeout": 20}}
        self.engine = create_async_engine(url, **options)
        return await self._connect()

    async def _connect(self) -> Any:
        return await self.engine.connect()

    def execute(self, text: str) -> None:
        import sqlalchemy

        self.call(self.tx.execute, sqlalchemy.text(text))

    def savepoint(self) -> Callable[[], None]:
        async def set_it() -> Any:
            return await self.tx.begin_nested()

        nested = self.call(set_it)
        return lambda: self.call(nested.rollback)

    def close(self) -> None:
        super().close()
        self.call(self.engine.dispose)


class AsyncAlchemySession(AsyncAlchemyConnection):
    tells = True

    async def _connect(self) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(self.engine)


class AsyncAlchemyPsycopg(AsyncAlchemySession):
    driver = "psycopg"


EVERYWHERE: tuple[type[Lender], ...] = (Own, AsyncOwn, AlchemyConnection, AlchemySession, Django)
ON_SQLITE = (*EVERYWHERE, Sqlite3, Sqlite3ByHand, AsyncAlchemyConnection, AsyncAlchemySession)
ON_POSTGRES = (
    *EVERYWHERE,
    Psycopg,
    AsyncPsycopg,
    Asyncpg,
    AsyncAlchemyConnection,
    AsyncAlchemySession,
    AsyncAlchemyPsycopg,
)
ON_MEMORY: tuple[type[Lender], ...] = (Memory, AsyncMemory)
BY_NAME = {lender.__name__: lender for lender in (*ON_SQLITE, *ON_POSTGRES, *ON_MEMORY)}
