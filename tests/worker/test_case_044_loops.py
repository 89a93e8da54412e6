"""Event loops, threads and closed objects (case 044).

Seen in taskiq-python/taskiq 229, procrastinate-org/procrastinate 235 and peter-wangxu/persist-queue 89.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import rota

from .running import Running, until, worker_threads

# Made at import, as programs do: no loop runs yet, and nothing is opened.
AT_IMPORT = rota.Worker("memory://at-import?codec=json")
SEEN: list[Any] = []


@AT_IMPORT.queue("q")
async def handle(payload: Any) -> None:
    SEEN.append((payload, asyncio.get_running_loop()))


def test_made_at_import_and_run_in_one_loop_after_another() -> None:
    """Each run has a loop of its own."""
    with rota.open("memory://at-import?codec=json") as store:
        for number in range(3):
            store.queue("q").enqueue(number)

            async def main(number: int = number) -> None:
                run = asyncio.create_task(AT_IMPORT.arun())
                while len(SEEN) == number:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                AT_IMPORT.stop()
                await run

            asyncio.run(main())
    assert [payload for payload, _ in SEEN] == [0, 1, 2]
    assert len({id(loop) for _, loop in SEEN}) >= 1


def test_two_workers_in_threads_with_loops_of_their_own_share_a_store(store: rota.Store, running: Any) -> None:
    seen: list[Any] = []
    for _ in range(2):
        worker = rota.Worker(store)

        @worker.queue("q", concurrency=25)
        async def handle(job: rota.AsyncJob) -> None:
            await asyncio.sleep(0.001)
            seen.append((job.payload, threading.get_ident()))

        running(worker)
    store.queue("q").enqueue_many(range(500))
    until(lambda: len(seen) == 500)
    assert sorted(payload for payload, _ in seen) == list(range(500))


def test_handlers_use_either_facade(store: rota.Store, running: Any) -> None:
    """A sync handler enqueues; an async one enqueues through both facades, the sync one in a thread and at once."""
    worker, seen = rota.Worker(store), []
    aio = store.as_async()

    @worker.queue("sync")
    def handle_sync(payload: Any) -> None:
        store.queue("end").enqueue(payload)

    @worker.queue("async")
    async def handle_async(payload: Any) -> None:
        await aio.queue("end").enqueue(payload)
        await asyncio.to_thread(store.queue("end").enqueue, payload)
        store.queue("end").enqueue(payload)

    @worker.queue("end")
    async def handle_end(payload: Any) -> None:
        seen.append(payload)

    store.queue("sync").enqueue("s")
    store.queue("async").enqueue("a")
    running(worker)
    until(lambda: len(seen) == 4)
    assert sorted(seen) == ["a", "a", "a", "s"]


def test_each_outcome_settles_its_own_job(store: rota.Store, running: Any) -> None:
    """Fifty at once, ending in another order than they began, some failing."""
    worker = rota.Worker(store)

    @worker.queue("q", concurrency=50)
    async def handle(payload: int) -> int:
        await asyncio.sleep((50 - payload) / 500)
        if payload % 3 == 0:
            raise rota.Fail(f"no {payload}")
        return payload

    queue = store.queue("q", keep_done=60)
    ids = queue.enqueue_many(range(50))
    running(worker)
    until(lambda: sum((h := worker.health().sources[0], h.acked + h.failed)[1:]) == 50)
    for payload, id in enumerate(ids):
        record = queue.get_job(id)
        assert record is not None
        if payload % 3 == 0:
            assert (record.state, record.last_error) == ("dead", f"no {payload}")
        else:
            assert (record.state, record.result) == ("done", payload)


def test_running_twice_or_stepping_beside_is_refused(store: rota.Store, running: Any) -> None:
    worker = rota.Worker(store)
    worker.queue("q")(lambda payload: None)
    running(worker)
    other = worker.queue("other")
    for call in (worker.run, worker.step, worker.drain, lambda: worker.bind(store), lambda: other(lambda job: None)):
        with pytest.raises(RuntimeError, match="runs"):
            call()


def test_async_store_and_a_later_bind(url: str) -> None:
    """A worker bound to an async store in one loop runs in another, in a thread."""

    async def opened() -> Any:
        return await rota.aopen(url)

    store = asyncio.run(opened())
    worker, seen = rota.Worker(), []
    worker.queue("q")(seen.append)
    assert worker.bind(store) is worker
    run = Running(worker)
    store.as_sync().queue("q").enqueue(1)
    until(lambda: seen == [1])
    run.stop()
    asyncio.run(store.close())


def test_a_task_factory_that_begins_tasks_at_once(store: rota.Store) -> None:
    """As ``asyncio.eager_task_factory`` does: handlers that end at once must not pile up on one another."""
    seen: list[Any] = []
    worker = rota.Worker(store)

    @worker.queue("q", concurrency=10)
    async def handle(payload: Any) -> None:
        seen.append(payload)

    def eager(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Any = None) -> asyncio.Future[Any]:
        ended = loop.create_future()
        try:
            (context.run if context else lambda send, value: send(value))(coroutine.send, None)
        except StopIteration as end:
            ended.set_result(end.value)
            return ended
        raise AssertionError("it awaits nothing")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        run = asyncio.create_task(worker.arun(signals=False))
        loop.set_task_factory(eager)
        try:
            async with asyncio.timeout(60):
                while store.queue("q").stats().pending or store.queue("q").stats().processing:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            loop.set_task_factory(None)
            worker.stop()
            await run

    store.queue("q").enqueue_many(range(5_000))
    asyncio.run(main())
    assert sorted(seen) == list(range(5_000))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_under_a_worker(store: rota.Store) -> None:
    """Nobody ends the run, nothing of it goes on: what it holds is given back and nothing more is claimed."""
    worker, queue = rota.Worker(store), store.queue("q")

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        await asyncio.sleep(600)

    id = queue.enqueue(1)
    loop = asyncio.new_event_loop()
    run = loop.create_task(worker.arun(signals=False))

    async def begun() -> None:
        while not (worker.health().sources and worker.health().sources[0].running):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    loop.run_until_complete(begun())
    loop.close()
    until(lambda: worker.health().state == "idle")
    later = queue.enqueue(2)
    records = [queue.get_job(number) for number in (id, later)]
    assert [(record.state, record.attempts) for record in records if record] == [("pending", 0)] * 2
    until(lambda: not worker_threads())
    run._log_destroy_pending = False  # type: ignore[attr-defined]


def test_several_threads_step_one_worker(store: rota.Store) -> None:
    worker, seen = rota.Worker(store), list[Any]()

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        await asyncio.sleep(0.001)
        seen.append(payload)

    @worker.transport("t")
    def on_event(event: Any) -> None:
        seen.append(event)

    store.queue("q").enqueue_many(range(40))
    store.transport("t").publish_many([(f"g{number}", number) for number in range(40, 80)])
    assert worker.step()
    failures: list[BaseException] = []

    def steps() -> None:
        try:
            worker.drain()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=steps) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    worker.close()
    assert failures == []
    assert sorted(seen) == list(range(80))
