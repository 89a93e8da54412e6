"""What sources share when a worker has so many places in all, and a worker that is told to finish."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import rota
from rota.worker.limits import Limits

from .running import until


def source() -> Any:
    return SimpleNamespace(live=set(), room_made=threading.Event())


def limits(at_once: int, at_most: int | None = None, count: int = 2) -> tuple[Limits, list[Any], list[str]]:
    told: list[str] = []
    sources = [source() for _ in range(count)]
    made = Limits(at_once, at_most)
    made.watch(sources, lambda: 0, lambda: told.append("spent"))
    return made, sources, told


def test_what_is_held_or_being_claimed_takes_places() -> None:
    made, (a, b), _ = limits(3)
    assert made.take(a, 2) == 2
    assert made.take(b, 2) == 1
    a.live.add("x")
    made.claimed(2, 1)
    assert made.take(b, 5) == 1
    made.claimed(1, 0)
    made.claimed(1, 0)
    assert made.take(a, 5) == 2


def test_who_was_refused_first_comes_first() -> None:
    made, (a, b, c), _ = limits(1, count=3)
    assert made.take(a, 1) == 1
    assert made.take(b, 1) == made.take(c, 1) == 0
    made.claimed(1, 0)
    assert b.room_made.is_set()
    assert not c.room_made.is_set()
    assert made.take(a, 1) == made.take(c, 1) == 0, "b is before them"
    assert not made.may_take(c)
    assert made.take(b, 0) == 0, "it has no room of its own now, and stands in nobody's way"
    assert made.take(c, 1) == 1
    made.claimed(1, 0)
    assert a.room_made.is_set()


def test_when_as_many_were_claimed_as_may_be_it_is_told_once_and_no_more_are() -> None:
    made, (a, b), told = limits(10, 3)
    assert made.take(a, 2) == 2
    assert made.take(b, 2) == 1
    made.claimed(1, 1)
    assert told == [], "a may still give back"
    made.claimed(2, 1)
    assert told == []
    assert made.take(a, 2) == 1
    made.claimed(1, 1)
    assert told == ["spent"]
    assert made.take(a, 1) == made.take(b, 1) == 0
    assert not made.may_take(a)


def test_told_to_finish_it_handles_what_it_has_however_long_and_claims_no_more(store: rota.Store, running: Any) -> None:
    worker = rota.Worker(store, grace=0)
    began, go_on = threading.Event(), threading.Event()

    @worker.queue("q", concurrency=1)
    def handle(payload: Any) -> None:
        began.set()
        go_on.wait(10)

    store.queue("q").enqueue_many(range(3))
    run = running(worker)
    assert began.wait(10)
    worker.finish()
    until(lambda: worker.health().state == "stopping")
    time.sleep(0.3)
    assert run.alive
    go_on.set()
    run.join()
    stats = store.queue("q").stats()
    assert (stats.pending, stats.processing) == (2, 0)


def test_told_to_stop_after_that_the_grace_begins(store: rota.Store, running: Any) -> None:
    worker = rota.Worker(store, grace=0.2)
    began = threading.Event()

    @worker.queue("q")
    async def handle(job: rota.AsyncJob) -> None:
        began.set()
        await asyncio.sleep(60)

    job_id = store.queue("q").enqueue(1)
    run = running(worker)
    assert began.wait(10)
    worker.finish()
    worker.finish()
    time.sleep(0.4)
    assert run.alive
    worker.stop()
    run.join(5)
    job = store.queue("q").get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("pending", 0)
