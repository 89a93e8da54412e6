"""A worker does not grow (case 043; psycopg/psycopg 1091, fedify-dev/fedify 570)."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from typing import Any, NamedTuple

import pytest

import rota

from .running import until

MEGABYTE = 2**20
POOL_SIZE = 10
POOLS = 2  # for threads and for the worker's loop


class Footprint(NamedTuple):
    """What the process holds; connections of the store's pools, which stay between verbs, are counted apart."""

    memory: int
    connections: int
    descriptors: int
    threads: int
    tasks: int
    timers: int


def pooled_sockets(store: rota.Store) -> set[int]:
    """Descriptors of the connections that a store on PostgreSQL has open for its verbs and its transactions."""
    engine: Any = store._core.engine
    if not hasattr(engine, "held_pool"):
        return set()
    sessions = [*engine.pool._all, *engine.held_pool._all]
    for pools in (engine.loops, engine.held_loops):
        sessions += [session for pool in pools._pools.values() for session in pool.all]
    return {session.connection.pgconn.socket for session in sessions}


def test_a_hundred_thousand_jobs_leave_nothing(
    store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A fifth with delays, retries and cancels, messages and foreign notifications besides; async and sync handlers."""
    # pytest keeps every record it sees.
    caplog.set_level(logging.CRITICAL, "rota.worker")
    worker, loops = rota.Worker(store), []
    queue, threaded, transport = store.queue("q", backoff_base=0.01), store.queue("s"), store.transport("t")

    @worker.queue("q", concurrency=50, timeout=30)
    async def handle(job: rota.AsyncJob) -> None:
        if not loops:
            loops.append(asyncio.get_running_loop())
        if job.payload % 10 == 0 and job.attempts == 1:
            raise rota.Retry(0.01)

    @worker.queue("s", concurrency=4, timeout=30)
    def handle_sync(payload: Any) -> None: ...

    @worker.transport("t", concurrency=50)
    async def on_event(event: Any) -> None: ...

    def put(count: int) -> None:
        for begin in range(0, count, 5_000):
            queue.enqueue_many(range(begin, begin + 3_000))
            later = queue.enqueue_many([rota.Item(n * 10 + 1, delay=0.05) for n in range(500)])
            threaded.enqueue_many(range(1_000))
            transport.publish_many([(f"g{begin + n}", n) for n in range(500)])
            for id in later[::10]:
                queue.cancel(id)
            store.notify("another", "x" * 100)
        until(lambda: queue.stats().pending == queue.stats().processing == 0, 120)
        until(lambda: threaded.stats().pending == threaded.stats().processing == 0, 60)
        until(lambda: transport.stats().messages == 0, 60)
        until(lambda: worker.health().unsettled == 0)

    def footprint() -> Footprint:
        gc.collect()
        with open("/proc/self/statm") as statm:
            memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        (loop,) = loops
        timers = sum(not timer.cancelled() for timer in loop._scheduled)
        pooled = pooled_sockets(store)
        descriptors = {int(name) for name in os.listdir("/proc/self/fd")} - pooled
        return Footprint(
            memory, len(pooled), len(descriptors), threading.active_count(), len(asyncio.all_tasks(loop)), timers
        )

    running(worker)
    put(20_000)
    before = footprint()
    for _ in range(4):
        put(20_000)
    after = footprint()
    assert after.memory - before.memory < 10 * MEGABYTE
    # How many verbs ever met decides how many connections a pool has, up to its bound.
    assert after.connections <= POOLS * POOL_SIZE
    assert after[2:] == before[2:]
    assert sum(source.lost for source in worker.health().sources) <= 1_000  # what was cancelled while it ran
    assert worker.health().sources[0].timed_out == 0
