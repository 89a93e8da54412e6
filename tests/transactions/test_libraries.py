"""What libraries do with their connections beyond the plain case: refusals of their own, savepoints, whole settings."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import rota
from rota.wakeups import queue_address

from .lenders import Django


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    with rota.open(url, busy_timeout=5) as store:
        yield store


@pytest.fixture
def made(url: str) -> Iterator[Any]:
    """SQLAlchemy's engine."""
    made = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield made
    made.dispose()


@pytest.fixture
def told(store: Any) -> list[str]:
    """Whom the store is told to wake."""
    addresses: list[str] = []
    store._core.wakeups.wake = addresses.append
    return addresses


def pending(store: Any) -> list[Any]:
    found = [one.payload for one in store.queue("q").peek(100)]
    store.queue("q").purge("pending")
    return found


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------


def test_what_sqlalchemy_refuses_is_misuse(store: Any, made: Any) -> None:
    """Closed, without an engine of its own, not begun: nothing was rolled back, and running it again is of no use."""
    queue = store.queue("q")
    connection = made.connect()
    connection.close()
    table = sqlalchemy.Table("x", sqlalchemy.MetaData(), sqlalchemy.Column("a", sqlalchemy.Integer))
    for tx in (connection, Session(), Session(binds={table: made}), Session(made, autobegin=False)):
        with pytest.raises(rota.TransactionError, match="tx= cannot be used here"):
            queue.enqueue(1, tx=tx)
        tx.close()
    assert pending(store) == []


def test_a_session_whose_flush_failed_is_aborted(store: Any, made: Any) -> None:
    """Until the caller rolls it back."""

    class Base(sqlalchemy.orm.DeclarativeBase):
        pass

    class Nowhere(Base):
        __tablename__ = "nowhere"
        id = sqlalchemy.orm.mapped_column(sqlalchemy.Integer, primary_key=True)

    with Session(made) as session:
        session.add(Nowhere(id=1))
        with pytest.raises(sqlalchemy.exc.SQLAlchemyError):
            session.flush()
        with pytest.raises(rota.TransactionAborted):
            store.queue("q").enqueue(1, tx=session)
        session.rollback()
        store.queue("q").enqueue(2, tx=session)
        session.commit()
    assert pending(store) == [2]


@pytest.mark.parametrize("mode", ["conditional_savepoint", "rollback_only", "create_savepoint"])
def test_a_session_inside_somebody_elses_transaction_wakes_nobody(
    store: Any, made: Any, told: list[str], mode: Any
) -> None:
    """As in tests: the session says that it has committed, the connection it is bound to has not."""
    with made.connect() as connection:
        outer = connection.begin()
        # On SQLite the driver begins with the first statement that writes, and takes a savepoint before it for one.
        connection.execute(sqlalchemy.text("INSERT INTO effects (kind, n) VALUES ('made', 1)"))
        with Session(bind=connection, join_transaction_mode=mode) as session:
            store.queue("q").enqueue(1, tx=session)
            session.commit()
            assert told == []
        outer.rollback()
    assert told == []
    assert pending(store) == []


