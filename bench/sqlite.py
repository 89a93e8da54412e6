"""The SQLite engine against raw statements on the same file: ``python -m bench.sqlite [normal]``.

Also: the rates with 1,000,000 rows of backlog against those with 10,000, and the wake-up between two processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rota
from bench.measure import alternate, at_least, at_most, heading, line, time_of
from bench.raw_sqlite import RawQueue, RawTransport

PAYLOAD = {"id": 12345, "email": "someone@example.org", "kind": "welcome"}
TEXT = json.dumps(PAYLOAD)
SINGLE, BATCHES, BATCH = 400, 60, 128
SMALL_BACKLOG, LARGE_BACKLOG = 10_000, 1_000_000
GROUPS = 2_000


@contextmanager
def file_with(durability: str) -> Iterator[tuple[str, rota.Store]]:
    """A fresh database of Rota's; the raw tables go into the same file."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        path = os.path.join(folder, "bench.db")
        with rota.open(f"sqlite:////{path.lstrip('/')}", durability=durability) as store:  # type: ignore[arg-type]
            yield path, store


def bench_queue(durability: str) -> None:
    with file_with(durability) as (path, store):
        queue, raw = store.queue("q"), RawQueue(path, durability)
        rounds = 40

        def enqueue_ours() -> float:
            return time_of(rounds * 100, lambda: [queue.enqueue_many([PAYLOAD] * 100) for _ in range(rounds)])

        def enqueue_raw() -> float:
            return time_of(rounds * 100, lambda: [raw.enqueue_many([TEXT] * 100) for _ in range(rounds)])

        ours, yard = alternate(enqueue_ours, enqueue_raw)
        at_least("enqueue_many(100) / raw executemany", yard.median / ours.median, 0.6, _both(ours, yard))
        for _ in range(4):
            queue.enqueue_many([PAYLOAD] * SMALL_BACKLOG)
            raw.enqueue_many([TEXT] * SMALL_BACKLOG)
        ours, yard = alternate(lambda: queue_single(queue), lambda: raw_single(raw))
        at_least("queue claim + ack, single / raw", yard.median / ours.median, 0.6, _both(ours, yard))
        ours, yard = alternate(lambda: queue_batch(queue, BATCHES // 2), lambda: raw_batch(raw, BATCHES // 2))
        at_least("queue claim_batch(128) + ack_batch / raw", yard.median / ours.median, 0.5, _both(ours, yard))


def queue_single(queue: rota.Queue) -> float:
    def run() -> None:
        for _ in range(SINGLE):
            job = queue.claim_one("worker")
            assert job is not None
            assert job.ack()

    return time_of(SINGLE, run)


def queue_batch(queue: rota.Queue, batches: int) -> float:
    def run() -> None:
        for _ in range(batches):
            jobs = queue.claim_batch("worker", BATCH)
            assert queue.ack_batch(jobs, "worker") == BATCH

    return time_of(batches * BATCH, run)


def raw_single(raw: RawQueue) -> float:
    def run() -> None:
        for _ in range(SINGLE):
            raw.ack(raw.claim(1)[0][0])

    return time_of(SINGLE, run)


def raw_batch(raw: RawQueue, batches: int) -> float:
    def run() -> None:
        for _ in range(batches):
            jobs = raw.claim(BATCH)
            assert len(jobs) == BATCH
            raw.ack_batch([job_id for job_id, _ in jobs])

    return time_of(batches * BATCH, run)


def bench_transport(durability: str) -> None:
    with file_with(durability) as (path, store):
        transport, raw = store.transport("t"), RawTransport(path, durability)
        for turn in range(20):
            transport.publish_many([(f"group-{n}", PAYLOAD) for n in range(GROUPS)])
            raw.publish_many([(f"group-{n}", TEXT) for n in range(GROUPS)])
            del turn
        ours, yard = alternate(lambda: transport_single(transport), lambda: raw_transport(raw, SINGLE, 1))
        at_least("transport claim + ack, single / raw", yard.median / ours.median, 0.6, _both(ours, yard))
        ours, yard = alternate(lambda: transport_batch(transport, 15), lambda: raw_transport(raw, 15, BATCH))
        at_least("transport claim_batch(128) + ack_batch / raw", yard.median / ours.median, 0.6, _both(ours, yard))


def transport_single(transport: rota.Transport) -> float:
    def run() -> None:
        for _ in range(SINGLE):
            lease = transport.claim("worker")
            assert lease is not None
            assert lease.ack()

    return time_of(SINGLE, run)


def transport_batch(transport: rota.Transport, batches: int) -> float:
    def run() -> None:
        for _ in range(batches):
            leases = transport.claim_batch("worker", BATCH)
            assert transport.ack_batch(leases) == BATCH

    return time_of(batches * BATCH, run)


def raw_transport(raw: RawTransport, batches: int, size: int) -> float:
    def run() -> None:
        for _ in range(batches):
            leases = raw.claim(size)
            assert len(leases) == size
            raw.ack_batch(leases)

    return time_of(batches * size, run)


def bench_backlog(durability: str) -> None:
    """The same verbs on a file with a small and on one with a large backlog, in turn."""
    with file_with(durability) as (_, small_store), file_with(durability) as (_, large_store):
        pairs: list[Any] = []
        for store, backlog in ((small_store, SMALL_BACKLOG), (large_store, LARGE_BACKLOG)):
            queue, transport = store.queue("q"), store.transport("t")
            for start in range(0, backlog, 50_000):
                size = min(50_000, backlog - start)
                queue.enqueue_many([PAYLOAD] * size)
                # A tenth as many groups as messages.
                transport.publish_many([(f"group-{n // 10}", PAYLOAD) for n in range(start, start + size)])
            pairs.append((queue, transport))
        (small_queue, small_transport), (large_queue, large_transport) = pairs
        kept = alternate(lambda: queue_single(large_queue), lambda: queue_single(small_queue))
        _kept("queue single", kept)

        def batches(queue: rota.Queue) -> float:
            queue.enqueue_many([PAYLOAD] * (20 * BATCH))
            return queue_batch(queue, 20)

        _kept("queue batch 128", alternate(lambda: batches(large_queue), lambda: batches(small_queue)))
        kept = alternate(lambda: transport_single(large_transport), lambda: transport_single(small_transport))
        _kept("transport single", kept)
        kept = alternate(lambda: transport_batch(large_transport, 5), lambda: transport_batch(small_transport, 5))
        _kept("transport batch 128", kept)

        def enqueue(queue: rota.Queue) -> float:
            return time_of(2_000, lambda: [queue.enqueue_many([PAYLOAD] * 100) for _ in range(20)])

        _kept("enqueue_many(100)", alternate(lambda: enqueue(large_queue), lambda: enqueue(small_queue)))


def _kept(what: str, sides: list[Any]) -> None:
    large, small = sides
    at_least(f"{what}, 1,000,000 / 10,000 rows", small.median / large.median, 0.8, _both(large, small))


_WORKER = """
import sys, time
import rota
store = rota.open(sys.argv[1])
queue = store.queue("wake")
print("ready", flush=True)
while True:
    job = queue.claim_one("worker", wait=30)
    if job is None:
        break
    arrived = time.time()
    if job.payload is None:
        break
    print(arrived - job.payload, flush=True)
    job.ack()
"""


def bench_wakeup() -> None:
    """From just before ``enqueue`` in this process to the claim in another one; then that one's idle processor time."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        url = "sqlite:////" + os.path.join(folder, "wake.db").lstrip("/")
        with rota.open(url) as store:
            queue = store.queue("wake")
            queue.stats()
            worker = subprocess.Popen([sys.executable, "-c", _WORKER, url], stdout=subprocess.PIPE, text=True)
            assert worker.stdout is not None
            worker.stdout.readline()
            delays = []
            for _ in range(300):
                time.sleep(0.02)
                queue.enqueue(time.time())
                delays.append(float(worker.stdout.readline()) * 1_000)
            before = _cpu_seconds(worker.pid)
            time.sleep(5)
            idle = (_cpu_seconds(worker.pid) - before) / 5 * 100
            queue.enqueue(None)
            worker.wait(10)
    delays.sort()
    p50, p99 = statistics.median(delays), delays[int(len(delays) * 0.99)]
    at_most("wake-up across processes, p50, ms", p50, 2, f"{len(delays)} jobs, max {delays[-1]:.2f} ms")
    at_most("wake-up across processes, p99, ms", p99, 5, "")
    at_most("idle waiter, % of a core", idle, 3, "over 5 s")


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _both(ours: Any, yard: Any) -> str:
    return f"{ours.per_second()} against {yard.per_second()}"


def main(arguments: list[str]) -> None:
    durability = "normal" if "normal" in arguments else "full"
    heading(f"SQLite, durability {durability}")
    bench_queue(durability)
    bench_transport(durability)
    bench_backlog(durability)
    if os.path.exists("/proc/self/stat"):
        bench_wakeup()
    else:
        line("wake-up across processes", 0, "-", False, "not measured: no /proc here")


if __name__ == "__main__":
    main(sys.argv[1:])
