"""The jobs and leases that handlers get: the public ones, which also remember that their handler settled them.

``settled``: whether it did, so that nothing is left to do. In a transaction: from the call until that is rolled back,
see ``rota.facade.transactions``. ``first``: of a renewed lease, the one that the handler got.
"""

from __future__ import annotations

from typing import Any

from rota.aio.queue import AsyncJob
from rota.aio.transport import AsyncLease
from rota.sync.queue import Job
from rota.sync.transport import Lease


class WorkerJob(Job):
    """A job in a sync handler."""

    remembers = True
    settled = False
    first: Any = None


class WorkerAsyncJob(AsyncJob):
    """A job in an async handler."""

    remembers = True
    settled = False
    first: Any = None


class WorkerLease(Lease):
    """A lease in a sync handler."""

    remembers = True
    settled = False
    first: Any = None


class WorkerAsyncLease(AsyncLease):
    """A lease in an async handler."""

    remembers = True
    settled = False
    first: Any = None
