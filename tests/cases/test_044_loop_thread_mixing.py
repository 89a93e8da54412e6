"""Event loops, threads and closed objects.

Seen in taskiq-python/taskiq 229, procrastinate-org/procrastinate 235 and peter-wangxu/persist-queue 89.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import rota
from rota.testing.tck.base import Started

# Made at import, as programs do: no loop runs yet.
AT_IMPORT = rota.open("memory://?codec=json").as_async()
QUEUE, TRANSPORT = AT_IMPORT.queue("q"), AT_IMPORT.transport("t")


async def cycle(queue: Any, transport: Any, value: Any, wait: float = 0) -> None:
    """One job and one message in and out."""
    await queue.enqueue(value)
    await transport.publish(f"g{value}", value)
    job, lease = await queue.claim_one("w", wait=wait), await transport.claim("w", wait=wait)
    assert job is not None
    assert lease is not None
    assert await job.heartbeat()
    assert await job.ack()
    assert await lease.ack()


def in_a_loop_of_its_own(work: Callable[[], Coroutine[Any, Any, None]]) -> Started:
    """In another thread."""
    return Started(lambda: asyncio.run(work()))


def test_handles_made_at_import_work_in_one_loop_after_another() -> None:
    """And in two at once."""
    for number in range(3):
        asyncio.run(cycle(QUEUE, TRANSPORT, number, wait=0.01))
    for one in [in_a_loop_of_its_own(lambda n=n: cycle(QUEUE, TRANSPORT, n)) for n in (10, 20)]:
        one.result()


def test_one_store_in_two_loops_and_fifty_coroutines(url: str) -> None:
    """Opened in a loop that has ended, used in two others at the same time."""

    async def opened() -> Any:
        return await rota.aopen(url)

    store = asyncio.run(opened())

    async def fifty() -> None:
        await asyncio.gather(*(cycle(store.queue("q"), store.transport("t"), n, wait=0.5) for n in range(50)))

    for one in [in_a_loop_of_its_own(fifty) for _ in range(2)]:
        one.result(30)
    asyncio.run(store.close())


def test_waiter_of_one_loop_is_woken_from_another_and_from_a_thread(url: str) -> None:
    """A put in another loop, or by the sync facade in a thread, wakes a waiting task at once."""

    async def wait(store: Any) -> float:
        assert (await store.queue("q").claim_one("w", wait=20)) is not None
        return time.monotonic()

    with rota.open(url) as store:
        for put in (
            lambda: store.queue("q").enqueue("sync"),
            lambda: asyncio.run(store.as_async().queue("q").enqueue("async")),
        ):
            waiting = Started(lambda: asyncio.run(wait(store.as_async())))
            time.sleep(0.05)
            begin = time.monotonic()
            put()
            assert waiting.result() - begin < 0.3


def test_handlers_of_one_colour_use_the_other(url: str) -> None:
    """A sync handler that enqueues through the async store's sync side, a coroutine that calls the sync API."""

    async def main() -> None:
        async with rota.aopen(url) as store:
            sync = store.as_sync()
            assert sync.as_async().queue("q") is not None
            sync.queue("q").enqueue("from sync")
            job = await store.queue("q").claim_one("w")
            assert job is not None
            assert sync.queue("q").ack_batch([job.id], "w") == 1
            await asyncio.to_thread(sync.queue("q").enqueue, "from a thread")
            again = sync.queue("q").claim_one("w")
            assert again is not None
            assert again.payload == "from a thread"
            assert again.ack()

    asyncio.run(main())


def test_each_ack_settles_the_job_of_its_handle(url: str) -> None:
    """Two threads claim one each, the later one acks first; a third thread acks the other's handle."""
    with rota.open(url) as store:
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many(["A", "B"])
        transport.publish_many([("a", "A"), ("b", "B")])
        first = Started(lambda: (queue.claim_one("one"), transport.claim("one"))).result()
        second = Started(lambda: (queue.claim_one("two"), transport.claim("two"))).result()
        assert Started(lambda: (second[0].ack(), second[1].ack())).result() == (True, True)
        assert [job.payload for job in queue.jobs()] == ["A"]
        assert [group.group_id for group in transport.groups()] == ["a"]
        assert Started(lambda: (first[0].ack(), first[1].ack())).result() == (True, True)
        assert queue.jobs() == transport.groups() == []


