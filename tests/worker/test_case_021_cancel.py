"""A job cancelled while it runs (case 021).

Seen in procrastinate-org/procrastinate 1131 and 511 and SamSaffron/term-llm PR 918.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import rota

from .running import until

VISIBILITY = 6


@pytest.mark.parametrize("color", ["async", "sync"])
@pytest.mark.parametrize("outcome", ["returns", "raises", "fails", "snoozes"])
def test_whatever_it_ends_with_nothing_is_revived(store: rota.Store, running: Any, color: str, outcome: str) -> None:
    """The worker goes on; the cancelled job stays gone."""
    worker, go, seen = rota.Worker(store), threading.Event(), []

    def end() -> None:
        if outcome == "raises":
            raise ValueError("on purpose")
        if outcome == "fails":
            raise rota.Fail("on purpose")
        if outcome == "snoozes":
            raise rota.Snooze(0)

    async def handle_async(payload: Any) -> None:
        seen.append(payload)
        while payload == "cancelled" and not go.is_set():  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.005)
        end()

    def handle(payload: Any) -> None:
        seen.append(payload)
        if payload == "cancelled":
            go.wait(20)
        end()

    # A beat does not come before its end: it is the settlement that finds the claim gone.
    worker.queue("q", visibility=60)(handle_async if color == "async" else handle)
    queue = store.queue("q")
    id = queue.enqueue("cancelled")
    run = running(worker)
    until(lambda: seen)
    assert queue.cancel(id) is True
    assert queue.cancel(id) is False
    go.set()
    until(lambda: worker.health().sources[0].lost == 1)
    assert queue.get_job(id) is None
    assert queue.stats().dead == 0
    queue.enqueue("next")
    until(lambda: "next" in seen)
    assert run.alive


def test_running_handler_is_told_at_its_next_heartbeat(store: rota.Store, running: Any) -> None:
    worker, begun, told = rota.Worker(store), threading.Event(), []

    @worker.queue("q", visibility=VISIBILITY)
    async def handle(payload: Any) -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append(time.monotonic())
            raise

    queue = store.queue("q")
    id = queue.enqueue(1)
    running(worker)
    until(begun.is_set)
    begin = time.monotonic()
    assert queue.cancel(id)
    until(lambda: told)
    assert told[0] - begin < VISIBILITY / 2
    assert queue.get_job(id) is None


def test_cancel_races_a_running_worker(store: rota.Store, running: Any) -> None:
    """Each job either ran to its ack or was cancelled; no job does neither, and the worker lives."""
    worker, queue = rota.Worker(store), store.queue("q")

    @worker.queue("q", concurrency=4)
    async def handle(payload: Any) -> None:
        await asyncio.sleep(0)

    run = running(worker)
    ids = [queue.enqueue(n) for n in range(300)]
    cancelled = sum(queue.cancel(id) for id in ids)
    until(lambda: queue.stats().pending == queue.stats().processing == 0)
    until(lambda: worker.health().unsettled == 0 and not worker.health().sources[0].running)
    assert worker.health().sources[0].acked + cancelled == 300
    assert run.alive