def test_savepoints_of_a_session(store: Any, made: Any, told: list[str]) -> None:
    """A released one commits nothing and wakes nobody; what is nested in an undone one is undone with it."""
    queue, address = store.queue("q"), queue_address("q")

    def step(act: Any) -> tuple[list[Any], list[str]]:
        told.clear()
        session.execute(sqlalchemy.text("INSERT INTO effects (kind, n) VALUES ('made', 1)"))
        act()
        found = list(told)
        session.execute(sqlalchemy.text("DELETE FROM effects"))
        session.commit()
        return pending(store), found

    def released_then_undone() -> None:
        with session.begin_nested():
            queue.enqueue(1, tx=session)
        session.rollback()

    def released() -> None:
        with session.begin_nested():
            queue.enqueue(2, tx=session)
        assert told == []
        session.commit()

    def nested_in_an_undone_one() -> None:
        outer = session.begin_nested()
        with session.begin_nested():
            queue.enqueue(3, tx=session)
        outer.rollback()
        session.commit()

    def used_on_after_a_commit() -> None:
        queue.enqueue(4, tx=session)
        session.commit()
        queue.enqueue(5, tx=session)
        session.rollback()
        session.commit()

    with Session(made) as session:
        assert step(released_then_undone) == ([], [])
        assert step(released) == ([2], [address])
        assert step(nested_in_an_undone_one) == ([], [])
        assert step(used_on_after_a_commit) == ([4], [address])


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_stricter_isolation(store: Any, url: str, driver: str, level: str) -> None:
    """Everything works; a conflict says run it again."""

    async def main() -> None:
        made = create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"), isolation_level=level)
        async with rota.aopen(url) as store:
            queue, transport = store.queue("q"), store.transport("t")
            await queue.enqueue_many([1, 2])
            await transport.publish("g", 1)
            job, conflicting = await queue.claim_batch("w", 2)
            lease = await transport.claim("w")
            assert lease is not None
            async with AsyncSession(made) as session:
                await session.execute(sqlalchemy.text("SELECT count(*) FROM rota.jobs"))
                await queue.enqueue(3, key="k", tx=session)
                await transport.publish_many([("g", 2), ("h", 3)], tx=session)
                await job.ack(tx=session)
                await lease.ack(tx=session)
                await session.commit()
                await session.execute(sqlalchemy.text("SELECT count(*) FROM rota.jobs"))
                assert await conflicting.heartbeat(60)
                with pytest.raises(rota.TransactionAborted):
                    await conflicting.ack(tx=session)
                await session.rollback()
            assert await conflicting.ack()
            assert [one.payload for one in await queue.peek()] == [3]
            assert {lease.event for lease in await transport.claim_batch("v", 5)} == {2, 3}
        await made.dispose()

    asyncio.run(main())


# -- Django ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def django(url: str, store: Any) -> Iterator[Any]:
    lender = Django(url, store, None)
    yield lender
    lender.close()


def test_a_block_that_django_will_roll_back(store: Any, django: Any, told: list[str]) -> None:
    """Django's own cursor refuses there too: what is done could not be committed any more."""
    from django.db import transaction

    with transaction.atomic(using=django.alias):
        store.queue("q").enqueue(1, tx=django.tx)
        with pytest.raises(KeyError), transaction.atomic(using=django.alias, savepoint=False):
            raise KeyError
        with pytest.raises(rota.TransactionAborted, match="atomic"):
            store.queue("q").enqueue(2, tx=django.tx)
    assert told == []
    assert pending(store) == []


def test_blocks_of_django(store: Any, django: Any, told: list[str]) -> None:
    """Durable ones, nested ones, one undone by a flag, one by hand."""
    from django.db import transaction

    queue, address, using = store.queue("q"), queue_address("q"), django.alias
    with transaction.atomic(using=using, durable=True):
        queue.enqueue(1, tx=django.tx)
        with transaction.atomic(using=using):
            queue.enqueue(2, tx=django.tx)
        try:
            with transaction.atomic(using=using):
                queue.enqueue(3, tx=django.tx)
                raise KeyError
        except KeyError:
            pass
        assert told == []
    assert (pending(store), set(told)) == ([1, 2], {address})
    told.clear()
    with transaction.atomic(using=using):
        queue.enqueue(4, tx=django.tx)
        transaction.set_rollback(True, using=using)
    assert (pending(store), told) == ([], [])
    transaction.set_autocommit(False, using=using)
    queue.enqueue(5, tx=django.tx)
    transaction.commit(using=using)
    queue.enqueue(6, tx=django.tx)
    transaction.rollback(using=using)
    transaction.set_autocommit(True, using=using)
    assert pending(store) == [5]


def test_django_connections_stay_in_their_thread(store: Any, django: Any) -> None:
    from django.db import transaction

    failures: list[BaseException] = []

    def use() -> None:
        try:
            store.queue("q").enqueue(1, tx=django.tx)
        except rota.TransactionError as error:
            failures.append(error)

    with transaction.atomic(using=django.alias):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(10)
    assert len(failures) == 1
    assert pending(store) == []