CALLS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "enqueue": lambda store, queue, transport, job, lease: queue.enqueue(1),
    "publish": lambda store, queue, transport, job, lease: transport.publish("g", 1),
    "claim_one": lambda store, queue, transport, job, lease: queue.claim_one("w"),
    "waiting claim": lambda store, queue, transport, job, lease: transport.claim("w", wait=5),
    "job ack": lambda store, queue, transport, job, lease: job.ack(),
    "job heartbeat": lambda store, queue, transport, job, lease: job.heartbeat(),
    "lease nack": lambda store, queue, transport, job, lease: lease.nack(),
    "lease extend": lambda store, queue, transport, job, lease: lease.extend(5),
    "ack_batch": lambda store, queue, transport, job, lease: queue.ack_batch([job], "w"),
    "stats": lambda store, queue, transport, job, lease: queue.stats(),
    "groups": lambda store, queue, transport, job, lease: transport.groups(),
    "queues": lambda store, queue, transport, job, lease: store.queues(),
    "queue": lambda store, queue, transport, job, lease: store.queue("new"),
    "transport": lambda store, queue, transport, job, lease: store.transport("new"),
    "notify": lambda store, queue, transport, job, lease: store.notify("c"),
    "listen": lambda store, queue, transport, job, lease: next(store.listen("c")),
    "now": lambda store, queue, transport, job, lease: store.now(),
}


def test_every_call_after_close_raises_one_error(store: Any) -> None:
    """StoreClosed, on the store, its handles, jobs and leases; closing again is quiet."""
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue("work")
    transport.publish("g", "work")
    job, lease = queue.claim_one("w"), transport.claim("w")
    store.close()
    store.close()
    for name, call in CALLS.items():
        with pytest.raises(rota.StoreClosed):
            pytest.fail(f"{name} gave {call(store, queue, transport, job, lease)!r}")


@pytest.mark.parametrize("closing", ["sync", "async"])
def test_close_releases_waiters_within_a_second(url: str, closing: str) -> None:
    """Waiting claims of both facades and listeners: all raise StoreClosed."""
    store = rota.open(url)

    async def wait_async() -> None:
        await store.as_async().queue("q").claim_one("w", wait=30)

    async def listen_async() -> None:
        await anext(store.as_async().listen("c"))

    waiting = [
        Started(store.queue("q").claim_one, "w", wait=30),
        Started(store.transport("t").claim, "w", wait=30),
        Started(lambda: next(store.listen("c"))),
        Started(lambda: asyncio.run(wait_async())),
        Started(lambda: asyncio.run(listen_async())),
    ]
    time.sleep(0.2)
    assert all(one.running for one in waiting)
    begin = time.monotonic()
    store.close() if closing == "sync" else asyncio.run(store.as_async().close())
    for one in waiting:
        with pytest.raises(rota.StoreClosed):
            one.result()
    assert time.monotonic() - begin < 1.5


def test_close_while_verbs_run(url: str) -> None:
    """Verbs that are under way end well or raise StoreClosed, on threads of one store that is closed by another."""
    for _ in range(5):
        store = rota.open(url)
        going = threading.Barrier(5)

        def work(store: Any = store, going: threading.Barrier = going) -> str:
            going.wait()
            try:
                while True:
                    store.queue("q").enqueue("work")
                    job = store.queue("q").claim_one("w")
                    assert job is None or job.ack() in (True, False)
            except rota.StoreClosed:
                return "closed"

        working = [Started(work) for _ in range(4)]
        going.wait()
        time.sleep(0.02)
        store.close()
        assert [one.result() for one in working] == ["closed"] * 4
