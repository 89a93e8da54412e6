"""SQLite has one writer, and the async facade a few threads: who waits for the one must not keep the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rota


def test_a_transaction_cancelled_at_its_beginning_stops_nobody(tmp_path: Path) -> None:
    """It may begin all the same, and is rolled back then, though all threads wait for its end."""

    async def main() -> None:
        async with rota.aopen(f"sqlite:///{tmp_path}/s.db", busy_timeout=60) as store:
            queue = store.queue("q")

            async def begin() -> None:
                async with store.transaction() as tx:
                    await queue.enqueue("never", tx=tx)

            async with asyncio.timeout(30):
                async with store.transaction() as tx:
                    await queue.enqueue("mine", tx=tx)
                    beginning = [asyncio.ensure_future(begin()) for _ in range(4)]
                    await asyncio.sleep(0.2)
                    writing = [asyncio.ensure_future(queue.enqueue(number)) for number in range(8)]
                    await asyncio.sleep(0.1)
                    for task in beginning:
                        task.cancel()
                await asyncio.gather(*writing)
                ends = await asyncio.gather(*beginning, return_exceptions=True)
            assert [type(end) for end in ends] == [asyncio.CancelledError] * 4
            assert sorted(map(str, [job.payload for job in await queue.peek(20)])) == [*map(str, range(8)), "mine"]

    asyncio.run(main())


def test_reading_goes_on_however_many_wait_for_the_writer(tmp_path: Path) -> None:
    """For whoever holds the transaction too, and what he must not do he is told at once: all share a few threads."""

    async def main() -> None:
        async with rota.aopen(f"sqlite:///{tmp_path}/s.db", busy_timeout=60) as store:
            queue, transport = store.queue("q"), store.transport("t")
            await queue.enqueue("first")
            await transport.publish("g", "first")

            async def write(number: int) -> None:
                async with store.transaction() as tx:
                    await queue.enqueue(number, tx=tx)

            def reads() -> list[Any]:
                return [queue.peek(), transport.peek("g"), queue.stats(), transport.groups(), store.queues()]

            async with asyncio.timeout(30):
                async with store.transaction() as tx:
                    await queue.enqueue("mine", tx=tx)
                    writers = [asyncio.ensure_future(write(number)) for number in range(5)]
                    writers += [asyncio.ensure_future(queue.enqueue(number)) for number in range(5, 10)]
                    await asyncio.sleep(0.3)
                    for read in reads():
                        await read
                    await asyncio.gather(*reads())
                    for refused in (queue.enqueue("no"), queue.claim_one("w"), queue.purge("pending")):
                        with pytest.raises(rota.TransactionError):
                            await refused
                await asyncio.gather(*writers)
            assert len(await queue.peek(20)) == 12

    asyncio.run(main())