# -- SQLite ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_deferred_transaction_waits_for_other_writers(store: Any, url: str, tmp_path: Path) -> None:
    """As Django and SQLAlchemy begin theirs: SQLite waits for a lock only for who has not read yet."""
    stop = threading.Event()
    store.queue("q").enqueue("seed", key="k")

    def write() -> None:
        with rota.open(url) as other:
            while not stop.is_set():
                other.queue("noise").enqueue(1)

    writing = threading.Thread(target=write)
    writing.start()
    mine = sqlite3.connect(tmp_path / "store.db", timeout=30, isolation_level=None)
    try:
        for number in range(60):
            mine.execute("BEGIN")
            # With a key, the verb looks before it writes.
            store.queue("q").enqueue(number, key=str(number), tx=mine)
            mine.execute("COMMIT")
    finally:
        stop.set()
        writing.join()
        mine.close()
    assert len(pending(store)) == 61


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_another_threads_and_a_closed_connection(store: Any, tmp_path: Path) -> None:
    mine = sqlite3.connect(tmp_path / "store.db")
    failures: list[str] = []

    def use() -> None:
        try:
            store.queue("q").enqueue(1, tx=mine)
        except rota.TransactionError as error:
            failures.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(10)
    mine.close()
    use()
    assert ["thread" in failures[0], "closed" in failures[1]] == [True, True]
    assert pending(store) == []


# -- psycopg -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Any]:
    with rota.open(postgres_url, busy_timeout=5) as store:
        yield store


def test_types_that_the_caller_taught_his_connection(postgres: Any, postgres_url: str) -> None:
    class Number(psycopg.adapt.Loader):
        def load(self, data: Any) -> Decimal:
            return Decimal(bytes(data).decode())

    class Text(psycopg.adapt.Loader):
        def load(self, data: Any) -> bytes:
            return bytes(data)

    class Shouting(psycopg.adapt.Dumper):
        def dump(self, obj: Any) -> bytes:
            return str(obj).upper().encode()

    queue = postgres.queue("q")
    queue.enqueue("x")
    job = queue.claim_one("w")
    with psycopg.connect(postgres_url) as mine:
        for name in ("int8", "int4"):
            mine.adapters.register_loader(name, Number)
        for name in ("text", "bool"):
            mine.adapters.register_loader(name, Text)
        mine.adapters.register_dumper(str, Shouting)
        job_id = queue.enqueue("abc", key="k", tx=mine)
        assert type(job_id) is int
        assert job.heartbeat(60, tx=mine)
        assert job.ack(tx=mine)
        assert mine.execute("SELECT 1::int8, 'a'::text").fetchone() == (Decimal(1), b"a")
    assert [(one.id, one.payload, one.key) for one in queue.jobs()] == [(job_id, "abc", "k")]


def test_pipelines(postgres: Any, postgres_url: str) -> None:
    """Statements of the caller's that were not answered yet; a failed one among them aborts the whole."""
    queue = postgres.queue("q")
    with psycopg.connect(postgres_url) as mine, mine.pipeline():
        mine.execute("SELECT 1")
        queue.enqueue(1, tx=mine)
        queue.enqueue_many([2, 3], tx=mine)
    with psycopg.connect(postgres_url, autocommit=True) as mine, mine.pipeline(), mine.transaction():
        queue.enqueue(4, tx=mine)
    with postgres.transaction() as tx, tx.connection.pipeline():
        tx.connection.execute("SELECT 1")
        queue.enqueue(5, tx=tx)
    assert pending(postgres) == [1, 2, 3, 4, 5]

    def fail() -> None:
        with psycopg.connect(postgres_url) as mine, mine.pipeline():
            mine.execute("SELECT 1 / 0")
            queue.enqueue(6, tx=mine)

    with pytest.raises(rota.TransactionAborted):
        fail()
    assert pending(postgres) == []


