"""Waking local waiters when a transaction of SQLAlchemy's commits: at once, once, and never for what was undone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import rota
from rota.engines import alchemy_commits
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


# -- Connections -----------------------------------------------------------------------------------------------------


def test_engine_begin(told: Told) -> None:
    with told.engine.begin() as connection:
        told.add(connection)
        told.check(0)
    told.check(1)


def test_commit_as_you_go(told: Told) -> None:
    """Told when the connection is given back, or begins anew."""
    with told.engine.connect() as connection:
        told.add(connection)
        told.add(connection)
        connection.commit()
        connection.execute(sqlalchemy.text("SELECT 1"))
        told.check(2)
        connection.commit()
        told.add(connection)
        connection.commit()
    told.check(1)


def test_a_connection_rolls_back(told: Told) -> None:
    def failing() -> None:
        with told.engine.begin() as connection:
            told.add(connection)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    with told.engine.connect() as connection:
        told.add(connection)
        connection.rollback()
        connection.execute(sqlalchemy.text("SELECT 1"))
        connection.commit()
        told.add(connection)
        # Closed without a word.
    with told.engine.begin() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
    told.check(0)
    assert told.queue.peek() == []


def test_savepoints_of_a_connection(told: Told) -> None:
    """What is undone with one is dropped, also with an outer one; what is released counts at the commit."""
    with told.engine.begin() as connection:
        outer = connection.begin_nested()
        told.add(connection)
        inner = connection.begin_nested()
        told.add(connection)
        inner.commit()
        told.check(0)
        outer.rollback()
        told.check(0)
        kept = connection.begin_nested()
        told.add(connection)
        kept.commit()
        undone = connection.begin_nested()
        told.add(connection)
        undone.rollback()
        told.check(0)
    told.check(1)
    assert len(told.queue.peek(10)) == 1


def test_options_make_another_engine(told: Told) -> None:
    """Which shares the pool: told once all the same."""
    for engine in (told.engine, told.engine.execution_options(mine=1), told.engine):
        with engine.begin() as connection:
            told.add(connection)
        told.check(1)


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
    """The session's commit may be none; that of the connection counts."""
    if told.engine.dialect.name == "sqlite":
        # Else a savepoint is the first statement, and SQLite commits when it is released.
        event.listen(told.engine, "connect", lambda made, _: setattr(made, "isolation_level", None))
        event.listen(told.engine, "begin", lambda made: made.exec_driver_sql("BEGIN IMMEDIATE"))
    with told.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode=mode) as session:
            told.add(session)
            session.commit()
        if mode == "control_fully":
            connection.close()
            told.check(1)
            return
        told.check(0)
        if commit:
            outer.commit()
        else:
            outer.rollback()
    told.check(int(commit))
    assert len(told.queue.peek()) == int(commit)


# -- Commits that fail -----------------------------------------------------------------------------------------------


DEFERRED = (
    "DROP TABLE IF EXISTS children",
    "DROP TABLE IF EXISTS parents",
    "CREATE TABLE parents (id int PRIMARY KEY)",
    "CREATE TABLE children (parent int REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
)


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_a_commit_that_fails(told: Told, kind: str) -> None:
    """The database refuses at the very end: the event that SQLAlchemy calls commit was there already."""
    with told.engine.begin() as connection:
        for text in DEFERRED:
            connection.execute(sqlalchemy.text(text))

    def act(tx: Any) -> None:
        if told.engine.dialect.name == "sqlite":
            tx.execute(sqlalchemy.text("PRAGMA defer_foreign_keys = on"))
        told.add(tx)
        tx.execute(sqlalchemy.text("INSERT INTO children VALUES (1)"))

    if told.engine.dialect.name == "sqlite":
        event.listen(told.engine, "connect", lambda made, _: made.execute("PRAGMA foreign_keys = on"))
        told.engine.dispose()
    with told.engine.connect() if kind == "connection" else Session(told.engine) as tx:
        act(tx)
        with pytest.raises(DBAPIError):
            tx.commit()
        told.check(0)
    told.check(0)
    # SQLAlchemy does not roll back SQLite's connection after that, which is still in its transaction.
    told.engine.dispose()
    with told.engine.begin() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
    told.check(0)
    assert told.queue.peek() == []


def test_a_commit_that_rolls_back_in_silence(on_postgres: Told) -> None:
    """PostgreSQL answers COMMIT after a failed statement by rolling back; a savepoint undone mends it."""
    told = on_postgres
    with told.engine.connect() as connection:
        told.add(connection)
        with pytest.raises(DBAPIError):
            connection.execute(sqlalchemy.text("SELECT 1 / 0"))
        connection.commit()
    told.check(0)
    with told.engine.connect() as connection:
        told.add(connection)
        with pytest.raises(DBAPIError), connection.begin_nested():
            connection.execute(sqlalchemy.text("SELECT 1 / 0"))
        connection.commit()
    told.check(1)
    assert len(told.queue.peek(10)) == 1


