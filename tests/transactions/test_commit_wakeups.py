"""Waking local waiters when a transaction of SQLAlchemy's commits: at once, once, and never for what was undone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import rota
from rota.engines import alchemy
from rota.wakeups import ThreadWaiter, queue_address

ADDRESS = queue_address("q")


class Told:
    """A store, an engine of SQLAlchemy's on its database, and whom the store has woken."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = rota.open(url)
        self.queue = self.store.queue("q")
        self.woken: list[str] = []
        self.waiter = ThreadWaiter(ADDRESS)
        wakeups: Any = self.store._core.wakeups
        wakeups.add(self.waiter)
        wake = wakeups.wake

        def note(address: str) -> None:
            self.woken.append(address)
            wake(address)

        wakeups.wake = note
        self.engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    def add(self, tx: Any) -> None:
        self.queue.enqueue(1, tx=tx)

    def check(self, times: int) -> None:
        """Woken so often since the last look, and whoever waits need not have waited."""
        assert self.woken == [ADDRESS] * times
        if times:
            assert self.waiter._event.is_set()
        self.woken.clear()
        self.waiter.clear()

    def close(self) -> None:
        self.engine.dispose()
        self.store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Told]:
    url = f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    if request.param == "sqlite":
        rota.open(url).close()
    made = Told(url)
    yield made
    made.close()


@pytest.fixture
def on_postgres(postgres_url: str) -> Iterator[Told]:
    made = Told(postgres_url)
    yield made
    made.close()


def test_connections_tell_nobody(told: Told) -> None:
    """Their engine may be in use elsewhere, so nothing is hooked into it; who waits polls."""
    before = hooks(told.engine, told.engine.pool, told.engine.dialect)
    with told.engine.begin() as connection:
        told.add(connection)
        assert hooks(connection) == 0
    told.check(0)
    assert hooks(told.engine, told.engine.pool, told.engine.dialect) == before
    assert told.queue.claim_one("w") is not None


# -- Sessions --------------------------------------------------------------------------------------------------------


def test_sessions(told: Told) -> None:
    with Session(told.engine) as session, session.begin():
        told.add(session)
        told.check(0)
    told.check(1)
    with Session(told.engine) as session:
        told.add(session)
        session.flush()
        told.check(0)
        session.commit()
        told.check(1)
        told.add(session)
        session.rollback()
        session.commit()
        told.add(session)
        session.close()
        session.execute(sqlalchemy.text("SELECT 1"))
        session.commit()
    told.check(0)
    assert len(told.queue.peek(10)) == 2


def test_savepoints_of_a_session(told: Told) -> None:
    with Session(told.engine) as session:
        with session.begin_nested():
            told.add(session)
        told.check(0)
        outer = session.begin_nested()
        told.add(session)
        with session.begin_nested():
            told.add(session)
        outer.rollback()
        told.check(0)
        session.commit()
        told.check(1)
    assert len(told.queue.peek(10)) == 1


@pytest.mark.parametrize("mode", ["rollback_only", "create_savepoint", "control_fully"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_session_in_somebody_elses_transaction(told: Told, mode: Any, commit: bool) -> None:
    """The session's commit may be none: who waits is told of a real one only, and polls."""
    if told.engine.dialect.name == "sqlite":
        # Else a savepoint is the first statement, and SQLite commits when it is released.
        event.listen(told.engine, "connect", lambda made, _: setattr(made, "isolation_level", None))
        event.listen(told.engine, "begin", lambda made: made.exec_driver_sql("BEGIN IMMEDIATE"))
    with told.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode=mode) as session:
            told.add(session)
            session.commit()
        told.check(int(mode == "control_fully"))
        if mode == "control_fully":
            commit = True
        elif commit:
            outer.commit()
        else:
            outer.rollback()
    told.check(0)
    assert len(told.queue.peek()) == int(commit)


# -- Commits that fail -----------------------------------------------------------------------------------------------


DEFERRED = (
    "DROP TABLE IF EXISTS children",
    "DROP TABLE IF EXISTS parents",
    "CREATE TABLE parents (id int PRIMARY KEY)",
    "CREATE TABLE children (parent int REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
)


def test_a_commit_that_fails(told: Told) -> None:
    """The database refuses at the very end."""
    with told.engine.begin() as connection:
        for text in DEFERRED:
            connection.execute(sqlalchemy.text(text))
    if told.engine.dialect.name == "sqlite":
        event.listen(told.engine, "connect", lambda made, _: made.execute("PRAGMA foreign_keys = on"))
        told.engine.dispose()
    with Session(told.engine) as session:
        if told.engine.dialect.name == "sqlite":
            session.execute(sqlalchemy.text("PRAGMA defer_foreign_keys = on"))
        told.add(session)
        session.execute(sqlalchemy.text("INSERT INTO children VALUES (1)"))
        with pytest.raises(DBAPIError):
            session.commit()
        told.check(0)
        session.rollback()
        session.execute(sqlalchemy.text("SELECT 1"))
        session.commit()
    told.check(0)
    assert told.queue.peek() == []


def test_a_connection_cut_at_the_commit(on_postgres: Told) -> None:
    told = on_postgres
    with Session(told.engine) as session:
        told.add(session)
        number = session.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))
        with told.engine.begin() as other:
            other.execute(sqlalchemy.text(f"SELECT pg_terminate_backend({number}, 10000)"))
        with pytest.raises(DBAPIError):
            session.commit()
        session.rollback()
        session.execute(sqlalchemy.text("SELECT 1"))
        session.commit()
    told.check(0)


