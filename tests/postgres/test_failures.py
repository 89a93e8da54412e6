"""Lost connections, restarts, conflicts, a full pool: what callers hear of them, and that nothing needs a restart."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import rota
from postgres.proxy import proxy
from postgres.server import Server
from rota.engines.postgres.failures import did_nothing
from rota.errors import (
    EngineBusy,
    EngineFull,
    EngineUnavailable,
    OutcomeUnknown,
    RotaError,
    SchemaMismatch,
    StoreClosed,
)
from rota.testing.colours import Colour


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    colour = Colour(request.param)
    try:
        yield colour
    finally:
        colour.close()


@pytest.fixture
def opener(colour: Colour) -> Callable[..., Any]:
    """Opens a URL in this colour."""
    return lambda url, **options: colour.open(
        lambda **rest: rota.open(url, **rest), lambda **rest: rota.aopen(url, **rest), **options
    )


@pytest.fixture
def durable_server() -> Iterator[Server]:
    """A server that is stopped and started."""
    server = Server(durable=True)
    try:
        yield server
    finally:
        server.close()


def database(url: str) -> str:
    return url.rsplit("/", 1)[1]


# -- Connections -----------------------------------------------------------------------------------------------------


def test_ended_sessions_are_replaced_without_a_word(
    opener: Callable[..., Any], postgres_url: str, postgres_server: Server
) -> None:
    store = opener(postgres_url)
    queue, transport = store.queue("q"), store.transport("t")
    for number in range(20):
        queue.enqueue(number)
        transport.publish("g", number)
        assert postgres_server.terminate_sessions(database(postgres_url)) >= 1
    assert queue.stats().pending == 20
    assert [job.payload for job in queue.claim_batch("w", 30)] == list(range(20))


def test_a_restart_is_survived(opener: Callable[..., Any], durable_server: Server) -> None:
    url = durable_server.dsn(durable_server.create_database())
    store = opener(url, migrate=True)
    queue = store.queue("q")
    queue.enqueue("before")
    durable_server.crash()
    began = time.monotonic()
    with pytest.raises(EngineUnavailable, match="nothing was changed"):
        queue.enqueue("down")
    with pytest.raises(EngineUnavailable):
        queue.stats()
    with pytest.raises(EngineUnavailable):
        rota.open(url)
    assert time.monotonic() - began < 2
    durable_server.start()
    queue.enqueue("after")
    assert [job.payload for job in queue.claim_batch("w", 9)] == ["before", "after"]


@pytest.mark.parametrize("verb", ["enqueue", "claim", "sweep", "redrive"])
def test_a_reply_that_is_lost_is_told_and_not_repeated(
    opener: Callable[..., Any], postgres_url: str, verb: str
) -> None:
    words = {"enqueue": b"enqueue", "claim": b"claim", "sweep": b"sweep", "redrive": b"redrive"}
    with proxy(postgres_url) as between:
        store = opener(between.url, notify=False)
        queue = store.queue("q")
        queue.enqueue("first", max_attempts=1)
        if verb == "redrive":
            queue.claim_one("w").fail()
        between.cut_reply_to = lambda data: words[verb] in data
        calls = {
            "enqueue": lambda: queue.enqueue("once", key="k"),
            "claim": lambda: queue.claim_one("w"),
            "sweep": queue.sweep_expired,
            "redrive": lambda: queue.redrive("all"),
        }
        with pytest.raises(OutcomeUnknown, match="may or may not have happened"):
            calls[verb]()
        assert between.cut_reply_to is None
        if verb == "enqueue":
            # Repeated with its key it makes no second one (Q15).
            queue.enqueue("once", key="k")
            assert queue.stats().pending == 2
        elif verb == "claim":
            assert queue.stats().processing == 1
        elif verb == "redrive":
            assert queue.stats().pending == 1
            assert queue.stats().dead == 0


def test_reading_is_repeated_when_the_reply_is_lost(opener: Callable[..., Any], postgres_url: str) -> None:
    with proxy(postgres_url) as between:
        store = opener(between.url, notify=False)
        queue = store.queue("q")
        queue.enqueue("x")
        between.cut_reply_to = lambda data: b"jobs" in data
        assert queue.peek(1)[0].payload == "x"
        assert between.cut_reply_to is None


def test_only_a_lost_commit_leaves_the_outcome_open(
    opener: Callable[..., Any], postgres_url: str, alter_database: Callable[[str, str], None]
) -> None:
    # Verbs begin and commit their transactions themselves where the database's default is too strict.
    alter_database(postgres_url, "SET default_transaction_isolation = 'serializable'")
    with proxy(postgres_url) as between:
        store = opener(between.url, notify=False)
        transport = store.transport("t")
        transport.publish("g", 1)
        assert transport.claim("w").ack()
        for word in (b"BEGIN", b"publish"):
            between.cut_reply_to = lambda data, word=word: word in data
            transport.publish("g", word.decode())
            assert between.cut_reply_to is None
        between.cut_reply_to = lambda data: b"COMMIT\0" in data
        with pytest.raises(OutcomeUnknown):
            transport.publish("g", "COMMIT")
        assert [message.event for message in transport.peek("g", 9)] == ["BEGIN", "publish", "COMMIT"]


def test_refused_for_a_while(opener: Callable[..., Any], postgres_url: str) -> None:
    between = proxy(postgres_url)
    opened = between.__enter__()
    store = opener(opened.url, connect_timeout=1)
    queue = store.queue("q")
    queue.enqueue("x")
    opened.close()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        began = time.monotonic()
        with pytest.raises((EngineUnavailable, OutcomeUnknown)):
            queue.enqueue("y")
        assert time.monotonic() - began < 1.5
        time.sleep(0.05)


def test_a_connection_made_for_a_second_try_is_given_back(
    opener: Callable[..., Any],
    postgres_url: str,
    postgres_server: Server,
    alter_database: Callable[[str, str], None],
) -> None:
    """Whatever the second try meets: else the pool would have one less, and in the end none."""
    store = opener(postgres_url, pool_size=1, notify=False)
    queue = store.queue("q")
    queue.enqueue("x")
    job = queue.claim_one("w")
    alter_database(postgres_url, "SET lock_timeout = '100ms'")
    with psycopg.connect(postgres_url, options="-c lock_timeout=0") as mine:
        mine.execute("SELECT FROM rota.jobs FOR UPDATE")
        ends: list[BaseException] = []

        def ack() -> None:
            try:
                job.ack()
            except EngineBusy as error:
                ends.append(error)

        waiting = threading.Thread(target=ack)
        waiting.start()
        name = database(postgres_url)
        blocked = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}' AND wait_event_type = 'Lock'"
        while not postgres_server.execute(blocked):
            time.sleep(0.01)
        postgres_server.terminate_sessions(name, keep=(mine.info.backend_pid,))
        waiting.join(30)
        assert "lock timeout" in str(ends[0])
    assert job.ack()


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("55P03", True),
        ("57014", True),
        ("23505", True),
        ("25006", True),
        ("08006", False),
        ("57P02", False),
        ("58030", False),
        ("XX000", False),
    ],
)
def test_what_the_server_refused_did_not_happen(postgres_url: str, code: str, refused: bool) -> None:
    """Whatever became of the session right after. What a pooler or a crash says is no answer to the statement."""
    with psycopg.connect(postgres_url) as mine, pytest.raises(psycopg.Error) as told:
        mine.execute(f"DO $$ BEGIN RAISE EXCEPTION 'x' USING errcode = '{code}'; END $$".encode())
    assert did_nothing(told.value, answered=False) is refused
    assert did_nothing(told.value, answered=True) is refused
    assert not did_nothing(psycopg.OperationalError("server closed the connection unexpectedly"), answered=False)


def test_a_server_that_only_reads_is_left(
    opener: Callable[..., Any], postgres_url: str, alter_database: Callable[[str, str], None]
) -> None:
    """As after a failover: connections to the old primary, a standby by now, would stay there for ever."""
    alter_database(postgres_url, "SET default_transaction_read_only = on")
    store = opener(postgres_url, pool_size=1, busy_timeout=1)
    queue = store.queue("q")

    def commit() -> None:
        with store.transaction() as tx:
            queue.enqueue("in a transaction", tx=tx)

    for act in (lambda: queue.enqueue("x"), lambda: store.transport("t").publish("g", 1), commit):
        with pytest.raises(EngineUnavailable, match=r"read-only transaction \(25006\): nothing was changed"):
            act()
    alter_database(postgres_url, "RESET default_transaction_read_only")
    queue.enqueue("x")
    commit()
    store.transport("t").publish("g", 1)
    assert [job.payload for job in queue.peek(9)] == ["x", "in a transaction"]


# -- Conflicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_conflicts_never_reach_the_caller(
    postgres_url: str, isolation: str, alter_database: Callable[[str, str], None]
) -> None:
    alter_database(postgres_url, f"SET default_transaction_isolation = '{isolation}'")
    alter_database(postgres_url, "SET deadlock_timeout = '20ms'")
    with rota.open(postgres_url) as store:
        queue = store.queue("q")
        jobs = 400
        queue.enqueue_many(range(jobs))
        claimed = [job for _ in range(4) for job in queue.claim_batch("w", 100)]
        assert len(claimed) == jobs
        acked: list[int] = []
        errors: list[BaseException] = []

        def work(seed: int) -> None:
            import random

            chance = random.Random(seed)
            try:
                for _ in range(6):
                    some = chance.sample(claimed, 150)
                    acked.append(queue.ack_batch(some, "w"))
                    queue.heartbeat_batch(chance.sample(claimed, 50))
                    queue.sweep_expired()
                    queue.cancel(chance.choice(claimed).id + jobs)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        acked.append(queue.ack_batch(claimed, "w"))
        assert errors == []
        assert sum(acked) == jobs


# -- Errors of the server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("55P03", EngineBusy),
        ("57014", EngineBusy),
        ("53100", EngineFull),
        ("53300", EngineUnavailable),
        ("42P01", SchemaMismatch),
        ("25006", EngineUnavailable),
        ("XX000", EngineUnavailable),
        ("40001", EngineBusy),
        ("40P01", EngineBusy),
    ],
)
def test_every_error_has_a_name(
    opener: Callable[..., Any], postgres_url: str, code: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engines.postgres.running._TRIES", 3)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "CREATE FUNCTION rota.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END $$"
        )
        connection.execute("CREATE TRIGGER fail BEFORE INSERT ON rota.jobs FOR EACH ROW EXECUTE FUNCTION rota.fail()")
    store = opener(postgres_url)
    with pytest.raises(kind) as caught:
        store.queue("q").enqueue(1)
    assert isinstance(caught.value, RotaError)
    assert not isinstance(caught.value, psycopg.Error)
    assert code in str(caught.value)
    assert store.queue("q").stats().pending == 0


def test_a_full_pool_is_busy_and_then_not(postgres_url: str) -> None:
    with rota.open(postgres_url, pool_size=1, busy_timeout=0.2, notify=False) as store:
        pool = store._core.engine.pool  # type: ignore[attr-defined]
        session = pool.take()
        with pytest.raises(EngineBusy, match="pool_size"):
            store.queue("q").enqueue(1)
        threading.Timer(0.05, pool.give, (session,)).start()
        store.queue("q").enqueue(1)


# -- Closing ---------------------------------------------------------------------------------------------------------


def test_closing_releases_whoever_waits(postgres_url: str) -> None:
    store = rota.open(postgres_url, pool_size=2)
    ended: list[tuple[type[BaseException], float]] = []
    closed_at = 0.0

    def wait() -> None:
        try:
            store.queue("q").claim_one("w", wait=30)
        except BaseException as error:
            ended.append((type(error), time.monotonic() - closed_at))

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    closed_at = time.monotonic()
    store.close()
    for thread in threads:
        thread.join(5)
    assert [kind for kind, _ in ended] == [StoreClosed] * 5
    assert max(seconds for _, seconds in ended) < 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rota-postgres")]


def test_closing_leaves_no_session(
    opener: Callable[..., Any], postgres_url: str, postgres_server: Server, colour: Colour
) -> None:
    store = opener(postgres_url)
    store.queue("q").enqueue(1)
    assert store.queue("q").claim_one("w", wait=0.1) is not None
    assert store.queue("q").claim_one("w", wait=0.1) is None
    store.close()
    deadline = time.monotonic() + 2
    while sessions := postgres_server.execute(
        f"SELECT query FROM pg_stat_activity WHERE datname = '{database(postgres_url)}'"
    ):
        assert time.monotonic() < deadline, sessions
        time.sleep(0.02)


# -- Forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(postgres_url: str, postgres_server: Server) -> None:
    with rota.open(postgres_url) as store:
        queue = store.queue("q")
        queue.enqueue("parent")
        listener = store.listen("c", timeout=5)

        async def warm() -> None:
            await store.as_async().queue("q").enqueue("async")

        asyncio.run(warm())
        engine = store._core.engine
        ours = [*(session.connection for session in engine.pool._all), engine._listening._listener._connection]  # type: ignore[attr-defined]
        before = {connection.info.backend_pid for connection in ours}
        assert len(before) >= 2
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for number in range(20):
                    queue.enqueue(f"child {number}")
                store.close()
                code = 0
            finally:
                os.write(write, b"!")
                os._exit(code)
        for number in range(20):
            queue.enqueue(f"parent {number}")
        os.read(read, 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # The child said goodbye on none of ours.
        assert before <= _pids(postgres_server, postgres_url)
        assert queue.stats().pending == 42
        store.notify("c", "still here")
        assert next(listener) == "still here"
        listener.close()


def _pids(server: Server, url: str) -> set[int]:
    return {pid for (pid,) in server.execute(f"SELECT pid FROM pg_stat_activity WHERE datname = '{database(url)}'")}


def test_a_worker_made_by_fork_while_others_call(postgres_url: str) -> None:
    with rota.open(postgres_url) as store:
        stop = threading.Event()

        def produce() -> None:
            while not stop.is_set():
                store.queue("q").enqueue("x")

        threads = [threading.Thread(target=produce) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            context = multiprocessing.get_context("fork")
            for _ in range(5):
                child = context.Process(target=_claim_some, args=(store,))
                child.start()
                child.join(20)
                assert child.exitcode == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert store.queue("q").stats().processing == 5


def _claim_some(store: rota.Store) -> None:
    assert store.queue("q").claim_one(wait=5) is not None
