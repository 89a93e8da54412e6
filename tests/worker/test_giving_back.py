"""What waits for a slot is given back in batches: a worker that held thousands ends at once."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .faults import Faults
from .running import Running, until


def test_a_batch_of_releases(timeless: rota.Store, clock: ManualClock) -> None:
    """Each by its own fence: those that are lost are passed over, the others' attempts given back."""
    queue, transport = timeless.queue("q", visibility=60), timeless.transport("t")
    ids = queue.enqueue_many(range(4))
    transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
    jobs = {job.id: job for job in queue.claim_batch("w", 4)}
    leases = {lease.group_id: lease for lease in transport.claim_batch("w", 3)}
    assert jobs[ids[1]].ack()
    assert queue.cancel(ids[2])
    assert leases["b"].ack()
    clock.advance(1)
    engine: Any = queue._engine
    assert engine.release_batch([]) == 0
    assert engine.release_batch([job._claim for job in reversed(jobs.values())]) == 2
    assert engine.release_batch([job._claim for job in jobs.values()]) == 0
    engine = transport._engine
    assert engine.release_batch([]) == 0
    assert engine.release_batch([lease._claim for lease in leases.values()]) == 2
    assert engine.release_batch([lease._claim for lease in leases.values()]) == 0
    again = queue.claim_batch("next", 9)
    assert [(job.id, job.attempts, job.releases) for job in again] == [(ids[0], 1, 1), (ids[3], 1, 1)]
    assert sorted((lease.group_id, lease.deliveries) for lease in transport.claim_batch("next", 9)) == [
        ("a", 1),
        ("c", 1),
    ]


def test_what_waits_at_the_end(store: rota.Store, running: Any) -> None:
    """Fast handlers have much claimed ahead; then one stops them all."""
    faults = Faults(store)
    worker, blocked = rota.Worker(store, grace=0), threading.Event()
    queue = store.queue("q", max_attempts=1)
    queue.enqueue_many(range(20_000))

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        if blocked.is_set():
            await asyncio.sleep(60)

    one: Running = running(worker)
    until(lambda: worker.health().sources[0].waiting > 200)
    blocked.set()
    until(lambda: worker.health().sources[0].running == 10 and not worker.health().unsettled)
    begin = time.monotonic()
    one.stop()
    assert time.monotonic() - begin < 5
    stats = queue.stats()
    assert (stats.processing, stats.dead) == (0, 0)
    assert faults.calls.get("release", 0) < 10
    assert 1 <= faults.calls["release_batch"] < 50
    assert all(job.attempts == 1 for job in queue.claim_batch("next", 1_000))


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_store_that_is_closed_under_it(store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The run raises it; what could not be recorded is said in a few lines, not one for each item."""
    caplog.set_level(logging.ERROR, "rota.worker")
    worker, blocked = rota.Worker(store), threading.Event()
    store.queue("q").enqueue_many(range(20_000))

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        if blocked.is_set():
            await asyncio.sleep(0.1)

    one: Running = running(worker)
    until(lambda: worker.health().sources[0].waiting > 200)
    blocked.set()
    store.close()
    one.join()
    assert isinstance(one.error, rota.StoreClosed)
    one.error = None
    assert 1 <= len(caplog.records) < 20
