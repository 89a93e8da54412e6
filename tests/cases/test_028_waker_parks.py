"""A waiting claim does not sleep through what became due (russellromney/honker PR 122 and 158).

These tests run in real time, each for a second or two: ``wait=`` counts real seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing.tck.base import Started

# X7: within a second of becoming claimable. The rest is for a machine that is busy otherwise.
A_SECOND = 1.0
SLACK = 0.5


# What makes something claimable after ``LATER`` seconds: by itself (these only prepare it), or by the call they return.
LATER = 0.4


def _alone(*prepared: Any) -> None:
    """It becomes claimable by time alone."""


def _held_job(queue: Any) -> Any:
    queue.enqueue(1)
    return queue.claim_one("other")


def _held_message(transport: Any, *earlier: Any) -> Any:
    transport.publish_many([("g", event) for event in (*earlier, 1)])
    return transport.claim("other", visibility=60)


JOBS: dict[str, Callable[[Any], Callable[[], Any] | None]] = {
    "delay over": lambda queue: _alone(queue.enqueue(1, delay=LATER)),
    "due exactly now": lambda queue: _alone(queue.enqueue(1, run_at=time.time() + LATER)),
    "claim lapsed": lambda queue: _alone(queue.enqueue(1), queue.claim_one("other", visibility=LATER)),
    "retry over": lambda queue: _alone(_held_job(queue).retry("no", LATER)),
    "released for later": lambda queue: _alone(_held_job(queue).release(delay=LATER)),
    "claim shortened": lambda queue: _alone(_held_job(queue).heartbeat(LATER)),
    "enqueued": lambda queue: partial(queue.enqueue, 1),
    "many enqueued": lambda queue: partial(queue.enqueue_many, [1, 2]),
    "retried at once": lambda queue: partial(_held_job(queue).retry, "no", 0),
    "released": lambda queue: _held_job(queue).release,
    "resumed": lambda queue: (queue.enqueue(1), queue.suspend(), queue.resume)[-1],
    "redriven": lambda queue: (_held_job(queue).fail("no"), partial(queue.redrive, "all"))[-1],
}
MESSAGES: dict[str, Callable[[Any], Callable[[], Any] | None]] = {
    "park over": lambda transport: _alone(_held_message(transport).nack(LATER)),
    "lease lapsed": lambda transport: _alone(_held_message(transport).extend(LATER)),
    "released for later": lambda transport: _alone(_held_message(transport).release(delay=LATER)),
    "published": lambda transport: partial(transport.publish, "g", 1),
    "many published": lambda transport: partial(transport.publish_many, [("g", 1), ("h", 1)]),
    "nacked": lambda transport: _held_message(transport).nack,
    "released": lambda transport: _held_message(transport).release,
    "one before it acked": lambda transport: _held_message(transport, "first").ack,
    "one before it failed": lambda transport: _held_message(transport, "first").fail,
    "transport resumed": lambda transport: (transport.publish("g", 1), transport.suspend(), transport.resume)[-1],
    "group resumed": lambda transport: (
        transport.publish("g", 1),
        transport.suspend("g"),
        partial(transport.resume, "g"),
    )[-1],
    "redriven": lambda transport: (_held_message(transport).fail(), partial(transport.redrive, "all"))[-1],
}


@pytest.mark.parametrize("hearing", ["hears", "deaf"])
def test_waiting_claims_find_what_becomes_claimable(
    opener: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, hearing: str
) -> None:
    """Every way there is, all at once, each with a waiter of its own; also when nobody is ever told."""
    real = opener()
    if hearing == "deaf":
        monkeypatch.setattr(real._core.wakeups, "wake", lambda address: None)
    sources = [(real.queue(how, max_attempts=5), prepare) for how, prepare in JOBS.items()]
    sources += [(real.transport(how), prepare) for how, prepare in MESSAGES.items()]

    def wait(source: Any, prepare: Any, timers: list[threading.Timer]) -> float:
        begin = time.monotonic()
        free = prepare(source)
        if free is not None:
            timers.append(threading.Timer(LATER, free))
            timers[-1].start()
        assert len(source.claim_batch("w", 1, wait=20)) == 1
        return time.monotonic() - begin

    timers: list[threading.Timer] = []
    waiting = [(source.name, Started(wait, source, prepare, timers)) for source, prepare in sources]
    spans = {name: one.result(25) for name, one in waiting}
    for timer in timers:
        timer.join()
    slow = {name: took for name, took in spans.items() if not LATER * 0.9 < took < LATER + A_SECOND + SLACK}
    assert slow == {}


def test_due_while_the_claim_was_locked_out(sqlite_file: Path) -> None:
    """Jobs fall due while a foreign writer holds the lock: they come within a second of the lock's end.

    With a timeout longer than the lock is held and with one much shorter, on both facades.
    """
    url = f"sqlite:///{sqlite_file}"

    def wait(name: str, busy_timeout: float) -> Any:
        with rota.open(url, busy_timeout=busy_timeout) as store:
            return store.queue(name).claim_one("w", wait=20).payload, time.monotonic()

    async def wait_async(name: str, busy_timeout: float) -> Any:
        async with rota.aopen(url, busy_timeout=busy_timeout) as store:
            return (await store.queue(name).claim_one("w", wait=20)).payload, time.monotonic()

    with rota.open(url) as store:
        for n in range(4):
            store.queue(f"q{n}").enqueue("work", delay=0.6)
        waiting = [Started(wait, f"q{n}", timeout) for n, timeout in enumerate((0.1, 5))]
        waiting += [
            Started(lambda n=n, timeout=timeout: asyncio.run(wait_async(f"q{n}", timeout)))
            for n, timeout in ((2, 0.1), (3, 5))
        ]
        time.sleep(0.4)
        with contextlib.closing(sqlite3.connect(sqlite_file, isolation_level=None, timeout=10)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            time.sleep(1.2)
            assert all(one.running for one in waiting)
            blocker.execute("COMMIT")
        released = time.monotonic()
        for one in waiting:
            payload, at = one.result()
            assert payload == "work"
            assert at - released < A_SECOND + SLACK


def test_job_taken_by_another_at_its_due_time_and_given_back(opener: Callable[..., Any]) -> None:
    """The waiter that lost it at its due time has it as soon as it is retried."""
    queue = opener().queue("q")
    queue.enqueue("work", delay=0.3)
    first, second = (Started(queue.claim_one, f"w{n}", wait=20) for n in range(2))
    while first.running and second.running:
        time.sleep(0.01)
    winner, loser = (first, second) if not first.running else (second, first)
    assert winner.result().retry("again", 0)
    begin = time.monotonic()
    assert loser.result().attempts == 2
    assert time.monotonic() - begin < A_SECOND + SLACK


class Counting:
    """An engine's queue or transport that counts how often it was asked for work."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.looks = 0

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._engine, verb)

    def claim(self, *args: Any) -> Any:
        self.looks += 1
        return self._engine.claim(*args)

    def next_due(self) -> Any:
        self.looks += 1
        return self._engine.next_due()


