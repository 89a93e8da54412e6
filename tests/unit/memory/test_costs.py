"""Work and memory stay bounded (C8): calls counted, entries counted, no time measured."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import pytest

from rota.memory import lanes

from .bench import Bench, job, publish, stamp, take


def calls(verb: Callable[[], object]) -> int:
    """How many functions, of Python or C, one call enters."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        verb()
    finally:
        sys.setprofile(None)
    return count


def transport_of(groups: int) -> Callable[[], object]:
    bench = Bench()
    t = bench.transport()
    for i in range(groups):
        publish(t, f"g{i}", 1, 2)
    # Some turned, some leased, some parked, so that every structure has something in it.
    for claim in t.claim("w", groups // 4, 50, None):
        t.nack(claim, 5 if claim.seq % 8 < 2 else 0, None)
    t.claim("w", groups // 4, 1_000, None)
    return lambda: t.ack(take(t))


def queue_of(jobs: int) -> Callable[[], object]:
    bench = Bench()
    q = bench.queue()
    q.enqueue_many([job(priority=i % 4, delay=(i * 7919) % 1_000 - 900, expires=10**9) for i in range(jobs)])
    q.claim("w", jobs // 4, 10**6)
    return lambda: q.ack(q.claim("w", 1, None)[0], None)


@pytest.mark.parametrize("build", [transport_of, queue_of])
def test_c8_a_cycle_makes_as_many_calls_at_any_backlog(build: Callable[[int], Callable[[], object]]) -> None:
    few, many = build(1_000), build(100_000)
    work = [[calls(cycle) for _ in range(20)] for cycle in (few, many)]
    assert max(work[1]) <= max(work[0])


def test_c8_a_floor_finds_its_group_behind_any_number_of_lower_ones() -> None:
    counted = []
    for crowd in (10, 20_000):
        bench = Bench()
        t = bench.transport()
        for i in range(crowd):
            publish(t, f"g{i}", 1)
        publish(t, "urgent", 1, priority=4)
        counted.append(calls(lambda t=t: take(t, floor=3)))
    assert counted[0] == counted[1]


def test_lease_deadlines_stay_bounded_under_a_frozen_clock(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "held", 1)
    take(t, visibility=10**9)
    publish(t, "g", 1)
    for i in range(100_000):
        claim = take(t, visibility=30 + i % 3)
        t.extend([claim], 10 + i % 50)
        t.nack(claim, 0, None)
    state = bench.engine.transport_states["t"]
    assert len(state.deadlines) < 1_500
    assert len(state.lanes.ordered[0]) < 100


def test_job_structures_stay_bounded_under_a_frozen_clock(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue_many([job(delay=10**6, priority=-1), job(priority=5)])
    q.claim("w", 1, 10**9)
    for i in range(50_000):
        number = q.enqueue(job(expires=10**6, delay=(None, 10)[i % 2], key=f"k{i}", stamp=stamp(key_ttl=0)))
        if i % 2:
            q.cancel(number)
            continue
        claim = q.claim("w", 1, 50 - i % 3)[0]
        q.heartbeat([claim], 5 + i % 40)
        assert q.ack(claim, None)
    state = bench.engine.queue_states["q"]
    assert len(state.jobs) == 2
    for structure in (state.deadlines, state.delayed, state.expiries, *state.lanes.ordered):
        assert len(structure) < 1_500
    assert len(state.keys) < 10


def test_cancelled_and_purged_items_leave_their_lanes(bench: Bench) -> None:
    q, t = bench.queue(), bench.transport()
    q.enqueue(job())
    publish(t, "stays", 1)
    for i in range(20_000):
        q.cancel(q.enqueue(job()))
        publish(t, f"g{i}", 1)
        t.purge(f"g{i}")
    assert len(bench.engine.queue_states["q"].lanes.ordered[0]) < 200
    assert len(bench.engine.transport_states["t"].lanes.ordered[0]) < 200


def test_unused_priorities_are_forgotten(bench: Bench) -> None:
    q, t = bench.queue(), bench.transport()
    for i in range(1_000):
        q.cancel(q.enqueue(job(priority=i)))
        publish(t, "g", 1, priority=i)
        assert t.ack(take(t))
    for state in (bench.engine.queue_states["q"], bench.engine.transport_states["t"]):
        assert len(state.lanes.ordered) <= lanes._SPARE_LANES


class Event:
    """Something a weak reference can watch."""


def test_settled_events_are_released(bench: Bench) -> None:
    t = bench.transport()
    watched = []
    for group in ("alone", "more"):
        event = Event()
        watched.append(weakref.ref(event))
        publish(t, group, event)
        del event
    publish(t, "more", 2)
    publish(t, "held", 1)
    claims = t.claim("w", 3, 10**9, None)
    for claim in claims[:2]:
        assert t.ack(claim)
    del claims, claim
    gc.collect()
    assert [reference() for reference in watched] == [None, None]


def test_c6_batches_of_fifty_thousand(bench: Bench) -> None:
    q = bench.queue()
    ids = q.enqueue_many([job()] * 50_000)
    claims = q.claim("w", 10**6, None)
    assert [claim.id for claim in claims] == ids
    assert q.heartbeat(claims, 50) == [bench.now + 50] * 50_000
    assert q.ack_batch(claims[:25_000], ids, "w") == 50_000
    assert q.stats()[:4] == (0, 0, 0, 0)
