"""What the caller has set on the connection he lends, and in which state it is: it works, or is refused saying why."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

import rota
from postgres.server import Server

from .lenders import Django
from .workings import Place


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rota.open(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=5) as store:
        yield store


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., sqlite3.Connection]]:
    made: list[sqlite3.Connection] = []

    def new(name: Any = tmp_path / "store.db", **options: Any) -> sqlite3.Connection:
        made.append(sqlite3.connect(name, **options))
        return made[-1]

    yield new
    for connection in made:
        connection.close()


# -- Behind a proxy ----------------------------------------------------------------------------------------------------


class Traced:
    """As ``wrapt`` makes them, with which OpenTelemetry and others stand before connections."""

    def __init__(self, wrapped: Any) -> None:
        self.__dict__["__wrapped__"] = wrapped

    @property
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def test_instrumented_connections(store: Any, connect: Any, postgres_url: str) -> None:
    mine = connect()
    assert type(Traced(mine)) is not sqlite3.Connection
    store.queue("q").enqueue(1, tx=Traced(Traced(mine)))
    mine.commit()
    assert [job.payload for job in store.queue("q").peek()] == [1]

    async def lend() -> None:
        async with rota.aopen(postgres_url) as store:
            lent = await asyncpg.connect(postgres_url)
            async with lent.transaction():
                await store.queue("q").enqueue(1, tx=Traced(lent))
            await lent.close()
            with psycopg.connect(postgres_url) as mine:
                store.as_sync().queue("q").enqueue(2, tx=Traced(mine))
            assert [job.payload for job in await store.queue("q").peek()] == [1, 2]

    asyncio.run(lend())
    with pytest.raises(TypeError, match=r"got .*Traced$"):
        store.queue("q").enqueue(1, tx=Traced(object()))


def test_instrumented_connections_of_django(tmp_path: Path, postgres_url: str) -> None:
    rota.open(f"sqlite:///{tmp_path / 'store.db'}").close()
    for url in (f"sqlite:///{tmp_path / 'store.db'}", postgres_url):
        with Place(url, Django) as place:
            place.lender.begin()
            real, place.lender.tx.connection = place.lender.tx.connection, Traced(place.lender.tx.connection)
            place.store.queue("q").enqueue(1, tx=place.lender.tx)
            place.lender.tx.connection = real
            place.lender.commit()
            assert [job.payload for job in place.store.queue("q").peek()] == [1]


# -- SQLite ------------------------------------------------------------------------------------------------------------


def test_a_connection_that_only_reads(store: Any, connect: Any, tmp_path: Path) -> None:
    """It is misuse: nothing was rolled back, and running it again is of no use. As on PostgreSQL."""
    asked = connect()
    asked.execute("PRAGMA query_only = ON")
    for mine in (asked, connect(f"file:{tmp_path / 'store.db'}?mode=ro", uri=True)):
        with pytest.raises(rota.TransactionError, match="cannot be used here: attempt to write a readonly database"):
            store.queue("q").enqueue(1, tx=mine)
        mine.rollback()
    asked.execute("PRAGMA query_only = OFF")
    store.queue("q").enqueue(2, tx=asked)
    asked.commit()
    assert [job.payload for job in store.queue("q").peek()] == [2]


def test_a_transaction_that_was_never_begun_is_not_rolled_back(store: Any, connect: Any, tmp_path: Path) -> None:
    mine = connect(f"file:{tmp_path / 'store.db'}?nolock=1", uri=True)
    with pytest.raises(rota.EngineUnavailable, match="nothing was changed"):
        store.queue("q").enqueue(1, tx=mine)


def test_rows_that_were_not_fetched(store: Any, connect: Any) -> None:
    """SQLite sets no savepoint and commits nothing meanwhile: no other process is to blame, and no wait helps."""
    mine = connect()
    mine.execute("CREATE TABLE mine (a INTEGER)")
    rows = mine.execute("INSERT INTO mine VALUES (1), (2), (3) RETURNING a")
    assert rows.fetchone() == (1,)
    with pytest.raises(rota.TransactionError, match=r"RETURNING.*fetch them first"):
        store.queue("q").enqueue(1, tx=mine)
    assert rows.fetchall() == [(2,), (3,)]
    store.queue("q").enqueue(2, tx=mine)
    mine.commit()

    def leave() -> None:
        with store.transaction() as tx:
            store.queue("q").enqueue(3, tx=tx)
            kept.append(tx.connection.execute("INSERT INTO mine VALUES (4), (5) RETURNING a"))
            kept[0].fetchone()

    kept: list[Any] = []
    with pytest.raises(rota.TransactionError, match=r"RETURNING.*fetch them first"):
        leave()
    store.queue("q").enqueue(4)
    assert [job.payload for job in store.queue("q").peek()] == [2, 4]
    assert mine.execute("SELECT count(*) FROM mine").fetchone() == (3,)


def test_a_cursor_that_is_kept_stops_no_writer(store: Any, tmp_path: Path) -> None:
    """SQLite shows a statement that was not read to its end what was there when it began; nobody writes from there."""
    queue = store.queue("q")
    with store.transaction() as tx:
        tx.connection.execute("CREATE TABLE mine (a INTEGER)")
        tx.connection.execute("INSERT INTO mine VALUES (1), (2), (3)")
    for number in range(2):
        with store.transaction() as tx:
            kept = tx.connection.execute("SELECT a FROM mine")
            assert kept.fetchone() == (1,)
            queue.enqueue("in it", tx=tx)
        with rota.open(f"sqlite:///{tmp_path / 'store.db'}") as other:
            other.queue("q").enqueue("another process")
        if number:
            queue.enqueue("after it")
        else:
            with store.transaction() as tx:
                queue.enqueue("after it", tx=tx)
        del kept
    assert [job.payload for job in queue.peek(9)] == ["in it", "another process", "after it"] * 2


def test_a_file_that_was_deleted_or_replaced(store: Any, connect: Any, tmp_path: Path) -> None:
    """What is stored there nobody would ever find; a connection opened before says the same name."""
    mine = connect()
    assert mine.execute("SELECT count(*) FROM rota_jobs").fetchone() == (0,)
    os.unlink(tmp_path / "store.db")
    with pytest.raises(rota.EngineUnavailable, match="deleted or replaced"):
        store.queue("q").enqueue(1, tx=mine)
    (tmp_path / "store.db").touch()
    for one in (mine, connect()):
        with pytest.raises(rota.EngineUnavailable, match="deleted or replaced"):
            store.queue("q").enqueue(1, tx=one)


@pytest.mark.parametrize(
    ("kind", "converter"),
    [
        ("TEXT", lambda data: data.decode().upper()),
        ("text", lambda data: {}[data]),
        ("INTEGER", lambda data: f"<{data.decode()}>"),
        ("integer", lambda data: sqlite3.Binary(data) and int("x")),
    ],
)
@pytest.mark.parametrize("library", ["sqlite3", "sqlalchemy"])
def test_converters_that_change_what_is_read(
    store: Any, connect: Any, tmp_path: Path, library: str, kind: str, converter: Any
) -> None:
    queue = store.queue("q")
    queue.enqueue("abc")
    job = queue.claim_one("w")
    sqlite3.register_converter(kind, converter)
    try:
        options = {"detect_types": sqlite3.PARSE_DECLTYPES}
        if library == "sqlite3":
            mine = connect(**options)
            with pytest.raises(rota.TransactionError, match="converter registered for INTEGER or TEXT"):
                job.ack(tx=mine)
        else:
            engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'store.db'}", connect_args=options)
            with (
                engine.connect() as mine,
                pytest.raises(rota.TransactionError, match="converter registered for INTEGER or TEXT"),
            ):
                job.ack(tx=mine)
            engine.dispose()
        # Who does not ask for them has none.
        plain = connect()
        assert job.heartbeat(60, tx=plain)
        plain.commit()
    finally:
        del sqlite3.converters[kind.upper()]
    mine = connect(detect_types=sqlite3.PARSE_DECLTYPES)
    assert job.ack(tx=mine)
    mine.commit()


def test_converters_that_change_nothing(store: Any, connect: Any) -> None:
    sqlite3.register_converter("INTEGER", int)
    try:
        mine = connect(detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
        store.queue("q").enqueue(1, key="k", tx=mine)
        mine.commit()
    finally:
        del sqlite3.converters["INTEGER"]
    assert [job.payload for job in store.queue("q").peek()] == [1]


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def test_encodings_where_bytes_are_kept_as_they_come(postgres_server: Server) -> None:
    """A server made in the C locale has such databases, and its clients take their encoding from it."""
    name = "bytes_as_they_come"
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    url = postgres_server.dsn(name)
    try:
        with rota.open(url, migrate=True) as store:
            queue = store.queue("q")
            for encoding in ("SQL_ASCII", "UTF8"):
                with psycopg.connect(url, client_encoding=encoding) as mine:
                    queue.enqueue("€", key=encoding, tx=mine)
                    queue.enqueue_many(["é"], tx=mine)
                job = queue.claim_one("w")
                with psycopg.connect(url, client_encoding=encoding) as mine:
                    assert job.heartbeat(60, tx=mine)
                    assert job.fail("日本", tx=mine)
                assert queue.dead_letters(9)[-1].last_error == "日本"
            with (
                psycopg.connect(url, client_encoding="latin1") as mine,
                pytest.raises(rota.TransactionError, match="client_encoding iso8859-1"),
            ):
                queue.enqueue("é", tx=mine)

            async def others() -> None:
                queue = store.as_async().queue("q")
                mine = await asyncpg.connect(url)
                async with mine.transaction():
                    await queue.enqueue("asyncpg €", tx=mine)
                await mine.close()
                async with await psycopg.AsyncConnection.connect(url) as mine:
                    await queue.enqueue("psycopg €", tx=mine)

            asyncio.run(others())
            assert [job.payload for job in queue.peek(9)] == ["€", "é", "asyncpg €", "psycopg €"]
    finally:
        postgres_server.drop_database(name)


TAUGHT = """
import asyncio, sys
import psycopg
from psycopg.types.json import JsonbDumper
from psycopg.types.string import StrDumper

