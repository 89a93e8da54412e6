"""Workers that run: every kind of handler on every engine, told apart by names, and what becomes of the items."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import rota

from .running import until


def test_async_and_sync_handlers_of_queues_and_transports(store: rota.Store, running: Any) -> None:
    worker, seen = rota.Worker(store), []

    @worker.queue("a")
    async def handle_async(job: rota.AsyncJob) -> None:
        await asyncio.sleep(0)
        seen.append(("a", job.payload, threading.current_thread().name))

    @worker.queue("s")
    def handle_sync(payload: Any) -> None:
        seen.append(("s", payload, threading.current_thread().name))

    @worker.transport("ta")
    async def on_event(event: Any) -> None:
        seen.append(("ta", event, ""))

    @worker.transport("ts")
    def on_lease(lease: rota.Lease) -> None:
        seen.append(("ts", lease.event, ""))

    store.queue("a").enqueue_many(range(50))
    store.queue("s").enqueue_many(range(50))
    store.transport("ta").publish_many([(f"g{n % 7}", n) for n in range(50)])
    store.transport("ts").publish_many([(f"g{n % 7}", n) for n in range(50)])
    run = running(worker)
    until(lambda: len(seen) == 200)
    run.stop()
    for where in ("a", "s", "ta", "ts"):
        assert sorted(value for at, value, _ in seen if at == where) == list(range(50))
    assert not any(name.startswith("MainThread") for at, _, name in seen if at == "s")
    for queue in ("a", "s"):
        stats = store.queue(queue).stats()
        assert (stats.pending, stats.processing, stats.dead) == (0, 0, 0)
    assert store.transport("ta").stats().messages == store.transport("ts").stats().messages == 0


def test_items_of_one_group_come_in_order(store: rota.Store, running: Any) -> None:
    worker, seen = rota.Worker(store), []

    @worker.transport("t", concurrency=4)
    async def on_event(lease: rota.AsyncLease) -> None:
        await asyncio.sleep(0.001)
        seen.append((lease.group_id, lease.event))

    store.transport("t").publish_many([(f"g{n % 3}", n) for n in range(60)])
    running(worker)
    until(lambda: len(seen) == 60)
    for group in range(3):
        assert [n for at, n in seen if at == f"g{group}"] == list(range(group, 60, 3))


@pytest.mark.parametrize("color", ["async", "sync"])
def test_every_outcome(store: rota.Store, running: Any, color: str) -> None:
    worker = rota.Worker(store)

    def act(payload: str) -> Any:
        if payload == "error":
            raise LookupError("no such thing")
        if payload == "retry":
            raise rota.Retry(delay=100, reason="later")
        if payload == "fail":
            raise rota.Fail("never")
        if payload == "snooze":
            raise rota.Snooze(100)
        return {"done": payload}

    if color == "async":

        @worker.queue("q")
        async def handle(payload: str) -> Any:
            return act(payload)

    else:
        worker.queue("q")(act)

    queue = store.queue("q", keep_done=60)
    ids = {name: queue.enqueue(name) for name in ("ok", "error", "retry", "fail", "snooze")}
    run = running(worker)
    until(lambda: sum((h := worker.health().sources[0], h.acked + h.retried + h.failed + h.released)[1:]) == 5)
    run.stop()
    jobs = {name: queue.get_job(id) for name, id in ids.items()}
    assert (jobs["ok"].state, jobs["ok"].result) == ("done", {"done": "ok"})
    assert (jobs["error"].state, jobs["error"].attempts) == ("pending", 1)
    assert "LookupError: no such thing" in jobs["error"].last_error
    assert "in act" in jobs["error"].last_error
    assert (jobs["retry"].last_error, jobs["retry"].attempts) == ("later", 1)
    assert 90 < jobs["retry"].run_at - store.now() <= 100
    assert (jobs["fail"].state, jobs["fail"].last_error) == ("dead", "never")
    assert (jobs["snooze"].attempts, jobs["snooze"].releases) == (0, 1)
    assert 90 < jobs["snooze"].run_at - store.now() <= 100
