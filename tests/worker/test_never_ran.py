"""A handler whose body never ran, because what it returned was its work not begun, has not done its work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
import rota.testing

from .never_ran import PLAIN
from .running import until

SAYS = {
    "coroutine": "returned a coroutine: write it with async def, and await what it calls",
    "generator": "returned a generator: its body never ran",
    "async_generator": "returned a generator: its body never ran",
    "awaitable": "returned a Request, which nobody awaits",
}
pytestmark = [
    pytest.mark.parametrize("what", SAYS),
    pytest.mark.parametrize("engine", ["memory", "sqlite"], indirect=True),
    # A coroutine that is forgotten would be told by Python, too.
    pytest.mark.filterwarnings("error"),
]


async def forgets_to_await(payload: Any) -> Any:
    return PLAIN[payload](payload)


def check(store: rota.Store, id: int, what: str) -> None:
    record = store.queue("q").get_job(id)
    assert record is not None
    assert record.state == "dead"
    assert record.last_error is not None
    assert SAYS[what] in record.last_error


def enqueued(store: rota.Store, what: str) -> int:
    return store.queue("q", max_attempts=1, keep_done=60).enqueue(what)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("how", ["thread", "loop"])
def test_in_a_step(store: rota.Store, what: str, how: str, transactional: bool) -> None:
    worker, id = rota.Worker(store), enqueued(store, what)
    register(worker, what, how, transactional)
    assert worker.step()
    worker.close()
    check(store, id, what)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("how", ["thread", "loop"])
def test_in_a_run(store: rota.Store, running: Any, what: str, how: str, transactional: bool) -> None:
    worker, id = rota.Worker(store), enqueued(store, what)
    register(worker, what, how, transactional)
    running(worker)
    until(lambda: store.queue("q").stats().dead)
    check(store, id, what)


def register(worker: rota.Worker, what: str, how: str, transactional: bool) -> None:
    if not transactional:
        worker.queue("q")(PLAIN[what] if how == "thread" else forgets_to_await)
    elif how == "thread":
        worker.queue("q", transactional=True)(lambda payload, tx: PLAIN[what](payload))
    else:

        @worker.queue("q", transactional=True)
        async def handle(payload: Any, tx: rota.AsyncTransaction) -> Any:
            return PLAIN[what](payload)


def test_in_a_process(store: rota.Store, running: Any, what: str) -> None:
    worker, id = rota.Worker(store), enqueued(store, what)
    worker.queue("q", processes=True, concurrency=1)(PLAIN[what])
    running(worker)
    until(lambda: store.queue("q").stats().dead, 60)
    check(store, id, what)


def test_in_a_message_of_a_transport(store: rota.Store, what: str) -> None:
    worker, transport = rota.Worker(store), store.transport("t", max_deliveries=1)
    worker.transport("t")(PLAIN[what])
    transport.publish("g", what)
    assert worker.step()
    (message,) = transport.peek("g", 1)
    assert message.last_error is not None
    assert SAYS[what] in message.last_error


def test_in_a_drain_without_a_worker(store: rota.Store, what: str) -> None:
    id = enqueued(store, what)
    assert rota.testing.drain(store.queue("q"), lambda job: PLAIN[what](job.payload)) == []
    check(store, id, what)


def test_in_an_async_drain(url: str, what: str) -> None:
    async def handle(job: rota.AsyncJob) -> Any:
        return PLAIN[what](job.payload)

    async def main() -> None:
        async with rota.aopen(url) as store:
            id = await store.queue("q", max_attempts=1).enqueue(what)
            assert await rota.testing.adrain(store.queue("q"), handle) == []
            check(store.as_sync(), id, what)

    asyncio.run(main())


def test_a_task_or_future_that_was_begun_is_any_result(store: rota.Store, what: str) -> None:
    """It runs: that nobody waits for it is the handler's business."""
    worker, id = rota.Worker(store), enqueued(store, what)

    @worker.queue("q")
    async def handle(payload: Any) -> Any:
        return asyncio.ensure_future(asyncio.sleep(0))

    assert worker.step()
    worker.close()
    record = store.queue("q").get_job(id)
    assert record is not None
    assert record.state == "done"
