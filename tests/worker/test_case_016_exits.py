"""Cancellation and exits inside a handler leave no stranded job (case 016).

Seen in janbjorge/pgqueuer 630, procrastinate-org/procrastinate 871 and python-arq/arq 190.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import rota

from .running import until, worker_threads

ENDS = {
    "cancelled": asyncio.CancelledError,
    "system exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "generator exit": GeneratorExit,
    "timeout": None,
}


@pytest.mark.parametrize("color", ["async", "sync"])
@pytest.mark.parametrize("end", ENDS)
def test_a_failed_try_and_the_next_job_runs(store: rota.Store, running: Any, color: str, end: str) -> None:
    worker, seen = rota.Worker(store), []
    error = ENDS[end]

    async def handle_async(payload: Any) -> None:
        seen.append(payload)
        if payload == "bad":
            if error is not None:
                raise error("on purpose")
            async with asyncio.timeout(0.01):
                await asyncio.sleep(20)

    def handle(payload: Any) -> None:
        seen.append(payload)
        if payload == "bad":
            raise (error or TimeoutError)("on purpose")

    worker.queue("q", concurrency=1)(handle_async if color == "async" else handle)
    queue = store.queue("q", keep_done=60)
    bad, good = queue.enqueue("bad"), queue.enqueue("good")
    run = running(worker)
    until(lambda: worker.health().sources[0].acked == 1)
    until(lambda: worker.health().sources[0].retried == 1)
    assert run.alive
    record = queue.get_job(bad)
    assert record is not None
    assert (record.state, record.attempts) == ("pending", 1)
    assert (error or TimeoutError).__name__ in (record.last_error or "")
    assert (queue.get_job(good) or record).state == "done"
    assert seen == ["bad", "good"]
    run.stop()
    until(lambda: not worker_threads())


@pytest.mark.parametrize("how", ["its task", "every task"])
def test_cancelled_from_outside(store: rota.Store, how: str) -> None:
    """The jobs are given back, their attempts too, and the cancellation goes on to whoever awaits the worker."""
    worker, started = rota.Worker(store), []
    queue, transport = store.queue("q", max_attempts=1), store.transport("t", max_deliveries=1)
    ids = queue.enqueue_many(range(5))
    transport.publish("g", 1)

    @worker.queue("q", concurrency=3)
    async def handle(payload: Any) -> None:
        started.append(payload)
        await asyncio.sleep(60)

    @worker.transport("t")
    async def on_event(event: Any) -> None:
        started.append(event)
        await asyncio.sleep(60)

    async def main() -> set[Any]:
        task = asyncio.create_task(worker.arun())
        while len(started) < 4:  # noqa: ASYNC110 (threads may be what starts them)
            await asyncio.sleep(0.005)
        for one in [task] if how == "its task" else asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        begin = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begin < 3
        assert task.cancelled()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()
    for id in ids:
        record = queue.get_job(id)
        assert record is not None
        assert (record.state, record.attempts) == ("pending", 0)
    assert len(queue.claim_batch("next", 9)) == 5
    lease = transport.claim("next")
    assert lease is not None
    assert lease.deliveries == 1
    until(lambda: not worker_threads())


def test_context_of_one_handler_does_not_reach_the_next(store: rota.Store, running: Any) -> None:
    """Each runs in a context of its own, tasks as well as threads."""
    import contextvars

    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)
    worker, found = rota.Worker(store), []

    async def handle_async(payload: Any) -> None:
        found.append(variable.get())
        variable.set(payload)

    def handle(payload: Any) -> None:
        found.append(variable.get())
        variable.set(payload)

    worker.queue("a", concurrency=1)(handle_async)
    worker.queue("s", concurrency=1)(handle)
    for name in ("a", "s"):
        store.queue(name).enqueue_many(range(5))
    running(worker)
    until(lambda: len(found) == 10)
    assert found == [None] * 10
