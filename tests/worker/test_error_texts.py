"""What an item's error tells: the handler's part of the traceback, from the handler on and to the last line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota

from .running import Running, until


def broken() -> None:
    raise LookupError("no such mailbox")


def payload_only(payload: Any) -> None:
    broken()


def with_job(job: rota.Job) -> None:
    broken()


def both(payload: Any, job: rota.Job) -> None:
    broken()


async def asynchronous(payload: Any) -> None:
    await asyncio.sleep(0)
    broken()


def retried(payload: Any) -> None:
    try:
        broken()
    except LookupError as error:
        raise rota.Retry(delay=60) from error


HANDLERS = [payload_only, with_job, both, asynchronous, retried]


def check(text: str | None, function: Any) -> None:
    lines = (text or "").splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith(f"in {function.__name__}"), lines[1]
    assert __file__ in lines[1]
    assert lines[-1] == "LookupError: no such mailbox"


@pytest.mark.parametrize("function", HANDLERS)
def test_stepped(timeless: rota.Store, function: Any) -> None:
    worker = rota.Worker(timeless)
    worker.queue("q")(function)
    id = timeless.queue("q").enqueue(1)
    assert worker.step()
    worker.close()
    record = timeless.queue("q").get_job(id)
    assert record is not None
    check(record.last_error, function)


@pytest.mark.parametrize("function", HANDLERS)
def test_running(store: rota.Store, running: Any, function: Any) -> None:
    worker = rota.Worker(store)
    worker.queue("q")(function)
    queue = store.queue("q", backoff_base=600)
    id = queue.enqueue(1)
    one: Running = running(worker)
    until(lambda: (record := queue.get_job(id)) and record.last_error)
    one.stop()
    record = queue.get_job(id)
    assert record is not None
    check(record.last_error, function)


def test_in_a_process(store: rota.Store, running: Any) -> None:
    worker = rota.Worker(store)
    worker.queue("q", processes=True)(payload_only)
    queue = store.queue("q", backoff_base=600)
    id = queue.enqueue(1)
    one: Running = running(worker)
    until(lambda: (record := queue.get_job(id)) and record.last_error)
    one.stop()
    record = queue.get_job(id)
    assert record is not None
    check(record.last_error, payload_only)