def test_other_cursors_and_settings(postgres: Any, postgres_url: str) -> None:
    """None of them is Rota's business."""
    queue = postgres.queue("q")
    for factory in (psycopg.ClientCursor, psycopg.RawCursor):
        with psycopg.connect(postgres_url, cursor_factory=factory, prepare_threshold=0) as mine:
            queue.enqueue(1, tx=mine)
    with psycopg.connect(postgres_url) as mine:
        for text in ("search_path TO pg_temp", "standard_conforming_strings TO off", "DateStyle TO 'SQL, DMY'"):
            mine.execute(f"SET {text}")
        queue.enqueue("a\\b'c", headers={"x": "y\\z"}, tx=mine)
    with psycopg.connect(postgres_url) as mine:
        mine.tpc_begin("two phases")
        queue.enqueue(3, tx=mine)
        mine.tpc_commit()
    assert pending(postgres) == [1, 1, "a\\b'c", 3]


def test_an_encoding_that_cannot_say_it(postgres: Any, postgres_url: str) -> None:
    queue = postgres.queue("q")
    with psycopg.connect(postgres_url, client_encoding="latin1") as mine:
        queue.enqueue("é", tx=mine)
        with pytest.raises(rota.TransactionError, match="cannot be used here"):
            queue.enqueue("€", tx=mine)
        queue.enqueue("è", tx=mine)
    assert pending(postgres) == ["é", "è"]


def test_a_transaction_that_only_reads(postgres: Any, postgres_url: str) -> None:
    """It is misuse, not a server that is out of reach."""
    with psycopg.connect(postgres_url) as mine:
        mine.read_only = True
        with pytest.raises(rota.TransactionError, match="read-only"):
            postgres.queue("q").enqueue(1, tx=mine)
        mine.rollback()
    with postgres.transaction() as tx:
        tx.connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(rota.TransactionError, match="read-only"):
            postgres.queue("q").enqueue(1, tx=tx)
        tx.rollback()
    assert pending(postgres) == []


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"])
def test_timeouts_of_the_server_abort(postgres: Any, postgres_url: str, setting: str) -> None:
    queue = postgres.queue("q")
    queue.enqueue(1)
    job = queue.claim_one("w")
    with psycopg.connect(postgres_url) as first:
        assert job.heartbeat(60, tx=first)
        second = psycopg.connect(postgres_url, options=f"-c {setting}=100")
        second.execute("SELECT 1")
        if setting.startswith("idle"):
            time.sleep(0.5)
        with pytest.raises(rota.TransactionAborted):
            job.ack(tx=second)
        second.close()
        first.rollback()
    assert job.ack()


def test_a_key_in_doubt(postgres: Any, postgres_url: str) -> None:
    """Who needs a key that an open transaction has taken waits for it; rolled back, it is free: no id of nothing."""
    queue, found = postgres.queue("q"), []
    with psycopg.connect(postgres_url) as mine:
        lost = queue.enqueue("rolled back", key="k", tx=mine)
        waiting = threading.Thread(target=lambda: found.append(queue.enqueue("mine", key="k")))
        waiting.start()
        time.sleep(0.1)
        assert found == []
        mine.rollback()
        waiting.join(10)
    assert found != [lost]
    assert [one.id for one in queue.peek()] == found


# -- asyncpg -----------------------------------------------------------------------------------------------------------


def test_what_asyncpg_refuses_is_misuse(postgres_url: str) -> None:
    """Two verbs at once on one connection, a connection given back to its pool: nothing was rolled back."""

    async def main() -> None:
        async with rota.aopen(postgres_url) as store:
            queue = store.queue("q")
            async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
                async with pool.acquire() as lent, lent.transaction():
                    # Where it leads is asked once, on connections that take their time to be made.
                    await queue.enqueue("first", tx=lent)
                    ends = await asyncio.gather(*(queue.enqueue(n, tx=lent) for n in range(3)), return_exceptions=True)
                    refused = [end for end in ends if isinstance(end, BaseException)]
                    assert [type(one) for one in refused] == [rota.TransactionError] * 2
                    await queue.enqueue(3, tx=lent)
                with pytest.raises(rota.TransactionError, match="released back to the pool"):
                    await queue.enqueue(4, tx=lent)
            assert len(await queue.peek()) == 3

    asyncio.run(main())
