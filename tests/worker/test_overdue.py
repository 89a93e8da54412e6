"""A thread whose time is over cannot be ended, but it is told of at once, not when it returns, if ever."""

from __future__ import annotations

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
