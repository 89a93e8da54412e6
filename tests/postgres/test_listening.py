"""Wake-ups across stores, and what happens to them when the listener's connection does not live."""

from __future__ import annotations

import itertools
import logging
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import rota
from postgres.proxy import proxy
from postgres.server import Server
from rota.engines.postgres import listening
from rota.testing.tck.base import Started


def until(condition: Callable[[], Any], patience: float = 10.0) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, "it did not come true"
        time.sleep(0.005)
    return time.monotonic() - began


def state(store: rota.Store) -> str:
    return str(store._core.engine.listening)  # type: ignore[attr-defined]


def statements(server: Server, url: str) -> int:
    """Transactions the server has counted for the database."""
    database = url.rsplit("/", 1)[1]
    time.sleep(1.1)  # sessions report once a second
    ((count,),) = server.execute(
        f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'"
    )
    return int(count)


def test_another_store_is_woken_at_once(postgres_url: str) -> None:
    taken: list[float] = []
    with rota.open(postgres_url) as worker, rota.open(postgres_url) as producer:
        queue, transport = worker.queue("q"), worker.transport("t")
        for number in range(15):
            kind = number % 2
            waiting = Started(queue.claim_one, "w", wait=5) if kind else Started(transport.claim, "w", wait=5)
            until(lambda: state(worker) == "listening")
            time.sleep(0.25)
            began = time.monotonic()
            producer.queue("q").enqueue(1) if kind else producer.transport("t").publish("g", 1)
            assert waiting.result().ack()
            taken.append(time.monotonic() - began)
    # Without wake-ups it would be a quarter of a second in the middle.
    assert statistics.median(taken) < 0.1, taken


def test_a_steady_producer_tells_once_in_a_while(postgres_url: str, postgres_server: Server) -> None:
    with rota.open(postgres_url) as worker, rota.open(postgres_url) as producer:
        waiting = Started(worker.queue("other").claim_one, "w", wait=5)
        until(lambda: state(worker) == "listening")
        engine = producer._core.engine
        told: list[int] = []
        send = engine.send  # type: ignore[attr-defined]
        engine.send = lambda addresses: told.append(len(addresses)) or send(addresses)  # type: ignore[attr-defined]
        began = time.monotonic()
        for number in range(500):
            producer.queue("q").enqueue(number)
        seconds = time.monotonic() - began
        # The pauses between them grow to 50 ms.
        assert 1 <= len(told) <= 8 + seconds / 0.05
        worker.close()
        with pytest.raises(rota.StoreClosed):
            waiting.result()


def test_nobody_listening_costs_no_notification(postgres_url: str) -> None:
    with rota.open(postgres_url) as producer:
        engine = producer._core.engine
        assert engine.send(["q:q"]) == 0  # type: ignore[attr-defined]
        with rota.open(postgres_url) as worker:
            waiting = Started(worker.queue("q").claim_one, "w", wait=0.5)
            until(lambda: state(worker) == "listening")
            assert engine.send(["q:q", "t:t"]) == 2  # type: ignore[attr-defined]
            assert waiting.result() is None
        until(lambda: engine.send(["q:q"]) == 0)  # type: ignore[attr-defined]


def test_without_notify_there_is_no_thread_and_polling_does(postgres_url: str) -> None:
    with rota.open(postgres_url, notify=False) as worker, rota.open(postgres_url, notify=False) as producer:
        waiting = Started(worker.queue("q").claim_one, "w", wait=5)
        time.sleep(0.1)
        assert state(worker) == "off"
        producer.queue("q").enqueue(1)
        began = time.monotonic()
        assert waiting.result().ack()
        assert time.monotonic() - began < 1
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("rota-postgres")]
        # Channels need to listen all the same.
        with worker.listen("c", timeout=5) as heard:
            producer.notify("c", "x")
            assert next(heard) == "x"


def test_idle_waiting_is_cheap(postgres_url: str, postgres_server: Server) -> None:
    with rota.open(postgres_url) as worker:
        waiting = Started(worker.queue("q").claim_one, "w", wait=30)
        until(lambda: state(worker) == "listening")
        before = statements(postgres_server, postgres_url)
        time.sleep(3)
        used = statements(postgres_server, postgres_url) - before
        # Two looks a second, each a claim and the next due instant, over some four seconds.
        assert used < 30, used
        worker.close()
        with pytest.raises(rota.StoreClosed):
            waiting.result()


# -- The listener's connection ---------------------------------------------------------------------------------------