def test_a_connection_cut_at_the_commit(on_postgres: Told) -> None:
    told = on_postgres
    with told.engine.connect() as connection:
        told.add(connection)
        number = connection.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))
        with told.engine.begin() as other:
            other.execute(sqlalchemy.text(f"SELECT pg_terminate_backend({number}, 10000)"))
        with pytest.raises(DBAPIError):
            connection.commit()
        connection.rollback()
        connection.execute(sqlalchemy.text("SELECT 1"))
        connection.commit()
    told.check(0)


def test_two_phases() -> None:
    from postgres.server import Server

    server = Server(settings=("max_prepared_transactions=4",))
    try:
        url = server.dsn(server.create_database())
        rota.open(url, migrate=True).close()
        told = Told(url)
        with told.engine.connect() as connection:
            for ending in ("commit", "rollback", "prepare"):
                transaction = connection.begin_twophase()
                told.add(connection)
                if ending == "rollback":
                    transaction.rollback()
                    continue
                if ending == "prepare":
                    transaction.prepare()
                    told.check(0)
                transaction.commit()
                connection.execute(sqlalchemy.text("SELECT 1"))
                connection.commit()
                told.check(1)
            transaction = connection.begin_twophase()
            told.add(connection)
            transaction.prepare()
            transaction.rollback()
        told.check(0)
        with Session(told.engine, twophase=True) as session:
            told.add(session)
            session.prepare()
            told.check(0)
            session.commit()
            told.check(1)
            told.add(session)
            session.prepare()
            session.rollback()
        told.check(0)
        assert len(told.queue.peek(10)) == 3
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
        told.check(1)
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
        async with engine.connect() as connection:
            await queue.enqueue(6, tx=connection)
            await connection.rollback()
            await queue.enqueue(7, tx=connection)
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text("SELECT 1"))
        told.check(0)
        await engine.dispose()
        assert [one.payload for one in await queue.peek(10)] == [1, 2]

    asyncio.run(main())
    told.close()


def test_cancelled_while_committing(postgres_url: str) -> None:
    """Nobody knows whether it was committed: nobody is woken, who waits polls. The engine is as good as before."""
    told = Told(postgres_url)
    queue = told.store.as_async().queue("q")

    async def main() -> None:
        engine = create_async_engine(postgres_url.replace("postgresql", "postgresql+asyncpg"))

        async def work() -> None:
            async with engine.connect() as connection:
                await queue.enqueue(1, tx=connection)
                event.listen(connection.sync_connection, "commit", lambda _: task.cancel())
                await connection.commit()

        task = asyncio.create_task(work())
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        told.check(0)
        async with engine.begin() as connection:
            await queue.enqueue(2, tx=connection)
        told.check(1)
        await engine.dispose()

    asyncio.run(main())
    told.close()


# -- What is left ----------------------------------------------------------------------------------------------------


def hooks(*targets: Any) -> int:
    """How many listeners there are; a connection's own ones, without its engine's."""
    found = [getattr(one.dispatch, "local", one.dispatch) for one in targets]
    return sum(len(list(getattr(one, name))) for one in found for name in one._event_names)


def test_nothing_piles_up(told: Told) -> None:
    """Listeners are once per engine; a transaction leaves nothing on its connection or session."""
    with Session(told.engine) as session, told.engine.connect() as connection:
        counts: set[int] = set()
        for turn in range(40):
            for tx in (session, connection):
                told.add(tx)
                tx.commit() if turn % 4 else tx.rollback()
            with told.engine.begin() as other:
                told.add(other)
            connection.execute(sqlalchemy.text("SELECT 1"))
            assert alchemy_commits._KEY not in connection.info
            connection.rollback()
            counts.add(hooks(told.engine, told.engine.pool, told.engine.dialect, session, connection))
        assert len(counts) == 1
        assert hooks(session) == 0
    told.check(40 + 30 + 30)
    # Another pool is made, with the same listeners.
    told.engine.dispose()
    with told.engine.begin() as other:
        told.add(other)
    told.check(1)


def test_engines_are_forgotten(told: Told) -> None:
    gc.collect()
    before = len(alchemy_commits._known)
    for _ in range(5):
        engine = sqlalchemy.create_engine(told.engine.url)
        with engine.begin() as connection:
            told.add(connection)
        engine.dispose()
    del engine, connection
    gc.collect()
    assert len(alchemy_commits._known) <= before + 1


def test_a_waker_that_fails_spoils_no_commit(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("no thread")

    told.store._core.wakeups.wake = broken  # type: ignore[method-assign]
    acts: list[Callable[[], None]] = []
    with told.engine.begin() as connection:
        told.add(connection)
        alchemy_commits.after_commit(connection, lambda: acts.append(lambda: None))
    assert len(acts) == 1
    assert "no thread" in caplog.text
    assert len(told.queue.peek()) == 1