def useless_dues(store: Any) -> None:
    """Much that seems to fall due in the near future, and nothing that can ever be claimed."""
    queue, transport = store.queue("useless"), store.transport("useless")
    queue.enqueue_many([rota.Item(n, delay=0.2 + n / 100, expires=0.1) for n in range(20)])
    queue.enqueue_many([rota.Item(n, max_attempts=1, priority=5) for n in range(20)])
    queue.claim_batch("other", 20, visibility=0.2)
    transport.publish_many([(f"low-{n}", n) for n in range(20)])
    for number, lease in enumerate(transport.claim_batch("other", 20)):
        lease.nack(0.2 + number / 100)


def test_idle_waiting_is_no_busy_loop(url: str) -> None:
    """X8: a bounded number of statements, also where instants fall due that turn out useless."""
    with rota.open(url) as store:
        useless_dues(store)
        waiting = {}
        for load in ("empty", "useless"):
            for source, floor in ((store.queue(load), {}), (store.transport(load), {"min_priority": 1})):
                counting = source._engine = Counting(source._engine)
                waiting[type(source).__name__, load] = (
                    counting,
                    Started(source.claim_batch, "w", 1, wait=1.2, **floor),
                )
        for (_, load), (counting, call) in waiting.items():
            assert call.result() == []
            # Two looks a second, each a claim and a question; and those for each instant that fell due.
            assert counting.looks <= (16 if load == "empty" else 16 + 4 * 40)
