"""Recurring work on a worker neither drifts, doubles, floods nor skips (case 045).

Seen in voiio/dramatiq-crontab 97 and FoundatioFx/Foundatio 317. The handler enqueues its successor under a key that
names the slot; the key, not the ack, keeps a slot single.
"""

from __future__ import annotations

import random

import rota
from rota.testing import ManualClock

START, PERIOD = 1_700_000_000.123456, 60


def test_a_thousand_rounds(timeless: rota.Store, clock: ManualClock) -> None:
    """Two workers, up to 5 s late, every tenth lease lapses before its ack, then an outage of three hours."""
    chance, runs = random.Random(45), []
    queue = timeless.queue("ticks", visibility=30, max_attempts=5, key_ttl=86_400)
    queue.enqueue(0, run_at=START, key="tick-0")

    def worker_named(name: str) -> rota.Worker:
        worker = rota.Worker(timeless, worker_id=name)

        @worker.queue("ticks")
        def tick(job: rota.Job) -> None:
            number = job.payload + 1
            runs.append((job.payload, job.run_at, job.attempts))
            queue.enqueue(number, run_at=job.run_at + PERIOD, key=f"tick-{number}")
            if number % 10 == 0 and job.attempts == 1:
                clock.advance(31)

        return worker

    workers = [worker_named("one"), worker_named("two")]
    for number in range(1_000):
        clock.set(max(clock.now(), round(START + number * PERIOD, 6) + chance.uniform(0, 5)))
        # A lapsed one comes twice: its ack did not land, and its successor is the same.
        while chance.choice(workers).step():
            pass
    firsts = [run for run in runs if run[2] == 1]
    assert [payload for payload, _, _ in firsts] == list(range(1_000))
    assert [at for _, at, _ in firsts] == [round(START + PERIOD * k, 6) for k in range(1_000)]
    assert [payload for payload, _, attempts in runs if attempts == 2] == list(range(9, 1_000, 10))
    assert queue.stats().pending == 1
    assert queue.stats().dead == 0
    clock.advance(3 * 3_600)
    runs.clear()
    assert workers[0].step()
    assert [(payload, at) for payload, at, _ in runs] == [(1_000, round(START + PERIOD * 1_000, 6))]
