"""A handler that blocks does not lose its lease to a starved heartbeat (case 013).

Seen in tobymao/saq 209, agno-agi/agno PR 9512 and janbjorge/pgqueuer 430.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import rota

from .faults import Faults
from .running import until

VISIBILITY = 0.8


def handler(how: str, starts: list[Any]) -> Any:
    def block(what: Any) -> None:
        starts.append(what)
        time.sleep(4 * VISIBILITY)

    async def block_loop(what: Any) -> None:
        starts.append(what)
        time.sleep(4 * VISIBILITY)  # noqa: ASYNC251 (blocking the loop is the point)

    async def awaits(what: Any) -> None:
        starts.append(what)
        await asyncio.sleep(4 * VISIBILITY)

    return {"blocks the loop": block_loop, "awaits": awaits, "thread": block}[how]


@pytest.mark.parametrize("how", ["blocks the loop", "awaits", "thread"])
def test_one_delivery_in_four_times_the_visibility(store: rota.Store, running: Any, how: str) -> None:
    """A second worker looks on; a single beat fails. Also while a second item waits for the only slot."""
    faults = Faults(store)
    queue, transport = store.queue("q", keep_done=60), store.transport("t")
    starts: list[Any] = []
    worker = rota.Worker(store)
    worker.queue("q", visibility=VISIBILITY)(handler(how, starts))
    worker.transport("t", visibility=VISIBILITY)(handler(how, starts))
    id = queue.enqueue("job")
    run = running(worker)
    until(lambda: len(starts) == 1)
    if how != "blocks the loop":
        transport.publish("g", "message")
        until(lambda: len(starts) == 2)
    for verb in ("heartbeat", "extend"):
        faults.times(verb, 1, rota.EngineUnavailable("no connection"))
    idle = rota.Worker(store)
    idle.queue("q")(lambda payload: starts.append("twice"))
    idle.transport("t")(lambda event: starts.append("twice"))
    running(idle)
    until(lambda: not worker.health().sources[0].running + worker.health().sources[1].running)
    until(lambda: worker.health().unsettled == 0)
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.attempts) == ("done", 1)
    assert "twice" not in starts
    assert transport.stats().messages == 0
    beats = faults.calls["heartbeat"]
    assert 4 * VISIBILITY / (VISIBILITY / 3) - 2 <= beats <= 20
    assert sum(one.lost for one in worker.health().sources) == 0
    run.stop()


def test_lost_claim_is_told_to_the_handler(store: rota.Store, running: Any) -> None:
    """Async ones are cancelled unless that is not wanted, sync ones find ``job.lost`` set; no outcome is recorded."""
    ends: dict[str, str] = {}
    worker = rota.Worker(store)

    @worker.queue("cancelled", visibility=VISIBILITY)
    async def cancelled(job: rota.AsyncJob) -> None:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            ends["cancelled"] = f"cancelled {job.lost.is_set()}"
            raise

    @worker.queue("told", visibility=VISIBILITY, cancel_on_lost=False)
    async def told(job: rota.AsyncJob) -> None:
        await asyncio.wait_for(job.lost.wait(), 20)
        ends["told"] = "told"

    @worker.queue("thread", visibility=VISIBILITY)
    def thread(job: rota.Job) -> None:
        assert job.lost.wait(20)
        ends["thread"] = "told"

    @worker.transport("lease", visibility=VISIBILITY)
    async def lease(lease: rota.AsyncLease) -> None:
        assert not lease.lost.is_set()
        try:
            await asyncio.sleep(20)
        finally:
            ends["lease"] = f"ended {lease.lost.is_set()}"

    ids = {name: store.queue(name).enqueue(1) for name in ("cancelled", "told", "thread")}
    store.transport("lease").publish("g", 1)
    running(worker)
    until(lambda: sum(one.running for one in worker.health().sources) == 4)
    begin = time.monotonic()
    for name, id in ids.items():
        assert store.queue(name).cancel(id)
    assert store.transport("lease").purge("g") == 1
    until(lambda: len(ends) == 4)
    assert time.monotonic() - begin < VISIBILITY
    until(lambda: sum(one.handled for one in worker.health().sources) == 4)
    assert ends == {"cancelled": "cancelled True", "told": "told", "thread": "told", "lease": "ended True"}
    for source in worker.health().sources:
        assert (source.lost, source.acked, source.retried) == (1, 0, 0)
