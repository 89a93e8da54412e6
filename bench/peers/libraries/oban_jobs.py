"""Oban: an autocommitting pool for single jobs; in bulk ``enqueue_many`` on a connection in a transaction.

``enqueue_many`` sends one INSERT per job, and a batch is one transaction. The INSERT notifies.
"""

from __future__ import annotations

from oban import Oban, worker
from oban.job import Job
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.peers.libraries import Countdown, Payload, batches

WORK_LIMIT = 100

_handled: Countdown | None = None


@worker(queue="bench")
class Noop:
    async def process(self, job: Job) -> None:
        if _handled is not None:
            _handled()


class Async:
    left = "SELECT count(*) FROM oban_jobs WHERE state <> 'completed'"

    async def open(self, url: str) -> None:
        self._pool = AsyncConnectionPool(url, min_size=1, max_size=1, kwargs={"autocommit": True}, open=False)
        await self._pool.open(wait=True)
        await install(self._pool)
        # Not started: what only enqueues needs none of the background tasks.
        self._oban = Oban(pool=self._pool)

    async def single(self, payloads: list[Payload]) -> None:
        enqueue = self._oban.enqueue
        for payload in payloads:
            await enqueue(Noop.new(payload))

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            async with self._pool.connection() as connection, connection.transaction():
                await self._oban.enqueue_many([Noop.new(one) for one in some], conn=connection)

    async def work(self, url: str, handled: Countdown) -> None:
        global _handled
        _handled = handled
        pool = await Oban.create_pool(url)
        async with Oban(pool=pool, queues={"bench": WORK_LIMIT}):
            await handled.over.wait()
        await pool.close()

    async def close(self) -> None:
        await self._pool.close()