def test_two_phases() -> None:
    from postgres.server import Server

    server = Server(settings=("max_prepared_transactions=4",))
    try:
        url = server.dsn(server.create_database())
        rota.open(url, migrate=True).close()
        told = Told(url)
        with Session(told.engine, twophase=True) as session:
            for prepared in (True, False):
                told.add(session)
                if prepared:
                    session.prepare()
                told.check(0)
                session.commit()
                told.check(1)
            told.add(session)
            session.prepare()
            session.rollback()
        told.check(0)
        assert len(told.queue.peek(10)) == 2
        told.close()
    finally:
        server.close()


# -- Async -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg"])
def test_async(driver: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kind = driver.partition("+")[0]
    url = f"sqlite:///{tmp_path}/s.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    told = Told(url)
    queue = told.store.as_async().queue("q")

    async def main() -> None:
        engine = create_async_engine(url.replace(kind, driver, 1))
        async with engine.begin() as connection:
            await queue.enqueue(1, tx=connection)
        told.check(0)
        async with AsyncSession(engine) as session:
            async with session.begin():
                await queue.enqueue(2, tx=session)
                nested = await session.begin_nested()
                await queue.enqueue(3, tx=session)
                await nested.rollback()
                told.check(0)
            told.check(1)
            await queue.enqueue(4, tx=session)
            await session.rollback()
            await queue.enqueue(5, tx=session)
            await session.close()
            await session.execute(sqlalchemy.text("SELECT 1"))
            await session.commit()
        told.check(0)
        await engine.dispose()
        assert [one.payload for one in await queue.peek(10)] == [1, 2]

    asyncio.run(main())
    told.close()


def test_cancelled_while_committing(postgres_url: str) -> None:
    """Nobody knows whether it was committed: nobody is woken, who waits polls."""
    told = Told(postgres_url)
    queue = told.store.as_async().queue("q")

    async def main() -> None:
        engine = create_async_engine(postgres_url.replace("postgresql", "postgresql+asyncpg"))

        async def work() -> None:
            async with AsyncSession(engine) as session:
                await queue.enqueue(1, tx=session)
                event.listen(session.sync_session, "before_commit", lambda _: task.cancel())
                await session.commit()

        task = asyncio.create_task(work())
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        told.check(0)
        await engine.dispose()

    asyncio.run(main())
    told.close()


# -- What is left ----------------------------------------------------------------------------------------------------


def hooks(*targets: Any) -> int:
    """How many listeners there are; a connection's own ones, without its engine's."""
    found = [getattr(one.dispatch, "local", one.dispatch) for one in targets]
    return sum(len(list(getattr(one, name))) for one in found for name in one._event_names)


def test_nothing_piles_up(told: Told) -> None:
    """A session has two listeners however often it is used, and is forgotten with them."""
    with Session(told.engine) as session:
        before = hooks(session)
        for turn in range(40):
            told.add(session)
            with session.begin_nested():
                told.add(session)
            told.add(session)
            session.commit() if turn % 4 else session.rollback()
            assert hooks(session) == before + 2
            assert session.info[alchemy._KEY]._acts == []
        told.check(3 * 30)


def test_sessions_are_forgotten(told: Told) -> None:
    """However they ended, also those that were closed without a word, or in the middle."""
    gone = []
    for ending in ("commit", "rollback", "close", "invalidate"):
        session = Session(told.engine)
        told.add(session)
        getattr(session, ending)()
        session.close()
        gone.append(weakref.ref(session))
        del session
    gc.collect()
    assert [one() for one in gone] == [None] * 4
    told.check(1)


def test_a_waker_that_fails_spoils_no_commit(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("no thread")

    told.store._core.wakeups.wake = broken  # type: ignore[method-assign]
    with Session(told.engine) as session, session.begin():
        told.add(session)
    assert "no thread" in caplog.text
    assert len(told.queue.peek()) == 1