class Odd(psycopg.adapt.Loader):
    def load(self, data):
        return {bytes(data)}

def teach():
    psycopg.adapters.register_dumper(str, StrDumper)
    psycopg.adapters.register_dumper(list, JsonbDumper)
    psycopg.adapters.register_dumper(bool, JsonbDumper)
    for name in ("int8", "text", "bool"):
        psycopg.adapters.register_loader(name, Odd)

if sys.argv[2] == "before":
    teach()
import rota
store = rota.open(sys.argv[1])
if sys.argv[2] == "after":
    teach()
queue, transport = store.queue("q"), store.transport("t")
with store.transaction() as tx:
    assert queue.enqueue("a", key="k", tx=tx) == queue.enqueue("a", key="k", tx=tx)
    # His own statements are as he wants them.
    assert tx.connection.execute("SELECT %s", [[1]]).fetchone() == ([1],)
    assert tx.connection.execute("SELECT 'a'::text").fetchone() == ({b"a"},)
with psycopg.connect(sys.argv[1]) as mine:
    queue.enqueue_many([1, rota.Item(2, name="n")], tx=mine)
jobs = queue.claim_batch("w", 9)
assert [job.payload for job in jobs] == ["a", 1, 2]
assert jobs[0].ack() is True
assert queue.ack_batch(jobs[1:], "w") == 2
transport.publish("g", "e")
assert transport.claim("w").ack() is True

async def main():
    async with rota.aopen(sys.argv[1]) as store:
        queue = store.queue("q")
        assert type(await queue.enqueue("b")) is int
        assert await (await queue.claim_one("w")).ack()

asyncio.run(main())
assert queue.stats().pending == 0
store.close()
print("well")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_types_that_the_program_taught_psycopg(postgres_url: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAUGHT, postgres_url, when], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("well\n", "")
