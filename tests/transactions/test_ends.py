"""How a transaction of the store's own can end: committed, not, or nobody knows; and what it leaves usable."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from postgres.proxy import Proxy
from postgres.server import Server
from rota.testing.colours import Colour


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    proxy = Proxy(postgres_url)
    yield proxy
    proxy.close()


def in_transaction(store: Any, act: Callable[[Any], object]) -> None:
    with store.transaction() as tx:
        act(tx)


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def test_cut_while_committing_nobody_knows(colour: Colour, proxy: Proxy, postgres_url: str) -> None:
    """The server has committed, its answer is lost. With a key the whole is repeated safely."""
    store = colour.open(rota.open, rota.aopen, url=proxy.url, notify=False)
    queue = store.queue("q")
    queue.enqueue("first")

    def act(tx: Any) -> None:
        queue.enqueue("once", key="k", tx=tx)
        proxy.cut_reply_to = lambda data: b"COMMIT" in data

    with pytest.raises(rota.OutcomeUnknown):
        in_transaction(store, act)
    in_transaction(store, lambda tx: queue.enqueue("once", key="k", tx=tx))
    assert [one.payload for one in queue.peek()] == ["first", "once"]


def test_cut_before_the_commit_nothing_happened(colour: Colour, proxy: Proxy) -> None:
    store = colour.open(rota.open, rota.aopen, url=proxy.url, notify=False)
    queue = store.queue("q")
    queue.enqueue("first")

    def act(tx: Any) -> None:
        queue.enqueue("never", tx=tx)
        proxy.cut()
        time.sleep(0.1)

    for then in (lambda tx: None, lambda tx: queue.enqueue("never", tx=tx)):
        with pytest.raises(rota.TransactionAborted):
            in_transaction(store, lambda tx, then=then: (act(tx), then(tx)))
    in_transaction(store, lambda tx: queue.enqueue("second", tx=tx))
    assert [one.payload for one in queue.peek()] == ["first", "second"]


def test_idle_for_too_long_is_not_committed(
    postgres_url: str, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's goodbye may cross the COMMIT on its way: it was said before, so nothing is left open."""
    monkeypatch.setattr("rota.engines.postgres.transactions.is_alive", lambda connection: True)
    with rota.open(postgres_url, notify=False) as store:
        queue = store.queue("q")

        def idle(tx: Any) -> None:
            queue.enqueue(1, tx=tx)
            tx.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 50")
            there = f"SELECT 1 FROM pg_stat_activity WHERE pid = {tx.connection.info.backend_pid}"
            while postgres_server.execute(there):
                time.sleep(0.02)

        with pytest.raises(rota.TransactionAborted, match="idle-in-transaction timeout"):
            in_transaction(store, idle)
        assert queue.peek() == []


def test_a_failed_statement_is_never_committed_silently(colour: Colour, postgres_url: str) -> None:
    """COMMIT after an error rolls back, and PostgreSQL does not call that an error."""
    store = colour.open(rota.open, rota.aopen, url=postgres_url, notify=False)
    queue = store.queue("q")

    def act(tx: Any) -> None:
        queue.enqueue("never", tx=tx)
        running = tx.connection.execute
        try:
            colour._runner.call(running, "SELECT 1 / 0") if colour._runner else running("SELECT 1 / 0")
        except Exception:
            pass

    with pytest.raises(rota.TransactionAborted):
        in_transaction(store, act)
    assert queue.peek() == []


def test_in_a_savepoint_a_failed_statement_is_undone(colour: Colour, postgres_url: str) -> None:
    store = colour.open(rota.open, rota.aopen, url=postgres_url, notify=False)
    queue = store.queue("q")
    with store.transaction() as tx:
        queue.enqueue(1, tx=tx)

        def fail() -> None:
            with tx.savepoint():
                queue.enqueue("never", tx=tx)
                run = tx.connection.execute
                colour._runner.call(run, "SELECT 1 / 0") if colour._runner else run("SELECT 1 / 0")

        with pytest.raises(Exception, match="division"):
            fail()
        queue.enqueue(2, tx=tx)
    assert [one.payload for one in queue.peek()] == [1, 2]


def test_a_deferred_constraint_refuses_the_commit(colour: Colour, postgres_url: str) -> None:
    store = colour.open(rota.open, rota.aopen, url=postgres_url, notify=False)
    queue = store.queue("q")

    def act(tx: Any) -> None:
        run = tx.connection.execute
        for text in (
            "CREATE TEMP TABLE parents (id int PRIMARY KEY) ON COMMIT DROP",
            "CREATE TEMP TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP",
            "INSERT INTO children VALUES (1)",
        ):
            colour._runner.call(run, text) if colour._runner else run(text)
        queue.enqueue("never", tx=tx)

    with pytest.raises(rota.TransactionAborted):
        in_transaction(store, act)
    assert queue.peek() == []