def test_an_ended_listener_comes_back_and_looks(
    postgres_url: str, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Polling must not be what finds the jobs.
    monkeypatch.setattr("rota.facade.waiting.POLL", 30.0)
    with rota.open(postgres_url) as worker, rota.open(postgres_url) as producer:
        for pause in (0.0, 1.0):
            waiting = Started(worker.queue("q").claim_one, "w", wait=30)
            until(lambda: state(worker) == "listening")
            postgres_server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%advisory_lock_shared%'"
                f" AND datname = '{postgres_url.rsplit('/', 1)[1]}' AND pid <> pg_backend_pid()"
            )
            time.sleep(pause)
            producer.queue("q").enqueue(1)
            began = time.monotonic()
            assert waiting.result().ack()
            assert time.monotonic() - began < 2


def test_a_listener_that_hears_nothing_any_more_is_noticed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listening._TEST_EVERY + listening._TEST_PATIENCE < 15
    monkeypatch.setattr(listening, "_TEST_EVERY", 0.4)
    monkeypatch.setattr(listening, "_TEST_PATIENCE", 0.4)
    monkeypatch.setattr("rota.facade.waiting.POLL", 30.0)
    with (
        proxy(postgres_url) as between,
        rota.open(postgres_url, listen_url=between.url) as worker,
        rota.open(postgres_url) as producer,
    ):
        waiting = Started(worker.queue("q").claim_one, "w", wait=30)
        until(lambda: state(worker) == "listening")
        between.silent = True
        time.sleep(0.1)
        producer.queue("q").enqueue(1)
        until(lambda: state(worker) != "listening", 3)
        between.silent = False
        began = time.monotonic()
        assert waiting.result().ack()
        assert time.monotonic() - began < 3
        assert between.connections >= 2


def test_refused_connections_are_tried_with_growing_pauses(postgres_url: str) -> None:
    with (
        proxy(postgres_url) as between,
        rota.open(postgres_url, listen_url=between.url) as worker,
        rota.open(postgres_url) as producer,
    ):
        engine: Any = worker._core.engine
        tries: list[float] = []
        connect = engine.connect_listener
        engine.connect_listener = lambda: tries.append(time.monotonic()) or connect()
        waiting = Started(worker.queue("q").claim_one, "w", wait=30)
        until(lambda: state(worker) == "listening")
        between.close()
        time.sleep(4)
        assert 3 <= len(tries) <= 8, tries
        pauses = [later - earlier for earlier, later in itertools.pairwise(tries[1:])]
        assert pauses[-1] > 1.2 * pauses[0]
        producer.queue("q").enqueue(1)
        began = time.monotonic()
        assert waiting.result().ack()
        assert time.monotonic() - began < 1


# -- Channels --------------------------------------------------------------------------------------------------------


def test_channels_between_stores(postgres_url: str) -> None:
    with rota.open(postgres_url) as one, rota.open(postgres_url) as two, rota.open(postgres_url) as sender:
        name = "ÄÖ \U0001f600'\";--%s{}" + "x" * 200
        ears = [one.listen(name, timeout=5), two.listen(name, timeout=5)]
        other = one.listen(name.lower(), timeout=0.2)
        payloads = ["", None, "x" * 7000, "ü" * 3500, "%s {schema} ' \" \\ \n"]
        for payload in payloads:
            sender.notify(name, payload)
        for ear in ears:
            assert [next(ear) for _ in payloads] == payloads
            ear.close()
        assert list(other) == []


def test_many_notifications_leave_nothing_behind(postgres_url: str) -> None:
    with rota.open(postgres_url) as store, rota.open(postgres_url) as sender:
        heard = store.listen("mine", timeout=0.3)
        for number in range(2000):
            sender.notify("other", str(number))
        sender.notify("mine", "end")
        assert next(heard) == "end"
        heard.close()
        wakeups: Any = store._core.wakeups
        assert wakeups._subscribed == {}


def test_listening_without_a_way_says_so_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As through a pooler that gives the session to somebody else: connected, but nothing arrives."""
    monkeypatch.setattr(listening, "_CIRCLE_PATIENCE", 0.2)
    monkeypatch.setattr(listening, "_DEAF_PAUSE", 0.2)
    caplog.set_level(logging.WARNING)
    with rota.open(postgres_url) as worker:
        engine = worker._core.engine
        engine.send_test = lambda text: None  # type: ignore[attr-defined]
        waiting = Started(worker.queue("q").claim_one, "w", wait=1.5)
        with pytest.raises(rota.EngineUnavailable, match="listen_url"):
            worker.listen(uuid.uuid4().hex)
        assert waiting.result() is None
        assert [record.name for record in caplog.records] == ["rota.postgres"]
        assert "polls" in caplog.text or "poll" in caplog.text
