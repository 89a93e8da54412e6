"""Handlers that take too long."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import rota

from .running import until


def test_async_one_is_cancelled_and_that_is_a_failed_try(store: rota.Store, running: Any) -> None:
    worker = rota.Worker(store)

    @worker.queue("q", timeout=0.2)
    async def handle(payload: Any) -> None:
        if payload == "polite":
            await asyncio.sleep(60)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)

    queue = store.queue("q")
    ids = queue.enqueue_many(["polite", "stubborn"])
    running(worker)
    until(lambda: worker.health().sources[0].retried == 2)
    for id in ids:
        record = queue.get_job(id)
        assert record is not None
        assert (record.state, record.last_error) == ("pending", "timed out after 0.2 s")
    assert worker.health().sources[0].timed_out == 2


def test_one_that_will_not_end_is_not_kept_alive_for_ever(store: rota.Store, running: Any) -> None:
    """A thread cannot be ended: it is told, its beats end, its claim lapses, and what it returns is not recorded."""
    worker, told, go, ran = rota.Worker(store), [], threading.Event(), []

    @worker.queue("q", timeout=0.4, visibility=0.6, concurrency=2)
    def handle(job: rota.Job) -> None:
        ran.append(job.attempts)
        if job.attempts == 1:
            told.append(job.lost.wait(20))
            go.wait(20)

    @worker.queue("a", timeout=0.4, visibility=0.6, concurrency=2)
    async def handle_async(job: rota.AsyncJob) -> None:
        ran.append(-job.attempts)
        while job.attempts == 1 and not go.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    queue, other = store.queue("q", keep_done=60), store.queue("a", keep_done=60)
    begin = time.monotonic()
    id, other_id = queue.enqueue(1), other.enqueue(1)
    run = running(worker)
    until(lambda: sorted(ran) == [-2, -1, 1, 2])
    assert time.monotonic() - begin < 5
    assert told == [True]
    until(lambda: (queue.get_job(id) or 0).state == (other.get_job(other_id) or 0).state == "done")
    go.set()
    until(lambda: worker.health().sources[0].handled == worker.health().sources[1].handled == 2)
    run.stop()
    for source, job in ((queue, id), (other, other_id)):
        record = source.get_job(job)
        assert record is not None
        assert (record.state, record.attempts) == ("done", 2)
