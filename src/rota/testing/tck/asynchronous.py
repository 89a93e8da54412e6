"""X7, X8, C7 on asyncio as asyncio users meet them: nothing blocks the loop, cancelling is clean."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from rota import StoreClosed
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """A loop of its own for one test, with a limit for what hangs."""

    async def limited() -> Any:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(limited())


class AsynchronousClauses(Suite):
    """The async facade, used natively."""

    def test_X7_a_waiting_claim_does_not_block_the_loop(self) -> None:
        """While claims wait, other tasks run and can be what ends the wait."""

        async def main() -> None:
            async with self.aopen() as store:
                queue, transport = store.queue("q"), store.transport("t")
                waiting = [
                    asyncio.create_task(queue.claim_one("w", wait=20)),
                    asyncio.create_task(transport.claim("w", wait=20)),
                ]
                ticks = 0
                for _ in range(20):
                    await asyncio.sleep(0.005)
                    ticks += 1
                assert ticks == 20
                assert not any(task.done() for task in waiting)
                begun = time.monotonic()
                await queue.enqueue(1)
                await transport.publish("g", 2)
                job, lease = await asyncio.gather(*waiting)
                assert time.monotonic() - begun < 1
                assert (job.payload, lease.event) == (1, 2)
                assert await job.ack()
                assert await lease.ack()

        run(main())

    def test_C7_fifty_coroutines_at_once(self) -> None:
        """Fifty tasks on one store: each item goes to one of them (case 044)."""

        async def main() -> None:
            async with self.aopen() as store:
                queue, transport = store.queue("q"), store.transport("t")
                seen: list[int] = []
                leased: list[int] = []

                async def work(number: int) -> None:
                    await queue.enqueue_many([number * 4 + each for each in range(4)])
                    await transport.publish(f"g{number % 7}", number)
                    while (job := await queue.claim_one(f"w{number}")) is not None:
                        seen.append(job.payload)
                        assert await job.ack()
                    lease = await transport.claim(f"w{number}", wait=10)
                    leased.append(lease.event)
                    assert await lease.ack()

                await asyncio.gather(*(work(number) for number in range(50)))
                assert sorted(seen) == list(range(200))
                assert sorted(leased) == list(range(50))

        run(main())

    def test_X7_a_cancelled_wait_takes_nothing(self) -> None:
        """Cancelling a waiting claim ends it at once; what comes later is there for others."""

        async def main() -> None:
            async with self.aopen() as store:
                queue = store.queue("q")
                waiting = asyncio.create_task(queue.claim_one("w", wait=20))
                await asyncio.sleep(0.05)
                waiting.cancel()
                begun = time.monotonic()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert time.monotonic() - begun < 1
                await queue.enqueue(1)
                assert (await queue.claim_one("v")).attempts == 1

        run(main())

    def test_X7_a_claim_cancelled_at_any_moment_strands_nothing(self) -> None:
        """Whatever a cancelled claim had taken is given back, with its attempt (case 016)."""

        async def main() -> None:
            async with self.aopen() as store:
                queue, transport = store.queue("q"), store.transport("t")
                await queue.enqueue_many([1, 2, 3])
                await transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
                for number in range(60):
                    tasks = [
                        asyncio.create_task(queue.claim_batch("w", 3, wait=5)),
                        asyncio.create_task(transport.claim_batch("w", 3, wait=5)),
                    ]
                    await asyncio.sleep(number * 0.0001)
                    for task in tasks:
                        task.cancel()
                    jobs, leases = await asyncio.gather(*tasks, return_exceptions=True)
                    if isinstance(jobs, list):
                        for job in jobs:
                            assert await job.release()
                    if isinstance(leases, list):
                        for lease in leases:
                            assert await lease.release()
                deadline = time.monotonic() + 2
                while (await queue.stats()).processing or (await transport.stats()).leased:
                    assert time.monotonic() < deadline, "a cancelled claim kept what it took"
                    await asyncio.sleep(0.01)
                assert [job.attempts for job in await queue.claim_batch("w", 3)] == [1, 1, 1]
                assert [lease.deliveries for lease in await transport.claim_batch("w", 3)] == [1, 1, 1]

        run(main())

    def test_X6_listening_is_an_async_iterator(self) -> None:
        """async for, while the loop goes on."""

        async def main() -> None:
            async with self.aopen() as store:
                heard: list[str | None] = []
                listener = store.listen("c")

                async def hear() -> None:
                    async for payload in listener:
                        heard.append(payload)
                        if payload == "end":
                            break

                hearing = asyncio.create_task(hear())
                for payload in ("a", None, "end"):
                    await asyncio.sleep(0.01)
                    await store.notify("c", payload)
                await hearing
                assert heard == ["a", None, "end"]

        run(main())

    def test_X8_close_releases_waiting_tasks(self) -> None:
        """They raise StoreClosed within a second, as does every later call; a second close is quiet."""

        async def main() -> None:
            store = await self.aopen()
            queue = store.queue("q")
            waiting = asyncio.create_task(queue.claim_one("w", wait=30))
            await asyncio.sleep(0.05)
            begun = time.monotonic()
            await store.close()
            await store.close()
            with pytest.raises(StoreClosed):
                await waiting
            assert time.monotonic() - begun < 1
            with pytest.raises(StoreClosed):
                await queue.stats()

        run(main())

    def test_C4_a_manual_clock_wakes_tasks(self) -> None:
        """Moving the clock, from the loop itself, wakes who waits in it."""

        async def main() -> None:
            clock = ManualClock()
            async with self.aopen(clock=clock) as store:
                queue = store.queue("q")
                await queue.enqueue("later", delay=3_600)
                waiting = asyncio.create_task(queue.claim_one("w", wait=30))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                clock.advance(3_600)
                async with asyncio.timeout(2):
                    assert (await waiting).payload == "later"

        run(main())

    def test_X8_one_store_serves_several_loops(self) -> None:
        """Opened on one loop, used on another: handles are not bound to a loop (case 044)."""
        store = run(self._opened())
        queue = store.queue("q")

        async def use(number: int) -> int:
            await queue.enqueue(number)
            job = await queue.claim_one("w", wait=5)
            assert await job.ack()
            return int(job.payload)

        assert [run(use(number)) for number in range(3)] == [0, 1, 2]
        run(self._closed(store))

    async def _opened(self) -> Any:
        return await self.aopen()

    async def _closed(self, store: Any) -> None:
        await store.close()

    def test_C7_both_facades_share_one_engine(self) -> None:
        """as_async and as_sync show the same items; a job of one facade is settled by its own handle."""
        store = self.open()
        queue = store.queue("q")
        queue.enqueue("from sync")

        async def main() -> None:
            other = store.as_async().queue("q")
            job = await other.claim_one("w")
            assert job.payload == "from sync"
            assert await job.ack()
            await other.enqueue("from async")
            assert store.as_async().as_sync().queue("q").stats().pending == 1

        run(main())
        assert queue.claim_one("w").payload == "from async"
        store.close()
