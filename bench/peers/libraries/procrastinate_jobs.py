"""Procrastinate with a psycopg pool of its user's: autocommit saves two round trips, no check saves a third.

A pool that its connector makes itself would check every connection it hands out. Its trigger notifies.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg_pool
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench.peers.libraries import Countdown, Payload, batches

WORK_CONCURRENCY = 20


async def autocommit(connection: Any) -> None:
    await connection.set_autocommit(True)


def autocommit_sync(connection: Any) -> None:
    connection.autocommit = True


class Async:
    left = "SELECT count(*) FROM procrastinate_jobs"

    async def open(self, url: str) -> None:
        self._pool = psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, configure=autocommit, open=False)
        await self._pool.open(wait=True)
        self._app = App(connector=PsycopgConnector())
        await self._app.open_async(self._pool)
        await self._app.schema_manager.apply_schema_async()

        @self._app.task(name="noop", queue="bench")
        async def noop(**payload: Any) -> None: ...

        self._noop = noop

    async def single(self, payloads: list[Payload]) -> None:
        defer = self._noop.defer_async
        for payload in payloads:
            await defer(**payload)

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            await self._noop.batch_defer_async(*some)

    async def work(self, url: str, handled: Countdown) -> None:
        size = WORK_CONCURRENCY + 2
        app = App(connector=PsycopgConnector())

        @app.task(name="noop", queue="bench")
        async def noop(**payload: Any) -> None:
            handled()

        async with (
            psycopg_pool.AsyncConnectionPool(url, min_size=size, max_size=size, configure=autocommit) as pool,
            app.open_async(pool),
        ):
            running = asyncio.create_task(
                app.run_worker_async(
                    queues=["bench"],
                    concurrency=WORK_CONCURRENCY,
                    delete_jobs="always",
                    install_signal_handlers=False,
                )
            )
            await handled.over.wait()
            running.cancel()
            await asyncio.wait([running])

    async def close(self) -> None:
        await self._pool.close()


class Sync:
    left = Async.left

    async def open(self, url: str) -> None:
        self._pool = psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, configure=autocommit_sync, open=True)
        self._app = App(connector=SyncPsycopgConnector())
        self._app.open(self._pool)
        self._app.schema_manager.apply_schema()

        @self._app.task(name="noop", queue="bench")
        def noop(**payload: Any) -> None: ...

        self._noop = noop

    async def single(self, payloads: list[Payload]) -> None:
        defer = self._noop.defer
        for payload in payloads:
            defer(**payload)

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        for some in batches(payloads, batch):
            self._noop.batch_defer(*some)

    async def work(self, url: str, handled: Countdown) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self._pool.close()
