"""``run(health=…)``: what the server says of a worker, on every engine, and how it ends with the worker."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.worker import endpoint

from .http import address_of, exchange, get, samples, value
from .running import Running, until

Start = Callable[..., Running]


def probe_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in ("rota-health", "rota-figures")]


def test_what_it_says(store: rota.Store, running: Start) -> None:
    worker, go_on = rota.Worker(store, worker_id="w1"), threading.Event()

    @worker.queue("mails", concurrency=4)
    def mail(payload: Any) -> None:
        if payload == "wait":
            go_on.wait(20)
        elif payload == "fail":
            raise rota.Fail("no")
        elif payload == "retry":
            raise rota.Retry(delay=1000)

    @worker.transport("orders", concurrency=1)
    async def order(event: Any) -> None: ...

    mails, orders = store.queue("mails"), store.transport("orders")
    mails.enqueue_many([1, 2, 3, "fail", "retry", "wait"])
    orders.suspend('a"\\b')
    orders.publish('a"\\b', 1)
    orders.publish("g", 1)
    running(worker, health=0)
    address = address_of(worker)
    assert address[0] == "127.0.0.1"
    until(lambda: [source.acked for source in worker.health().sources] == [3, 1])
    until(lambda: worker.health().sources[0].retried and worker.health().sources[0].failed)

    assert get(address, "/healthz")[::2] == (200, "alive\n")
    assert get(address, "/readyz?why")[::2] == (200, "ready\n")
    status, headers, text = get(address, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    page = samples(text)
    queue, transport = {"kind": "queue", "name": "mails"}, {"kind": "transport", "name": "orders"}
    assert value(page, "rota_worker_info", worker_id="w1", version=rota.__version__) == 1
    assert value(page, "rota_worker_state", state="working") == 1
    assert value(page, "rota_worker_state", state="stopping") == 0
    assert value(page, "rota_worker_store_up") == 1
    assert value(page, "rota_worker_concurrency", **queue) == 4
    assert value(page, "rota_worker_items_in_flight", **queue) == 1
    assert value(page, "rota_worker_longest_running_seconds", **queue) > 0
    assert value(page, "rota_worker_longest_running_seconds", **transport) == 0
    assert value(page, "rota_worker_items_claimed_total", **queue) == 6
    for outcome, count in (("acked", 3), ("retried", 1), ("failed", 1), ("released", 0)):
        assert value(page, "rota_worker_items_settled_total", **queue, outcome=outcome) == count
    assert value(page, "rota_worker_claims_lost_total", **queue) == 0
    assert value(page, "rota_worker_heartbeats_failed_total", **transport) == 0
    assert value(page, "rota_worker_handler_duration_seconds_count", **queue) == 5
    buckets = sorted(
        (float(dict(labels)["le"].replace("+Inf", "inf")), count)
        for (name, labels), count in page.items()
        if name == "rota_worker_handler_duration_seconds_bucket" and ("name", "mails") in labels
    )
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert buckets[-1] == (float("inf"), 5)
    # Of the store itself.
    assert value(page, "rota_store_figures_age_seconds") < 5
    for state, count in (("pending", 1), ("processing", 1), ("done", 0), ("dead", 1)):
        assert value(page, "rota_queue_jobs", queue="mails", state=state) == count
    assert value(page, "rota_queue_suspended", queue="mails") == 0
    assert value(page, "rota_transport_messages", transport="orders") == 1
    assert value(page, "rota_transport_groups", transport="orders", state="suspended") == 1
    assert value(page, "rota_transport_oldest_ready_age_seconds", transport="orders") == 0
    assert 0 <= value(page, "rota_transport_group_lag_seconds", transport="orders", group='a"\\b') < 60
    go_on.set()


def test_stopping_is_alive_and_not_ready_and_then_gone(store: rota.Store, running: Start) -> None:
    worker, go_on = rota.Worker(store), asyncio.Event()
    started: list[asyncio.AbstractEventLoop] = []

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        started.append(asyncio.get_running_loop())
        await go_on.wait()

    store.queue("q").enqueue(1)
    run = running(worker, health=0)
    address = address_of(worker)
    (loop,) = until(lambda: started)
    worker.stop()
    until(lambda: worker.health().state == "stopping")
    assert get(address, "/healthz")[0] == 200
    assert get(address, "/readyz")[::2] == (503, "not ready: stopping\n")
    assert value(samples(get(address, "/metrics")[2]), "rota_worker_state", state="stopping") == 1
    loop.call_soon_threadsafe(go_on.set)
    run.join()
    assert worker.health_address is None
    with pytest.raises(OSError):
        get(address, "/healthz")
    until(lambda: not probe_threads())


def test_a_blocked_loop_does_not_silence_it(store: rota.Store, running: Start) -> None:
    worker, go_on = rota.Worker(store), threading.Event()

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        go_on.wait(20)

    store.queue("q").enqueue(1)
    running(worker, health=0)
    address = address_of(worker)
    until(lambda: worker.health().sources[0].running)
    assert get(address, "/readyz")[0] == 200
    go_on.set()


def test_a_store_that_does_not_answer(store: rota.Store, running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = rota.Worker(store)
    worker.queue("q")(lambda payload: None)
    running(worker, health=0)
    address = address_of(worker)
    assert get(address, "/readyz")[0] == 200

    def unavailable(queue: rota.Queue) -> Any:
        raise rota.EngineUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(rota.Queue, "stats", unavailable)
        until(lambda: get(address, "/readyz")[0] == 503)
        assert get(address, "/readyz")[2] == "not ready: the store does not answer\n"
        assert get(address, "/healthz")[0] == 200
        page = samples(get(address, "/metrics")[2])
        assert value(page, "rota_worker_store_up") == 0
        assert not [name for name, _ in page if name.startswith("rota_queue")]
    until(lambda: get(address, "/readyz")[0] == 200)


def test_a_store_that_cannot_be_opened_yet(running: Start) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        worker = rota.Worker(f"postgresql://x@127.0.0.1:{nobody.getsockname()[1]}/x?connect_timeout=1")
        worker.queue("q")(lambda payload: None)
        thread = threading.Thread(target=worker.run, kwargs={"health": 0})
        thread.start()
        address = address_of(worker)
        assert get(address, "/healthz")[0] == 200
        assert get(address, "/readyz")[::2] == (503, "not ready: opening\n")
        page = samples(get(address, "/metrics")[2])
        assert value(page, "rota_worker_state", state="opening") == 1
        worker.stop()
        thread.join(15)
        assert not thread.is_alive()


def test_a_busy_port_is_waited_for(
    store: rota.Store, running: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint, "_BIND_AGAIN", 0.05)
    worker, done = rota.Worker(store), threading.Event()
    worker.queue("q")(lambda payload: done.set())
    store.queue("q").enqueue(1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        run = running(worker, health=port)
        assert done.wait(15)
        assert worker.health_address is None
    address = address_of(worker)
    assert address == ("127.0.0.1", port)
    assert get(address, "/healthz")[0] == 200
    run.stop()
    told = [record.event for record in caplog.records if record.__dict__.get("event", "").startswith("health_")]
    assert told[0] == "health_unavailable"
    assert told.count("health_unavailable") == 1


def test_a_port_that_is_never_free_harms_nothing(store: rota.Store, running: Start) -> None:
    worker, done = rota.Worker(store), threading.Event()
    worker.queue("q")(lambda payload: done.set())
    store.queue("q").enqueue(1)
    run = running(worker, health="no.such.host.invalid:80")
    assert done.wait(15)
    run.stop()
    until(lambda: not probe_threads())


def test_nonsense_is_refused_before_anything_happens(store: rota.Store) -> None:
    worker = rota.Worker(store)
    worker.queue("q")(lambda payload: None)
    with pytest.raises(ValueError, match="65535"):
        worker.run(health=70_000)
    assert worker.health().state == "idle"


def test_a_hundred_clients_that_say_nothing(store: rota.Store, running: Start) -> None:
    """They neither keep others out nor are kept."""
    worker = rota.Worker(store)
    worker.queue("q")(lambda payload: None)
    run = running(worker, health=0)
    address = address_of(worker)
    silent = [socket.create_connection(address) for _ in range(100)]
    try:
        assert get(address, "/healthz")[0] == 200
        assert exchange(address, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        until(lambda: len([thread for thread in threading.enumerate() if thread.name == "rota-probe"]) <= 16)
    finally:
        run.stop()
        for one in silent:
            one.close()
