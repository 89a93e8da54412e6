"""Rota: the sync store and the async one, ``prepare=True`` as the peers' drivers do; NOTIFY on, the default.

Verbs run on one connection. NOTIFY is sent beside them, by a thread on a connection of its own; in these rounds no
worker listens, so that it asks five times a second whether anybody does, where it would notify 20 times a second.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import rota
from bench.peers.libraries import Countdown, Payload, batches

# Handlers at a time.
CONCURRENCY = 100


class Sync:
    left = "SELECT count(*) FROM rota.jobs"
    prepare: ClassVar[bool] = True

    async def open(self, url: str) -> None:
        self._store = rota.open(url, migrate=True, prepare=self.prepare, pool_size=1)
        self._queue = self._store.queue("bench")

    async def single(self, payloads: list[Payload]) -> None:
        enqueue = self._queue.enqueue
        for payload in payloads:
            enqueue(payload)

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            self._queue.enqueue_many(some)

    async def work(self, url: str, handled: Countdown) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self._store.close()


class Unprepared(Sync):
    """Rota's default, fit for a transaction pooler. For show: no goal is judged by it."""

    prepare = False


class Async:
    left = Sync.left

    async def open(self, url: str) -> None:
        self._store = await rota.aopen(url, migrate=True, prepare=True, pool_size=1)
        self._queue = self._store.queue("bench")

    async def single(self, payloads: list[Payload]) -> None:
        enqueue = self._queue.enqueue
        for payload in payloads:
            await enqueue(payload)

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            await self._queue.enqueue_many(some)

    async def work(self, url: str, handled: Countdown) -> None:
        worker = rota.Worker(rota.open(url, prepare=True))

        @worker.queue("bench", concurrency=CONCURRENCY)
        async def noop(payload: Payload) -> None:
            handled()

        running = asyncio.create_task(worker.arun(signals=False))
        await handled.over.wait()
        worker.stop()
        await running

    async def close(self) -> None:
        await self._store.close()
