"""Chancy with its own pool: ``push`` and ``push_many``, one INSERT per job, each push or batch one transaction.

Its pool takes no autocommit; notifications are on, its default.
"""

from __future__ import annotations

from chancy import Chancy, Queue, Worker, job

from bench.peers.libraries import Countdown, Payload

WORK_CONCURRENCY = 100

_handled: Countdown | None = None


@job(queue="bench")
async def noop(**payload: object) -> None:
    if _handled is not None:
        _handled()


class Async:
    left = "SELECT count(*) FROM chancy_jobs WHERE state <> 'succeeded'"

    async def open(self, url: str) -> None:
        self._chancy = Chancy(url, max_connection_pool_size=1)
        await self._chancy.migrate()

    async def single(self, payloads: list[Payload]) -> None:
        push, made = self._chancy.push, noop.job
        for payload in payloads:
            await push(made.with_kwargs(**payload))

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        jobs = [noop.job.with_kwargs(**one) for one in payloads]
        async for _ in self._chancy.push_many(jobs, batch_size=batch):
            pass

    async def work(self, url: str, handled: Countdown) -> None:
        global _handled
        _handled = handled
        async with Chancy(url) as chancy:
            await chancy.declare(
                Queue(
                    "bench",
                    concurrency=WORK_CONCURRENCY,
                    executor=Chancy.Executor.Async,
                    eager_polling=True,
                )
            )
            async with Worker(chancy, register_signal_handlers=False):
                await handled.over.wait()

    async def close(self) -> None:
        await self._chancy.pool.close()


class Sync:
    left = Async.left

    async def open(self, url: str) -> None:
        installing = Async()
        await installing.open(url)
        await installing.close()
        self._chancy = Chancy(url, max_connection_pool_size=1)
        self._chancy.sync_pool.open(wait=True)

    async def single(self, payloads: list[Payload]) -> None:
        push, made = self._chancy.sync_push, noop.job
        for payload in payloads:
            push(made.with_kwargs(**payload))

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        jobs = [noop.job.with_kwargs(**one) for one in payloads]
        for _ in self._chancy.sync_push_many(jobs, batch_size=batch):
            pass

    async def work(self, url: str, handled: Countdown) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self._chancy.sync_pool.close()
