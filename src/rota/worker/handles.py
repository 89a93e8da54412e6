"""The jobs and leases that handlers get: the public ones, which also remember that their handler settled them."""

from __future__ import annotations

from typing import Any

from rota.aio.queue import AsyncJob
from rota.aio.transport import AsyncLease
from rota.facade.transactions import Tx
from rota.sync.queue import Job
from rota.sync.transport import Lease
from rota.units import Duration


class WorkerJob(Job):
    """A job in a sync handler."""

    settled = False
    """Whether its handler settled it itself, so that nothing is left to do. In a transaction: from the call until that
    is rolled back, see ``rota.facade.transactions``."""

    def ack(self, result: Any = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, super().ack(result, tx=tx))

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, super().retry(error, delay, tx=tx))

    def fail(self, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, super().fail(error, tx=tx))

    def release(self, *, delay: Duration | None = None, tx: Tx = None) -> bool:
        return _note(self, tx, super().release(delay=delay, tx=tx))


class WorkerAsyncJob(AsyncJob):
    """A job in an async handler."""

    settled = False

    async def ack(self, result: Any = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, await super().ack(result, tx=tx))

    async def retry(
        self, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None
    ) -> bool:
        return _note(self, tx, await super().retry(error, delay, tx=tx))

    async def fail(self, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, await super().fail(error, tx=tx))

    async def release(self, *, delay: Duration | None = None, tx: Tx = None) -> bool:
        return _note(self, tx, await super().release(delay=delay, tx=tx))


class WorkerLease(Lease):
    """A lease in a sync handler."""

    settled = False

    def ack(self, *, tx: Tx = None) -> bool:
        return _note(self, tx, super().ack(tx=tx))

    def nack(self, delay: Duration = 0, *, error: str | BaseException | None = None, tx: Tx = None) -> bool:
        return _note(self, tx, super().nack(delay, error=error, tx=tx))

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, super().retry(error, delay, tx=tx))

    def release(self, *, delay: Duration = 0, tx: Tx = None) -> bool:
        return _note(self, tx, super().release(delay=delay, tx=tx))

    def fail(self, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, super().fail(error, tx=tx))


class WorkerAsyncLease(AsyncLease):
    """A lease in an async handler."""

    settled = False

    async def ack(self, *, tx: Tx = None) -> bool:
        return _note(self, tx, await super().ack(tx=tx))

    async def nack(self, delay: Duration = 0, *, error: str | BaseException | None = None, tx: Tx = None) -> bool:
        return _note(self, tx, await super().nack(delay, error=error, tx=tx))

    async def retry(
        self, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None
    ) -> bool:
        return _note(self, tx, await super().retry(error, delay, tx=tx))

    async def release(self, *, delay: Duration = 0, tx: Tx = None) -> bool:
        return _note(self, tx, await super().release(delay=delay, tx=tx))

    async def fail(self, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        return _note(self, tx, await super().fail(error, tx=tx))


def _note(handle: Any, tx: Tx, settled: bool) -> bool:
    if settled and tx is None:
        handle.settled = True
    return settled
