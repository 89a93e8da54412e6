"""Rota: leased work queues with one contract on every engine.

``rota.open(url)`` gives a sync store, ``rota.aopen(url)`` an async one; see the contract in the documentation.
"""

from typing import TYPE_CHECKING, Any

from rota.clock import Clock
from rota.codecs import Codec, JsonCodec
from rota.errors import (
    EngineBusy,
    EngineFull,
    EngineUnavailable,
    LeaseLost,
    OutcomeUnknown,
    PayloadError,
    PayloadTooLarge,
    RotaError,
    SchemaMismatch,
    StoreClosed,
    TransactionAborted,
    TransactionError,
)
from rota.sync.outbox import Outbox
from rota.sync.queue import Job, Queue
from rota.sync.store import Listener, Store, open
from rota.sync.transaction import Savepoint, Transaction
from rota.sync.transport import Lease, Transport

if TYPE_CHECKING:
    from rota.aio.outbox import AsyncOutbox
    from rota.aio.queue import AsyncJob, AsyncQueue
    from rota.aio.store import AsyncListener, AsyncStore, aopen
    from rota.aio.transaction import AsyncSavepoint, AsyncTransaction
    from rota.aio.transport import AsyncLease, AsyncTransport
    from rota.public import (
        DeadJob,
        DeadLetter,
        DeadMessage,
        Explanation,
        Group,
        Item,
        JobRecord,
        Message,
        QueueStats,
        TransportStats,
    )
    from rota.typed import TypedCodec
    from rota.worker.health import SourceHealth, WorkerHealth
    from rota.worker.outcomes import Fail, Retry, Snooze
    from rota.worker.worker import Worker

__version__ = "0.1.0"

# Imported when first used: asyncio alone would double the time that importing Rota takes.
_ON_DEMAND = {
    "AsyncJob": "rota.aio.queue",
    "AsyncLease": "rota.aio.transport",
    "AsyncListener": "rota.aio.store",
    "AsyncOutbox": "rota.aio.outbox",
    "AsyncQueue": "rota.aio.queue",
    "AsyncSavepoint": "rota.aio.transaction",
    "AsyncStore": "rota.aio.store",
    "AsyncTransaction": "rota.aio.transaction",
    "AsyncTransport": "rota.aio.transport",
    "TypedCodec": "rota.typed",
    "DeadJob": "rota.public",
    "DeadLetter": "rota.public",
    "DeadMessage": "rota.public",
    "Explanation": "rota.public",
    "Fail": "rota.worker.outcomes",
    "Group": "rota.public",
    "Item": "rota.public",
    "JobRecord": "rota.public",
    "Message": "rota.public",
    "QueueStats": "rota.public",
    "Retry": "rota.worker.outcomes",
    "Snooze": "rota.worker.outcomes",
    "SourceHealth": "rota.worker.health",
    "TransportStats": "rota.public",
    "Worker": "rota.worker.worker",
    "WorkerHealth": "rota.worker.health",
    "aopen": "rota.aio.store",
}

__all__ = [
    "AsyncJob",
    "AsyncLease",
    "AsyncListener",
    "AsyncOutbox",
    "AsyncQueue",
    "AsyncSavepoint",
    "AsyncStore",
    "AsyncTransaction",
    "AsyncTransport",
    "Clock",
    "Codec",
    "DeadJob",
    "DeadLetter",
    "DeadMessage",
    "EngineBusy",
    "EngineFull",
    "EngineUnavailable",
    "Explanation",
    "Fail",
    "Group",
    "Item",
    "Job",
    "JobRecord",
    "JsonCodec",
    "Lease",
    "LeaseLost",
    "Listener",
    "Message",
    "Outbox",
    "OutcomeUnknown",
    "PayloadError",
    "PayloadTooLarge",
    "Queue",
    "QueueStats",
    "Retry",
    "RotaError",
    "Savepoint",
    "SchemaMismatch",
    "Snooze",
    "SourceHealth",
    "Store",
    "StoreClosed",
    "Transaction",
    "TransactionAborted",
    "TransactionError",
    "Transport",
    "TransportStats",
    "TypedCodec",
    "Worker",
    "WorkerHealth",
    "aopen",
    "open",
]


def __getattr__(name: str) -> Any:
    module = _ON_DEMAND.get(name)
    if module is None:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)
