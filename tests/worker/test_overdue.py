"""A thread whose time is over cannot be ended, nor can an async handler that blocks its loop or ignores its cancelling.

They are told of at once, not when they return, if ever, and nobody keeps their items for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import rota

from .running import Running, until


def test_an_overdue_thread_is_logged_and_counted_while_it_runs(
    store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rota.worker")
    worker, release, told = rota.Worker(store, grace=0), threading.Event(), threading.Event()

    @worker.queue("q", timeout=0.1, visibility=30)
    def handle(job: rota.Job) -> str:
        assert job.lost.wait(10)
        told.set()
        release.wait(10)
        return "late"

    def events() -> list[Any]:
        return [record for record in caplog.records if getattr(record, "event", "") == "handler_given_up"]

    queue = store.queue("q", keep_done=60)
    id = queue.enqueue(1)
    one: Running = running(worker)
    assert told.wait(10)
    (record,) = events()
    assert (record.why, record.job_id) == ("overdue", id)
    assert worker.health().sources[0].timed_out == 1
    assert worker.health().sources[0].running == 1
    release.set()
    until(lambda: worker.health().sources[0].handled)
    assert worker.health().sources[0].timed_out == len(events()) == 1
    job = queue.get_job(id)
    assert job is not None
    assert (job.state, job.result) == ("processing", None)
    one.stop()


@pytest.mark.parametrize("how", ["blocks", "goes on"])
def test_an_overdue_async_handler_is_logged_and_its_claim_lapses(
    store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Its worker must not renew it for ever: others get the job when the claim has lapsed."""
    worker, release = rota.Worker(store, grace=0), threading.Event()

    @worker.queue("q", timeout=0.1, visibility=1, concurrency=1)
    async def handle(payload: Any) -> None:
        if how == "blocks":
            release.wait(30)
        while not release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue

    queue = store.queue("q")
    id = queue.enqueue(1)
    one: Running = running(worker)
    until(lambda: worker.health().sources[0].running)
    # No room is left here for the second attempt.
    job = until(lambda: queue.claim_one("other"), 25)
    assert (job.id, job.attempts) == (id, 2)
    until(lambda: any(getattr(record, "event", "") == "handler_overdue" for record in caplog.records))
    told: list[Any] = [record for record in caplog.records if getattr(record, "event", "") == "handler_overdue"]
    assert [(record.job_id, record.attempts) for record in told] == [(id, 1)]
    assert job.ack()
    release.set()
    one.stop()
    assert queue.get_job(id) is None


def test_one_that_only_ends_late_is_recorded(store: rota.Store, running: Any) -> None:
    """A loop that is blocked for a while longer than a timeout, and well within the claim."""
    worker = rota.Worker(store)

    @worker.queue("q", timeout=0.1, visibility=60)
    async def handle(payload: Any) -> str:
        threading.Event().wait(0.5)
        return "late"

    queue = store.queue("q", keep_done=60)
    id = queue.enqueue(1)
    running(worker)
    until(lambda: worker.health().sources[0].acked == 1)
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.result, record.attempts) == ("done", "late", 1)
