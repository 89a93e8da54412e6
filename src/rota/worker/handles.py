"""The jobs and leases that handlers get: the public ones, which also remember that their handler settled them."""

from __future__ import annotations

from typing import Any

from rota.aio.queue import AsyncJob
from rota.aio.transport import AsyncLease
from rota.sync.queue import Job
from rota.sync.transport import Lease
from rota.units import Duration


class WorkerJob(Job):
    """A job in a sync handler."""

    settled = False
    """Whether its handler settled it itself, so that nothing is left to do."""

    def ack(self, result: Any = None) -> bool:
        return _note(self, super().ack(result))

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None) -> bool:
        return _note(self, super().retry(error, delay))

    def fail(self, error: str | BaseException | None = None) -> bool:
        return _note(self, super().fail(error))

    def release(self, *, delay: Duration | None = None) -> bool:
        return _note(self, super().release(delay=delay))


class WorkerAsyncJob(AsyncJob):
    """A job in an async handler."""

    settled = False

    async def ack(self, result: Any = None) -> bool:
        return _note(self, await super().ack(result))

    async def retry(self, error: str | BaseException | None = None, delay: Duration | None = None) -> bool:
        return _note(self, await super().retry(error, delay))

    async def fail(self, error: str | BaseException | None = None) -> bool:
        return _note(self, await super().fail(error))

    async def release(self, *, delay: Duration | None = None) -> bool:
        return _note(self, await super().release(delay=delay))


class WorkerLease(Lease):
    """A lease in a sync handler."""

    settled = False

    def ack(self) -> bool:
        return _note(self, super().ack())

    def nack(self, delay: Duration = 0, *, error: str | BaseException | None = None) -> bool:
        return _note(self, super().nack(delay, error=error))

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None) -> bool:
        return _note(self, super().retry(error, delay))

    def release(self, *, delay: Duration = 0) -> bool:
        return _note(self, super().release(delay=delay))

    def fail(self, error: str | BaseException | None = None) -> bool:
        return _note(self, super().fail(error))


class WorkerAsyncLease(AsyncLease):
    """A lease in an async handler."""

    settled = False

    async def ack(self) -> bool:
        return _note(self, await super().ack())

    async def nack(self, delay: Duration = 0, *, error: str | BaseException | None = None) -> bool:
        return _note(self, await super().nack(delay, error=error))

    async def retry(self, error: str | BaseException | None = None, delay: Duration | None = None) -> bool:
        return _note(self, await super().retry(error, delay))

    async def release(self, *, delay: Duration = 0) -> bool:
        return _note(self, await super().release(delay=delay))

    async def fail(self, error: str | BaseException | None = None) -> bool:
        return _note(self, await super().fail(error))


def _note(handle: Any, settled: bool) -> bool:
    if settled:
        handle.settled = True
    return settled