def test_transactions_do_not_use_up_the_connections_of_verbs(postgres_url: str) -> None:
    """With one connection for verbs, reads go on inside a transaction."""
    with rota.open(postgres_url, pool_size=1, busy_timeout=0.5) as store:
        queue = store.queue("q")
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            tx.enqueue("unknown", 1)
            assert queue.peek() == []

            def other() -> None:
                with store.transaction():
                    pass

            failures: list[BaseException] = []

            def tried() -> None:
                try:
                    other()
                except rota.EngineBusy as error:
                    failures.append(error)

            thread = threading.Thread(target=tried)
            thread.start()
            thread.join(10)
            assert len(failures) == 1
        other()


# -- SQLite ------------------------------------------------------------------------------------------------------------


def test_transactions_in_a_row_do_not_shut_out_other_processes(tmp_path: Path) -> None:
    """They look whether the file is free again and again, and it is not free for an instant only."""
    url, over = f"sqlite:///{tmp_path}/s.db?busy_timeout=20", threading.Event()
    begun, waited = [0], list[int]()
    # Two stores of one process know as little of each other.
    with rota.open(url) as store, rota.open(url) as other:

        def in_a_row() -> None:
            while not over.is_set():
                with store.transaction():
                    begun[0] += 1
                    time.sleep(0.2)

        thread = threading.Thread(target=in_a_row)
        thread.start()
        try:
            for _ in range(5):
                # In the middle of one.
                time.sleep(0.05)
                before = begun[0]
                other.queue("q").enqueue(1)
                waited.append(begun[0] - before)
        finally:
            over.set()
            thread.join()
    assert sum(waited) < 20


