"""PgQueuer, all tables logged (its default): asyncpg for async, psycopg with autocommit for sync.

Its payload is bytes, so the JSON is encoded here. Its trigger notifies.
"""

from __future__ import annotations

import asyncio
import json

import asyncpg
import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, SyncPsycopgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries, SyncQueries

from bench.peers.libraries import Countdown, Payload, batches

ENTRYPOINT = "noop"
# Jobs that its worker takes and settles at a time. More workers in the process, each on its connection, were slower.
WORK_BATCH = 500


def encoded(payload: Payload) -> bytes:
    return json.dumps(payload).encode()


class Async:
    left = "SELECT count(*) FROM pgqueuer"

    async def open(self, url: str) -> None:
        self._connection = await asyncpg.connect(url)
        self._queries = Queries(AsyncpgDriver(self._connection))
        await self._queries.install()

    async def single(self, payloads: list[Payload]) -> None:
        enqueue = self._queries.enqueue
        for payload in payloads:
            await enqueue(ENTRYPOINT, encoded(payload))

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            await self._queries.enqueue([ENTRYPOINT] * len(some), [encoded(one) for one in some], [0] * len(some))

    async def work(self, url: str, handled: Countdown) -> None:
        connection = await asyncpg.connect(url)
        worker = PgQueuer(AsyncpgDriver(connection))

        @worker.entrypoint(ENTRYPOINT)
        async def noop(job: Job) -> None:
            json.loads(job.payload or b"")
            handled()

        running = asyncio.create_task(worker.run(batch_size=WORK_BATCH))
        await handled.over.wait()
        worker.shutdown.set()
        await running
        await connection.close()

    async def close(self) -> None:
        await self._connection.close()


class Sync:
    left = Async.left

    async def open(self, url: str) -> None:
        installing = Async()
        await installing.open(url)
        await installing.close()
        self._connection = psycopg.connect(url, autocommit=True)
        self._queries = SyncQueries(SyncPsycopgDriver(self._connection))

    async def single(self, payloads: list[Payload]) -> None:
        enqueue = self._queries.enqueue
        for payload in payloads:
            enqueue(ENTRYPOINT, encoded(payload))

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            self._queries.enqueue([ENTRYPOINT] * len(some), [encoded(one) for one in some], [0] * len(some))

    async def work(self, url: str, handled: Countdown) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self._connection.close()
