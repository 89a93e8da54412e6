"""Shared stores, channels and threads of the memory engine."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota.clock import wall_clock
from rota.errors import StoreClosed
from rota.memory import MemoryEngine, open_memory
from rota.wakeups import ThreadWaiter, channel_address

from .bench import Bench, job, publish, take


def test_a_named_store_is_shared_until_its_last_user_closes() -> None:
    first, close_first = open_memory("shared", url="memory://shared", now=wall_clock)
    second, close_second = open_memory("shared", url="memory://shared", now=wall_clock)
    first.queue("q").enqueue(job())
    assert first.queue("q").place == second.queue("q").place
    close_first()
    close_first()
    assert len(second.queue("q").claim("w", 5, None)) == 1
    close_second()
    with pytest.raises(StoreClosed):
        second.queues()
    third, close_third = open_memory("shared", url="memory://shared", now=wall_clock)
    assert third.queues() == []
    close_third()


def test_private_stores_share_nothing() -> None:
    (one, close_one), (two, close_two) = (open_memory(None, url="memory://", now=wall_clock) for _ in range(2))
    one.transport("t", {}).publish("g", 1, 0, None, None)
    assert two.transports() == []
    assert one.transport("t", {}).place != two.transport("t", {}).place
    close_one()
    assert two.queues() == []
    close_two()


def test_a_named_store_refuses_another_clock_or_cap() -> None:
    clock = object()
    _, close = open_memory("clocked", url="memory://clocked", now=lambda: 5, clock=clock, max_items=7)
    with pytest.raises(ValueError, match="clock"):
        open_memory("clocked", url="memory://clocked", now=wall_clock, max_items=7)
    with pytest.raises(ValueError, match=r"max_items=7.*max_items=8"):
        open_memory("clocked", url="memory://clocked", now=lambda: 5, clock=clock, max_items=8)
    _, close_too = open_memory("clocked", url="memory://clocked", now=lambda: 5, clock=clock, max_items=7)
    close()
    close_too()


def test_x6_notify_reaches_those_subscribed_now(bench: Bench) -> None:
    engine = bench.engine
    engine.notify("news", "lost")
    here, there = engine.subscribe("news"), engine.subscribe("news")
    engine.notify("news", "a")
    engine.notify("other", "b")
    there.close()
    engine.notify("news", None)
    assert here.take() == ["a", None]
    assert here.take() == []
    assert there.take() == ["a"]
    engine.close()
    here.close()


def test_closing_wakes_waiters(bench: Bench) -> None:
    waiter = ThreadWaiter(channel_address("c"))
    woken = []
    waiter.wake = lambda: woken.append(True)
    bench.engine.wakeups.add(waiter)
    bench.engine.close()
    assert woken
    assert bench.engine.wakeups.closed


def test_verbs_run_straight_through_for_asyncio(bench: Bench) -> None:
    q = bench.queue()

    async def main() -> int:
        await bench.engine.acall(q.enqueue, job())
        claims = await bench.engine.acall_or_undo(q.claim, lambda claims: None, "w", 1, None)
        return await bench.engine.acall(q.ack_batch, claims, [], worker_id="w")

    before = threading.active_count()
    assert asyncio.run(main()) == 1
    assert threading.active_count() == before


def test_q13_threads_share_the_work_out_exactly_once() -> None:
    engine = MemoryEngine("memory://", now=wall_clock)
    q, t = engine.queue("q"), engine.transport("t", {})
    ids = q.enqueue_many([job()] * 2_000)
    for i in range(2_000):
        publish(t, f"g{i % 50}", i)
    taken: list[int] = []
    events: list[tuple[str, int]] = []

    def work() -> None:
        while claims := q.claim("w", 3, None):
            taken.extend(claim.id for claim in claims)
            q.ack_batch(claims, [], "w")
        while claim := take(t, visibility=10**9):
            events.append((claim.group_id, claim.event))
            assert t.ack(claim)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == ids
    # A thread may end while others still hold the rest; they settle it and go on themselves.
    assert sorted(event for _, event in events) == list(range(2_000))
    for group in {group for group, _ in events}:
        mine = [event for name, event in events if name == group]
        assert mine == sorted(mine)


def test_an_interrupt_while_waiting_for_the_lock_leaves_it_to_its_owner(bench: Bench) -> None:
    """The hot verbs release in ``finally`` whatever happened: that must not release somebody else's lock."""
    t, q = bench.transport(), bench.queue()
    publish(t, "g", 1)
    q.enqueue(job())
    real = bench.engine.shared.lock
    real.acquire()

    class Interrupted:
        def acquire(self) -> None:
            raise KeyboardInterrupt

        def release(self) -> None:
            raise RuntimeError("cannot release un-acquired lock")

    bench.engine.shared.lock = Interrupted()
    for verb in (lambda: take(t), lambda: t.ack(None), lambda: q.claim("w", 1, None), lambda: q.enqueue(job())):
        with pytest.raises(KeyboardInterrupt):
            verb()
    bench.engine.shared.lock = real
    real.release()
    assert take(t) is not None