def test_a_deferred_foreign_key_refuses_the_commit(colour: Colour, tmp_path: Path) -> None:
    """Nothing is committed then, and that is known for sure."""
    store = colour.open(rota.open, rota.aopen, url=f"sqlite:///{tmp_path}/s.db")
    queue = store.queue("q")
    core: Any = store._core
    # Where SQLite is built to look at foreign keys unasked.
    core.engine._writer.execute("PRAGMA foreign_keys = on")

    def act(tx: Any) -> None:
        tx.connection.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        tx.connection.execute("CREATE TABLE children (id REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
        tx.connection.execute("INSERT INTO children VALUES (1)")
        queue.enqueue("never", tx=tx)

    with pytest.raises(rota.TransactionAborted, match="FOREIGN KEY"):
        in_transaction(store, act)
    assert queue.peek() == []
    in_transaction(store, lambda tx: queue.enqueue("next", tx=tx))
    assert [one.payload for one in queue.peek()] == ["next"]


def test_others_are_busy_within_the_timeout(tmp_path: Path) -> None:
    """An open transaction is the one writer; other threads and processes are told so in time, and readers go on."""
    with rota.open(f"sqlite:///{tmp_path}/s.db", busy_timeout=0.3) as store:
        queue = store.queue("q")
        with store.transaction() as tx, rota.open(f"sqlite:///{tmp_path}/s.db", busy_timeout=0.3) as second:
            queue.enqueue(1, tx=tx)
            ends: list[float] = []

            def write() -> None:
                begun = time.monotonic()
                for other in (store, second):
                    with pytest.raises(rota.EngineBusy):
                        other.queue("q").enqueue(2)
                ends.append(time.monotonic() - begun)

            thread = threading.Thread(target=write)
            thread.start()
            thread.join(10)
            assert len(ends) == 1
            assert ends[0] < 2
            assert second.queue("q").peek() == []
        assert [one.payload for one in queue.peek()] == [1]


def test_a_verb_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The transaction goes on after it: each verb has a savepoint of its own."""
    with rota.open(f"sqlite:///{tmp_path}/s.db") as store:
        transport = store.transport("t", max_deliveries=3)
        transport.publish("g", 0)
        other = rota.open(f"sqlite:///{tmp_path}/s.db")
        with store.transaction() as tx:
            transport.publish("g", 1, tx=tx)
            with pytest.raises(ValueError, match="max_deliveries"):
                other.transport("t", max_deliveries=4).publish("g", 2, tx=tx.connection)
            transport.publish("g", 3, tx=tx)
        assert [one.event for one in transport.peek("g")] == [0, 1, 3]
        other.close()


def test_ended_by_a_statement_of_the_callers(tmp_path: Path) -> None:
    with rota.open(f"sqlite:///{tmp_path}/s.db") as store:
        queue = store.queue("q")

        def act(tx: Any) -> None:
            queue.enqueue(1, tx=tx)
            tx.connection.execute("ROLLBACK")
            with pytest.raises(rota.TransactionError, match="a statement of yours"):
                queue.enqueue(2, tx=tx)

        with pytest.raises(rota.TransactionError, match="a statement of yours"):
            in_transaction(store, act)
        queue.enqueue(3)
        assert [one.payload for one in queue.peek()] == [3]


@pytest.mark.parametrize("how", ["closed", "its own context manager"])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_connection_that_its_borrower_closed(url: str, how: str) -> None:
    """psycopg's context manager commits too: to say that it was rolled back would have all of it done twice."""
    with rota.open(url) as store:
        queue = store.queue("q")

        def close(tx: Any) -> None:
            if how == "closed":
                tx.connection.close()
            else:
                with tx.connection:
                    tx.connection.execute("SELECT 1")

        def close_and_go_on(tx: Any) -> None:
            close(tx)
            queue.enqueue(1, tx=tx)

        for act in (close, close_and_go_on):
            with pytest.raises(rota.TransactionError, match="a statement of yours") as told:
                in_transaction(store, act)
            assert told.type is rota.TransactionError
        queue.enqueue(2)
        in_transaction(store, lambda tx: queue.enqueue(3, tx=tx))
        assert [one.payload for one in queue.peek()] == [2, 3]


def test_the_writer_is_as_it_was(tmp_path: Path) -> None:
    """Whatever the caller set on the connection is set back."""
    with rota.open(f"sqlite:///{tmp_path}/s.db") as store:
        queue = store.queue("q")
        with store.transaction() as tx:
            tx.connection.row_factory = sqlite3.Row
            tx.connection.text_factory = bytes
            queue.enqueue({"a": "é"}, key="k", tx=tx)
        assert queue.enqueue(0, key="k") == queue.peek()[0].id
        assert queue.claim_one("w").payload == {"a": "é"}


# -- Async -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db"


def test_cancelled_at_any_moment(any_url: str) -> None:
    """A task cancelled in a transaction leaves it committed or rolled back, and the store usable."""

    async def main() -> None:
        async with rota.aopen(any_url, busy_timeout=5) if "memory" not in any_url else rota.aopen(any_url) as store:
            queue = store.queue("q")
            await queue.enqueue("first")

            async def work(number: int) -> None:
                async with store.transaction() as tx:
                    await queue.enqueue(number, tx=tx)
                    await asyncio.sleep(0)
                    await queue.enqueue(-number, tx=tx)

            for number in range(1, 80):
                task = asyncio.create_task(work(number))
                await asyncio.sleep(number * 0.0001)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await asyncio.wait_for(work(1000), 10)
            found = {one.payload for one in await queue.jobs(limit=1000)} - {"first"}
            assert found == {-number for number in found}
            assert 1000 in found

    asyncio.run(main())


def test_tasks_beside_it_are_not_refused(any_url: str) -> None:
    """Many tasks with transactions and plain verbs on one store."""

    async def main() -> None:
        async with rota.aopen(any_url) as store:
            queue = store.queue("q")

            async def work(number: int) -> None:
                async with store.transaction() as tx:
                    await queue.enqueue(number, tx=tx)
                    await asyncio.sleep(0.001)
                    await queue.enqueue(number, tx=tx)
                await queue.enqueue(number)
                job = await queue.claim_one(f"w{number}")
                async with store.transaction() as tx:
                    await job.ack(tx=tx)

            await asyncio.wait_for(asyncio.gather(*map(work, range(20))), 60)
            assert (await queue.stats()).pending == 40

    asyncio.run(main())


def test_two_verbs_at_once_take_turns(any_url: str) -> None:
    async def main() -> None:
        async with rota.aopen(any_url) as store:
            queue = store.queue("q")
            async with store.transaction() as tx:
                ids = await asyncio.gather(*(queue.enqueue(number, tx=tx) for number in range(30)))
            assert len(set(ids)) == 30
            assert (await queue.stats()).pending == 30

    asyncio.run(main())


# -- Forks -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_leaves_the_parents_transaction_alone(any_url: str) -> None:
    """A process forked inside a transaction ends; the parent commits."""
    with rota.open(any_url) as store:
        queue = store.queue("q")
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            begun = time.monotonic()
            child = os.fork()
            if not child:
                try:
                    tx.rollback()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            # It does not wait for its own transaction: that would take ten seconds.
            assert time.monotonic() - begun < 8
            queue.enqueue(2, tx=tx)
        assert [one.payload for one in queue.peek()] == [1, 2]


# -- Closing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_closed_by_another_thread(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Closing waits a little for an open transaction, which can still be committed."""
    url = f"sqlite:///{tmp_path}/s.db" if engine == "sqlite" else str(request.getfixturevalue("postgres_url"))
    store = rota.open(url)
    queue = store.queue("q")
    closing = threading.Thread(target=store.close)
    with store.transaction() as tx:
        queue.enqueue(1, tx=tx)
        closing.start()
        time.sleep(0.2)
        with pytest.raises(rota.StoreClosed):
            queue.enqueue(2, tx=tx)
    closing.join(10)
    assert not closing.is_alive()
    with rota.open(url) as store:
        assert [one.payload for one in store.queue("q").peek()] == [1]
