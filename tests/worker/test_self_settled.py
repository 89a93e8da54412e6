"""Handlers that settle their items themselves, by whatever verb of whichever handle: the worker knows that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota

from .running import until

BY_JOB: dict[str, Callable[[Any, Any], Any]] = {
    "queue.ack": lambda queue, job: queue.ack(job),
    "queue.ack_batch": lambda queue, job: queue.ack_batch([job], job.worker_id),
    "queue.retry": lambda queue, job: queue.retry(job, "again", 600),
    "queue.fail": lambda queue, job: queue.fail(job, "no"),
    "queue.release": lambda queue, job: queue.release(job, delay=600),
    "job.ack": lambda queue, job: job.ack(),
    "job.retry": lambda queue, job: job.retry("again", 600),
    "job.fail": lambda queue, job: job.fail("no"),
    "job.release": lambda queue, job: job.release(delay=600),
}
BY_LEASE: dict[str, Callable[[Any, Any], Any]] = {
    "transport.ack": lambda transport, lease: transport.ack(lease),
    "transport.ack_batch": lambda transport, lease: transport.ack_batch([lease]),
    "transport.nack": lambda transport, lease: transport.nack(lease, 600),
    "transport.retry": lambda transport, lease: transport.retry(lease, "again", 600),
    "transport.fail": lambda transport, lease: transport.fail(lease, "no"),
    "transport.release": lambda transport, lease: transport.release(lease, delay=600),
    "lease.ack": lambda transport, lease: lease.ack(),
    "lease.nack": lambda transport, lease: lease.nack(600),
    "lease.retry": lambda transport, lease: lease.retry("again", 600),
    "lease.fail": lambda transport, lease: lease.fail("no"),
    "lease.release": lambda transport, lease: lease.release(delay=600),
}
# Longer than a beat: one that finds nothing to renew would tell the handler that its claim is lost, and cancel it.
VISIBILITY, GOES_ON = 3, 1.5
OWN = pytest.mark.parametrize("own", [False, True], ids=["the worker's handle", "a handle of the application"])


def check(worker: rota.Worker, ended: dict[str, bool], verbs: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """They ran to their ends, and nothing is said to be lost."""
    until(lambda: sum(source.handled for source in worker.health().sources) == len(verbs), 30)
    until(lambda: not worker.health().unsettled)
    (source,) = worker.health().sources
    assert ended == dict.fromkeys(verbs, False)
    assert (source.lost, source.acked, source.retried, source.failed, source.released) == (0, 0, 0, 0, 0)
    assert [record.message for record in caplog.records if record.name == "rota.worker"] == []


@OWN
def test_jobs(store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture, own: bool) -> None:
    worker, ended = rota.Worker(store, housekeeping=False), dict[str, bool]()

    @worker.queue("q", visibility=VISIBILITY, concurrency=len(BY_JOB))
    async def handle(job: rota.AsyncJob) -> None:
        assert await BY_JOB[job.payload](store.as_async().queue("q") if own else job._queue, job)
        await asyncio.sleep(GOES_ON)
        ended[job.payload] = job.lost.is_set()

    store.queue("q").enqueue_many(list(BY_JOB))
    running(worker)
    check(worker, ended, BY_JOB, caplog)


@pytest.mark.parametrize("renewed", [False, True], ids=["as it came", "renewed"])
@OWN
def test_messages(store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture, own: bool, renewed: bool) -> None:
    worker, ended = rota.Worker(store, housekeeping=False), dict[str, bool]()

    @worker.transport("t", visibility=VISIBILITY, concurrency=len(BY_LEASE))
    async def handle(lease: rota.AsyncLease) -> None:
        transport = store.as_async().transport("t") if own else lease._transport
        if renewed:
            other = await transport.extend(lease, 60)
            assert other is not None
            lease = await other.extend(60)
        assert await BY_LEASE[lease.event](transport, lease)
        await asyncio.sleep(GOES_ON)
        ended[lease.event] = lease.lost.is_set()

    store.transport("t").publish_many((verb, verb) for verb in BY_LEASE)
    running(worker)
    check(worker, ended, BY_LEASE, caplog)


@pytest.mark.parametrize("renewed", [False, True])
@pytest.mark.parametrize("verb", BY_LEASE)
def test_messages_in_threads(store: rota.Store, verb: str, renewed: bool) -> None:
    worker = rota.Worker(store)

    @worker.transport("t")
    def handle(lease: rota.Lease) -> None:
        if renewed:
            other = lease.extend(60)
            assert other is not None
            lease = other
        assert BY_LEASE[verb](store.transport("t"), lease)

    store.transport("t").publish("g", 1)
    assert worker.step()
    (source,) = worker.health().sources
    assert (source.lost, source.acked) == (0, 0)


def test_a_renewed_lease_is_told_of_its_loss(store: rota.Store, running: Any) -> None:
    worker, told, begun = rota.Worker(store), list[bool](), threading.Event()

    @worker.transport("t", visibility=VISIBILITY)
    def handle(lease: rota.Lease) -> None:
        renewed = lease.extend(60)
        assert renewed is not None
        begun.set()
        told.append(renewed.lost.wait(20))

    store.transport("t").publish("g", 1)
    running(worker)
    assert begun.wait(20)
    store.transport("t").purge("g")
    until(lambda: told)
    assert told == [True]


def test_a_renewed_lease_settled_in_the_handlers_transaction(store: rota.Store) -> None:
    """What the handler did is committed with it; the worker does not settle it once more."""
    worker = rota.Worker(store)

    @worker.transport("t", transactional=True)
    def handle(lease: rota.Lease, tx: rota.Transaction) -> None:
        renewed = lease.extend(60, tx=tx)
        assert renewed is not None
        renewed.nack(600, tx=tx)
        tx.enqueue("done", lease.event)

    store.transport("t").publish("g", 1)
    assert worker.step()
    assert not worker.step()
    assert [job.payload for job in store.queue("done").jobs()] == [1]
    assert worker.health().sources[0].lost == 0
    assert store.transport("t").stats().parked == 1
