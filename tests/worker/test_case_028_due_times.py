"""A worker does not sleep its whole poll after missing a due time (case 028; russellromney/honker PR 122 and 158)."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota

from .faults import Faults
from .running import until

# X7: within a second of becoming claimable. The rest is for a machine that is busy otherwise.
SOON = 1.0 + 0.5
LATER = 0.6


def sources(store: rota.Store) -> tuple[rota.Worker, dict[str, float]]:
    """A worker that notes when each payload started."""
    worker, starts = rota.Worker(store), dict[str, float]()

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        starts[payload] = time.monotonic()

    @worker.transport("t")
    async def on_event(event: Any) -> None:
        starts[event] = time.monotonic()

    return worker, starts


@pytest.mark.parametrize("hearing", ["hears", "deaf"])
def test_what_falls_due_starts_within_a_second(
    store: rota.Store, running: Any, monkeypatch: pytest.MonkeyPatch, hearing: str
) -> None:
    """Delayed, retried, lapsed, released for later, parked, and due exactly now; also when nobody is ever told."""
    if hearing == "deaf":
        monkeypatch.setattr(store._core.wakeups, "wake", lambda address: None)
    worker, starts = sources(store)
    queue, transport = store.queue("q", max_attempts=9), store.transport("t")
    other = {name: store.queue("q", max_attempts=9) for name in ("retried", "lapsed", "released")}
    held = {}
    for name in other:
        queue.enqueue(name)
        held[name] = queue.claim_one("other", visibility=LATER if name == "lapsed" else 60)
    for name in ("parked", "lease lapsed"):
        transport.publish(name, name)
        held[name] = transport.claim("other", visibility=LATER if name == "lease lapsed" else 60)
    running(worker)
    begin = time.monotonic()
    queue.enqueue("delayed", delay=LATER)
    queue.enqueue("exactly", run_at=store.now() + LATER)
    assert held["retried"].retry("again", LATER)
    assert held["released"].release(delay=LATER)
    assert held["parked"].nack(LATER)
    until(lambda: len(starts) == 7)
    late = {name: at - begin for name, at in starts.items() if not LATER * 0.5 < at - begin < LATER + SOON}
    assert late == {}


def test_taken_by_another_at_its_due_time_and_given_back(store: rota.Store, running: Any) -> None:
    worker, starts = sources(store)
    # It is given back again and again until the first worker has ended.
    queue = store.queue("q", max_attempts=1_000_000)
    queue.enqueue("work", delay=0.3)
    other = rota.Worker(store)
    given: list[float] = []

    @other.queue("q", concurrency=1)
    def give_back(job: rota.Job) -> None:
        given.append(time.monotonic())
        raise rota.Retry(0)

    first = running(other)
    until(lambda: given)
    first.stop()
    begin = time.monotonic()
    running(worker)
    until(lambda: starts)
    assert starts["work"] - begin < SOON


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_due_while_the_claim_is_locked_out(store: rota.Store, sqlite_file: Path, running: Any) -> None:
    """A foreign writer holds the lock over the due time."""
    worker, starts = sources(store)
    running(worker)
    store.queue("q").enqueue("work", delay=0.5)
    time.sleep(0.3)
    with contextlib.closing(sqlite3.connect(sqlite_file, isolation_level=None, timeout=10)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        time.sleep(1.2)
        assert not starts
        blocker.execute("COMMIT")
    released = time.monotonic()
    until(lambda: starts)
    assert starts["work"] - released < SOON


def test_claims_that_fail_for_a_while(store: rota.Store, running: Any) -> None:
    """The store is gone over the due time: asked again less and less often, and found within a second of its return."""
    faults = Faults(store)
    worker, starts = sources(store)
    store.queue("q").enqueue("work", delay=0.3)
    end = time.monotonic() + 2.5
    faults.fails["claim"] = lambda args: rota.EngineUnavailable("gone") if time.monotonic() < end else None
    running(worker)
    until(lambda: starts)
    assert starts["work"] - end < SOON
    assert faults.calls["claim"] < 40


def idle(store: rota.Store, running: Any, prepare: Callable[[rota.Store], object]) -> int:
    """Statements of an idle worker in two seconds."""
    prepare(store)
    faults = Faults(store)
    worker, _ = sources(store)
    running(worker)
    time.sleep(1.0)
    before = sum(faults.calls.values())
    time.sleep(2.0)
    return sum(faults.calls.values()) - before


def test_an_idle_worker_asks_little(store: rota.Store, running: Any) -> None:
    """X8: two looks a second for each of two sources, each a claim and a question; housekeeping besides."""
    assert idle(store, running, lambda store: None) <= 2 * 2 * 2 * 2 + 10


def test_useless_due_times_make_no_busy_loop(store: rota.Store, running: Any) -> None:
    def prepare(store: rota.Store) -> None:
        store.queue("q").enqueue_many([rota.Item(n, delay=60 + n / 100, expires=30) for n in range(20)])
        store.queue("q").suspend()

    assert idle(store, running, prepare) <= 2 * 2 * 2 * 2 + 10
