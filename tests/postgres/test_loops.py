"""Event loops: a pool for each, many coroutines on few connections, and cancelled tasks that leave nothing held."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest

import rota
from postgres.proxy import proxy
from postgres.server import Server


def loop_sessions(store: Any) -> int:
    """Connections of loops."""
    return sum(len(pool.all) for pool in store._core.engine.loops._pools.values())


def test_fifty_coroutines_on_few_connections(postgres_url: str) -> None:
    async def main() -> None:
        async with rota.aopen(postgres_url, pool_size=4) as store:
            queue = store.queue("q")
            ids = await asyncio.gather(*(queue.enqueue(number) for number in range(50)))
            assert len(set(ids)) == 50
            assert loop_sessions(store) <= 4
            jobs = await asyncio.gather(*(queue.claim_one("w") for _ in range(50)))
            assert sorted(job.payload for job in jobs if job) == list(range(50))
            assert all(await asyncio.gather(*(job.ack() for job in jobs if job)))

    asyncio.run(main())


def test_one_store_and_a_loop_after_the_other(postgres_url: str, postgres_server: Server) -> None:
    with rota.open(postgres_url) as store:

        async def main(number: int) -> Any:
            queue = store.as_async().queue("q")
            await queue.enqueue(number)
            return (await queue.claim_one("w")).payload  # type: ignore[union-attr]

        assert [asyncio.run(main(number)) for number in range(3)] == [0, 1, 2]
        # Closed with their loops.
        assert all(pool.closed for pool in store._core.engine.loops._pools.values())  # type: ignore[attr-defined]
        assert loop_sessions(store) == 0


def test_loops_in_several_threads_at_once(postgres_url: str) -> None:
    with rota.open(postgres_url) as store:

        async def main(name: str) -> None:
            queue = store.as_async().queue(name)
            for number in range(20):
                await asyncio.gather(*(queue.enqueue(number) for _ in range(5)))
                assert len(await queue.claim_batch("w", 5)) == 5

        errors: list[BaseException] = []

        def run(name: str) -> None:
            try:
                asyncio.run(main(name))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(f"q{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


@pytest.mark.parametrize("kind", ["queue", "transport"])
def test_a_cancelled_claim_gives_back_what_it_claimed(postgres_url: str, kind: str) -> None:
    """Whenever it is cancelled: before, while and after the server carries it out."""

    async def main() -> None:
        async with rota.aopen(postgres_url) as store:
            handle: Any = store.queue("x") if kind == "queue" else store.transport("x")
            if kind == "queue":
                await handle.enqueue_many(range(5))
            else:
                await handle.publish_many([(f"g{number}", number) for number in range(5)])
            cancelled = 0
            for number in range(150):
                task = asyncio.create_task(handle.claim_batch("w", 5))
                for _ in range(number % 12):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    got = await task
                    assert len(got) == 5
                    for one in got:
                        assert await one.release()
                except asyncio.CancelledError:
                    cancelled += 1
                # Nothing is left with anybody: all of it can be had at once.
                again = await handle.claim_batch("v", 5)
                assert len(again) == 5, number
                for one in again:
                    assert await one.release()
            assert cancelled >= 10
            attempts = [one.attempts if kind == "queue" else one.deliveries for one in await handle.claim_batch("v", 5)]
            assert attempts == [1] * 5

    asyncio.run(main())


def test_a_claim_that_the_server_carries_out_after_its_cancellation(postgres_url: str) -> None:
    async def main() -> None:
        async with rota.aopen(postgres_url, notify=False) as store:
            queue = store.queue("q")
            await queue.enqueue(1)
            await queue.stats()
            with psycopg.connect(postgres_url) as blocker:
                blocker.execute("LOCK TABLE rota.jobs IN ACCESS EXCLUSIVE MODE")
                task = asyncio.create_task(queue.claim_one("w"))
                await asyncio.sleep(0.1)
                task.cancel()
                await asyncio.sleep(0.1)
                task.cancel()
                blocker.rollback()
            with pytest.raises(asyncio.CancelledError):
                await task
            job = await queue.claim_one("v")
            assert job is not None
            # It was claimed and released meanwhile.
            assert (job.attempts, job.releases) == (1, 1)

    asyncio.run(main())


def test_a_cancelled_verb_ends_and_its_connection_goes_on(postgres_url: str) -> None:
    async def main() -> None:
        async with rota.aopen(postgres_url, pool_size=1, notify=False) as store:
            queue = store.queue("q")
            await queue.enqueue("warm")
            for number in range(50):
                task = asyncio.create_task(queue.enqueue(number, key=str(number)))
                await asyncio.sleep(number * 0.00002)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                # With the same key it is there once, whatever became of the first.
                await queue.enqueue(number, key=str(number))
            assert (await queue.stats()).pending == 51

    asyncio.run(main())


def test_a_timeout_while_a_lock_is_held(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that cannot end is not waited for without end."""
    monkeypatch.setattr("rota.engines.postgres.loops._PATIENCE_AFTER_CANCEL", 0.3)

    async def main() -> None:
        async with rota.aopen(postgres_url, notify=False) as store:
            queue = store.queue("q")
            await queue.enqueue(1)
            with psycopg.connect(postgres_url) as blocker:
                blocker.execute("LOCK TABLE rota.jobs IN ACCESS EXCLUSIVE MODE")
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await queue.enqueue(2)
                assert time.monotonic() - began < 2
            assert (await queue.enqueue(3)) > 0

    asyncio.run(main())


def test_the_end_of_a_loop_leaves_no_claim(postgres_url: str) -> None:
    """``asyncio.run`` cancels what is left of the tasks when its main ends."""

    async def main() -> None:
        store = await rota.aopen(postgres_url)
        queue = store.queue("q")
        await queue.enqueue_many(range(3))
        tasks.append(asyncio.create_task(queue.claim_batch("w", 3)))
        await asyncio.sleep(0)
        stores.append(store)

    tasks: list[Any] = []
    stores: list[Any] = []
    asyncio.run(main())
    assert tasks[0].cancelled()
    with stores[0].as_sync() as store:
        assert len(store.queue("q").claim_batch("w", 9)) == 3


def test_a_hanging_network_ends_with_the_store(postgres_url: str) -> None:
    async def main() -> None:
        with proxy(postgres_url) as between:
            store = await rota.aopen(between.url, notify=False)
            await store.queue("q").enqueue(1)
            between.silent = True
            task = asyncio.create_task(store.queue("q").enqueue(2))
            await asyncio.sleep(0.1)
            between.cut()
            with pytest.raises(rota.OutcomeUnknown):
                await task
            await store.close()

    asyncio.run(main())


def test_waiting_tasks_end_when_the_store_closes(postgres_url: str) -> None:
    async def main() -> None:
        store = await rota.aopen(postgres_url, pool_size=1)
        tasks = [asyncio.create_task(store.queue("q").claim_one("w", wait=30)) for _ in range(20)]
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await store.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert time.monotonic() - began < 1
        assert {type(result) for result in results} == {rota.StoreClosed}

    asyncio.run(main())
