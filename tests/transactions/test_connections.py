"""X4: what is accepted as ``tx=``, what is refused and how, and who is woken."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.testing.colours import unwrap
from rota.wakeups import queue_address

from .lenders import ON_POSTGRES
from .workings import MADE, Place

# -- On every kind of connection ---------------------------------------------------------------------------------------


def test_the_caller_commits(place: Place) -> None:
    """Nothing is there before, nor for others; then all of it, own rows and settlements alike."""
    queue, transport = place.queue, place.transport
    queue.enqueue_many(["a", "b", "c"])
    done, again, held = queue.claim_batch("w", 3)
    transport.publish_many([("g", 1), ("h", 2)])
    acked, kept = transport.claim_batch("w", 2)
    with rota.open(place.url) as outside:
        place.lender.begin()
        tx = place.lender.tx
        place.note(MADE, 1)
        ids = [queue.enqueue(1, tx=tx), *queue.enqueue_many([2, 3], tx=tx)]
        assert queue.enqueue("twice", key="k", headers={"a": "é"}, tx=tx) == queue.enqueue(0, key="k", tx=tx)
        transport.publish_many([("x", 'quo"te\\{}'), ("y", None)], tx=tx)
        assert done.ack(tx=tx)
        assert again.retry("later", 60, tx=tx)
        assert queue.ack_batch([held], "w", tx=tx) == 1
        assert acked.ack(tx=tx)
        assert kept.extend(100, tx=tx).deadline > kept.deadline
        with pytest.raises(rota.LeaseLost):
            done.ack(tx=tx)
        seen = outside.queue("q")
        assert seen.peek() == []
        assert seen.stats().processing == 3
        place.lender.commit()
        assert ids == sorted(ids)
        assert [one.payload for one in seen.peek()] == [1, 2, 3, "twice"]
        assert seen.peek()[-1].headers == {"a": "é"}
        assert seen.stats().processing == 0
        found = outside.transport("t")
        assert [group.group_id for group in found.groups()] == ["h", "x", "y"]
        assert found.peek("x")[0].event == 'quo"te\\{}'


def test_a_rollback_wakes_nobody(place: Place) -> None:
    """Nor does a savepoint that is undone; a commit wakes who waits here, where somebody tells of it."""

    class Counting:
        address = queue_address("q")
        count = 0

        def clear(self) -> None: ...

        def wake(self) -> None:
            self.count += 1

    waiter = Counting()
    place.queue.enqueue("seed")
    place.queue.claim_one("w").ack()
    wakeups = place.store._core.wakeups
    wakeups.add(waiter)
    time.sleep(0.3)
    before = waiter.count
    for _ in range(3):
        place.lender.begin()
        place.queue.enqueue(1, tx=place.lender.tx)
        place.lender.rollback()
    place.lender.begin()
    place.note(MADE, 1)
    undo = place.lender.savepoint()
    place.queue.enqueue(1, tx=place.lender.tx)
    undo()
    place.lender.rollback()
    time.sleep(0.3)
    assert waiter.count == before
    place.lender.begin()
    place.queue.enqueue(1, tx=place.lender.tx)
    assert waiter.count == before
    place.lender.commit()
    assert (waiter.count > before) or not place.lender.tells
    wakeups.remove(waiter)


def test_a_waiting_claim_finds_what_was_committed(place: Place) -> None:
    """Within a second, whether it was told or polls (X7)."""
    with rota.open(place.url) as others:
        place.lender.begin()
        place.queue.enqueue("seed", tx=place.lender.tx)
        place.lender.commit()
        assert others.queue("q").claim_one("v").ack()
        place.lender.begin()
        place.queue.enqueue(1, tx=place.lender.tx)
        place.lender.commit()
        begun = time.monotonic()
        assert others.queue("q").claim_one("v", wait=5).payload == 1
        assert time.monotonic() - begun < 1


# -- Refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Any]:
    with rota.open(f"sqlite:///{tmp_path}/store.db", busy_timeout=0.2) as store:
        yield store


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[Any]:
    with rota.open(postgres_url) as store:
        yield store


def refused(store: Any, tx: Any, words: str, kind: type[Exception] = rota.TransactionError) -> None:
    with pytest.raises(kind, match=words):
        store.queue("q").enqueue(1, tx=tx)
    assert store.queue("q").peek() == []


def test_autocommit_is_refused_on_sqlite(sqlite_store: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    refused(sqlite_store, connection, "BEGIN IMMEDIATE")
    connection.execute("BEGIN")
    sqlite_store.queue("q").enqueue(2, tx=connection)
    connection.execute("COMMIT")
    assert [one.payload for one in sqlite_store.queue("q").peek()] == [2]
    connection.close()


def test_autocommit_is_refused_on_postgres(postgres_store: Any, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        refused(postgres_store, connection, "connection.transaction")
        with connection.transaction():
            postgres_store.queue("q").enqueue(2, tx=connection)
    assert [one.payload for one in postgres_store.queue("q").peek()] == [2]


@pytest.mark.parametrize("autocommitting", ["connection", "django"])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_libraries_in_autocommit(url: str, autocommitting: str) -> None:
    from .lenders import Django

    with rota.open(url) as store:
        if autocommitting == "django":
            lender = Django(url, store, None)
            refused(store, lender.tx, "transaction.atomic")
            lender.close()
            return
        import sqlalchemy

        made = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with made.connect() as connection:
            refused(store, connection, "AUTOCOMMIT")
        made.dispose()


@pytest.mark.filterwarnings("ignore:coroutine 'connect' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_what_sqlalchemy_refuses_is_told_as_misuse(url: str) -> None:
    """Running it again would not help; but for a session whose transaction has failed before."""
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    from sqlalchemy.orm import DeclarativeBase, Session

    class Base(DeclarativeBase): ...

    class Never(Base):
        __tablename__ = "never"
        n = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)

    made = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    aurl = url.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")
    with rota.open(url) as store, Session() as unbound, Session(made) as session:
        refused(store, unbound, "bind_arguments")
        closed = made.connect()
        closed.close()
        refused(store, closed, "closed")
        refused(store, AsyncSession(create_async_engine(aurl)).sync_session, "run_sync")
        session.add(Never(n=1))
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            session.flush()
        refused(store, session, "rolled back", rota.TransactionAborted)
        session.rollback()
        store.queue("q").enqueue(2, tx=session)
        session.commit()
        assert [one.payload for one in store.queue("q").peek()] == [2]
    made.dispose()


def test_an_async_session_in_its_run_sync(url_of_postgres: str) -> None:
    """Sync code on an async engine: the sync facade with the sync session."""
    import asyncio

    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def main() -> None:
        engine = create_async_engine(url_of_postgres.replace("postgresql:", "postgresql+asyncpg:"))
        with rota.open(url_of_postgres) as store:
            async with AsyncSession(engine) as session, session.begin():
                await session.run_sync(lambda one: store.queue("q").enqueue(1, tx=one))
                assert store.queue("q").peek() == []
            assert [one.payload for one in store.queue("q").peek()] == [1]
        await engine.dispose()

    asyncio.run(main())


def test_a_closed_connection_of_asyncpg(postgres_url: str) -> None:
    """Also one that was cut: it is not advised to begin a transaction on it."""
    import asyncio

    import asyncpg

    async def main() -> None:
        async with rota.aopen(postgres_url) as store:
            connection = await asyncpg.connect(postgres_url)
            await connection.close()
            with pytest.raises(rota.TransactionAborted):
                await store.queue("q").enqueue(1, tx=connection)

    asyncio.run(main())


def test_another_file_is_refused(sqlite_store: Any, tmp_path: Path) -> None:
    for other in (":memory:", tmp_path / "other.db"):
        connection = sqlite3.connect(other)
        refused(sqlite_store, connection, "only in one file")
        connection.close()
    # The same file by another name is the same file.
    (tmp_path / "link").symlink_to(tmp_path / "store.db")
    connection = sqlite3.connect(tmp_path / "link")
    sqlite_store.queue("q").enqueue(2, tx=connection)
    connection.commit()
    assert [one.payload for one in sqlite_store.queue("q").peek()] == [2]
    connection.close()


def test_another_database_is_refused(postgres_store: Any, postgres_url: str, empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        refused(postgres_store, connection, "only in one database")
        # What was asked of it did not spoil it.
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_wrong_engine_is_refused(sqlite_store: Any, postgres_store: Any, postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url) as connection:
        refused(sqlite_store, connection, "cannot lead to", TypeError)
    mine = sqlite3.connect(tmp_path / "store.db")
    refused(postgres_store, mine, "cannot lead to", TypeError)
    with rota.open("memory://") as store:
        refused(store, mine, "must be a transaction", TypeError)
    mine.close()


def test_the_other_colour_is_refused(postgres_url: str) -> None:
    for kind in ON_POSTGRES:
        other = kind.asynchronous
        with Place(postgres_url, kind) as place:
            place.lender.begin()
            store = place.store.as_sync() if other else rota.open(postgres_url).as_async()
            if other:
                with pytest.raises(TypeError, match="facade"):
                    store.queue("q").enqueue(1, tx=unwrap(place.lender.tx))
            else:
                coroutine = store.queue("q").enqueue(1, tx=place.lender.tx)
                with pytest.raises(TypeError, match="facade"):
                    coroutine.send(None)
                store.as_sync().close()
            place.lender.rollback()


def test_rota_leaves_the_settings_alone(sqlite_store: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    sqlite_store.queue("q").enqueue(1, key="k", tx=connection)
    assert connection.in_transaction
    assert (connection.row_factory, connection.text_factory) == (sqlite3.Row, bytes)
    assert connection.isolation_level == ""
    connection.rollback()
    connection.close()
    assert sqlite_store.queue("q").peek() == []


def test_another_writer_is_busy_not_waited_for_ever(sqlite_store: Any, tmp_path: Path) -> None:
    """SQLite has one writer: within the time the connection was given for it."""
    mine = sqlite3.connect(tmp_path / "store.db", timeout=0.1)
    with sqlite_store.transaction() as tx:
        tx.enqueue("q", 1)
        with pytest.raises(rota.EngineBusy):
            sqlite_store.queue("q").enqueue(2, tx=mine)
    mine.rollback()
    sqlite_store.queue("q").enqueue(3, tx=mine)
    begun = time.monotonic()
    with pytest.raises(rota.EngineBusy):
        sqlite_store.queue("q").enqueue(4)
    assert time.monotonic() - begun < 2
    mine.commit()
    mine.close()
    assert [one.payload for one in sqlite_store.queue("q").peek()] == [1, 3]


def test_a_snapshot_that_is_too_old(sqlite_store: Any, tmp_path: Path) -> None:
    """A transaction that began by reading, and others wrote since: it has to be run again."""
    mine = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    mine.execute("BEGIN")
    mine.execute("SELECT count(*) FROM rota_jobs").fetchall()
    sqlite_store.queue("q").enqueue(1)
    with pytest.raises(rota.TransactionAborted, match="BEGIN IMMEDIATE"):
        sqlite_store.queue("q").enqueue(2, tx=mine)
    mine.execute("ROLLBACK")
    mine.close()


def test_a_session_closed_without_a_word(url_of_postgres: str) -> None:
    """What a closed session never committed wakes nobody when the same session commits something else."""
    from .lenders import AlchemySession

    with Place(url_of_postgres, AlchemySession) as place:
        woken: list[str] = []
        place.store._core.wakeups.wake = woken.append
        place.queue.enqueue(1, tx=place.lender.tx)
        place.lender.tx.close()
        place.note(MADE, 5)
        place.lender.commit()
        assert woken == []
        place.queue.enqueue(2, tx=place.lender.tx)
        place.lender.commit()
        assert woken == [queue_address("q")]


@pytest.fixture
def url_of_postgres(postgres_url: str) -> str:
    from .lenders import DROP, TABLE

    with psycopg.connect(postgres_url) as connection:
        connection.execute(DROP)
        connection.execute(TABLE)
    return postgres_url


def test_pools_of_asyncpg(postgres_url: str) -> None:
    """What a pool of asyncpg lends is a connection too."""
    import asyncio

    import asyncpg

    async def main() -> None:
        async with rota.aopen(postgres_url) as store, asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
            async with pool.acquire() as connection:
                with pytest.raises(rota.TransactionError, match=r"connection\.transaction"):
                    await store.queue("q").enqueue(0, tx=connection)
                async with connection.transaction():
                    await store.queue("q").enqueue(1, tx=connection)
            assert [one.payload for one in await store.queue("q").peek()] == [1]

    asyncio.run(main())
