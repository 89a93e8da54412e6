"""Long-lived stores, listeners and waits do not grow (psycopg/psycopg 1091, fedify-dev/fedify 570)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any, NamedTuple

import rota
from rota.testing import ManualClock
from rota.wakeups import ChannelQueue

MEGABYTE = 2**20


class Footprint(NamedTuple):
    """What a process holds."""

    memory: int
    descriptors: int
    threads: int
    waiters: int


def footprint(store: Any = None) -> Footprint:
    gc.collect()
    with open("/proc/self/statm") as statm:
        memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    waiters = 0 if store is None else sum(map(len, store._core.wakeups._waiters.values()))
    return Footprint(memory, len(os.listdir("/proc/self/fd")), threading.active_count(), waiters)


def assert_same(before: Footprint, after: Footprint, growth: int = 10 * MEGABYTE) -> None:
    assert after.memory - before.memory < growth, f"grew by {(after.memory - before.memory) / MEGABYTE:.1f} MB"
    assert after[1:] == before[1:]


def work(store: Any, clock: ManualClock, jobs: int, batch: int) -> None:
    """So many jobs put in and worked off, every fifth with a delay, retry or cancel; messages and notifications too."""
    queue, transport = store.queue("q", backoff_base=1), store.transport("t")
    for number in range(0, jobs, batch):
        plain = queue.enqueue_many(range(batch * 4 // 5))
        later = queue.enqueue_many([rota.Item(n, delay=5, key=f"k{number + n}") for n in range(batch // 5)])
        transport.publish_many([(f"g{number + n}", n) for n in range(batch // 5)])
        claimed = queue.claim_batch("w", len(plain))
        assert len(claimed) == len(plain)
        for job in claimed[:: max(1, batch // 10)]:
            assert job.heartbeat(10)
            assert job.retry("again", 3)
        queue.ack_batch(claimed, "w")
        for job_id in later[::2]:
            assert queue.cancel(job_id)
        leases = transport.claim_batch("w", batch)
        leases = transport.extend_batch(leases, 20)
        assert leases[0].nack(1)
        transport.ack_batch(leases)
        clock.advance(10)
        assert transport.ack_batch(transport.claim_batch("w", batch)) == 1
        while rest := queue.claim_batch("w", batch):
            assert queue.ack_batch(rest, "w") == len(rest)
        for _ in range(max(1, batch // 100)):
            store.notify("another queue", "x" * 100)
        clock.advance(500)
        queue.sweep_expired()
        transport.sweep()
    stats = queue.stats()
    assert (stats.pending, stats.processing, stats.dead) == (0, 0, 0)


def test_hundred_thousand_jobs_leave_nothing(plain: Any, clock: ManualClock, engine: str) -> None:
    """From a fifth of them to the end: less than 10 MB, the same descriptors, threads and waiters."""
    work(plain, clock, 20_000, 1_000)
    before = footprint(plain)
    work(plain, clock, 80_000, 1_000)
    assert_same(before, footprint(plain))


def test_single_jobs_leave_nothing(plain: Any, clock: ManualClock, engine: str) -> None:
    """One by one, as most programs do it."""
    queue, transport = plain.queue("q"), plain.transport("t")

    def cycles(number: int) -> None:
        for n in range(number):
            queue.enqueue(n)
            transport.publish(f"g{n}", n)
            assert queue.claim_one("w").ack()
            assert transport.claim("w").ack()
            clock.advance(0.01)

    count = 40_000 if engine == "memory" else 1_500
    cycles(count // 5)
    before = footprint(plain)
    cycles(count)
    assert_same(before, footprint(plain))


def test_listener_that_does_not_listen_is_bounded(plain: Any) -> None:
    """100,000 notifications for other channels cost it nothing; those for it are kept up to a limit."""
    other, deaf = plain.listen("other", timeout=0.1), plain.listen("deaf", timeout=0.1)
    engine = plain._core.engine
    memory = not engine.durable
    count = ChannelQueue.LIMIT + 500 if memory else 300
    for number in range(count):
        plain.notify("nobody", "x")
        if memory or number % 3 == 0:
            plain.notify("deaf", str(number))
    assert list(other) == []
    heard = list(deaf)
    assert len(heard) <= ChannelQueue.LIMIT
    assert int(heard[-1]) >= count - 3
    for listener in (other, deaf):
        listener.close()
    assert footprint(plain).waiters == 0


def test_thousand_handles_and_waits_leave_nothing(plain: Any) -> None:
    """Handles, listeners and waiting claims that came and went."""

    def cycles(number: int) -> None:
        for n in range(number):
            queue, transport = plain.queue(f"q{n % 7}"), plain.transport(f"t{n % 7}")
            assert queue.claim_one("w", wait=0.0001) is None
            assert transport.claim("w", wait=0.0001) is None
            plain.listen(f"c{n % 7}").close()

    cycles(100)
    before = footprint(plain)
    cycles(900)
    assert_same(before, footprint(plain))


def test_many_stores_opened_and_closed(url: str, engine: str) -> None:
    """Nothing stays open, sync or async."""

    def cycle() -> None:
        with rota.open(url) as store:
            store.queue("q").enqueue("work")
            assert store.queue("q").claim_one("w").ack()
            store.listen("c").close()

    async def acycles(number: int) -> None:
        for _ in range(number):
            async with rota.aopen(url) as store:
                await store.queue("q").enqueue("work")
                job = await store.queue("q").claim_one("w", wait=0.01)
                assert job is not None
                assert await job.ack()

    def cycles(number: int) -> None:
        for _ in range(number):
            cycle()
        asyncio.run(acycles(number // 4))

    # A session of a server takes its time to begin; a leak of one in each round shows as well.
    count = 100 if engine == "postgresql" else 400
    cycles(count // 2)
    before = footprint()
    cycles(count)
    assert_same(before, footprint())
