"""Async and sync handlers in one queue: each kind runs where it belongs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import rota

from .running import Running, until


def test_a_coroutine_that_ends_leaves_the_threads_theirs(store: rota.Store, running: Callable[..., Running]) -> None:
    worker, seen = rota.Worker(store), list[tuple[Any, str]]()

    @worker.queue("q", concurrency=4)
    async def on_loop(payload: Any) -> None:
        await asyncio.sleep(0)
        seen.append((payload, threading.current_thread().name))

    @worker.task("q", name="sync")
    def in_thread(payload: Any) -> int:
        seen.append((payload, threading.current_thread().name))
        return 5

    queue = store.queue("q")
    queue.enqueue_many([rota.Item(n, name="sync" if n % 2 else None) for n in range(200)])
    one = running(worker)
    until(lambda: sum(source.acked for source in worker.health().sources) == 200)
    one.stop()
    assert sorted(payload for payload, _ in seen) == list(range(200))
    in_threads = {name for payload, name in seen if payload % 2}
    assert in_threads == {"rota-queue:q"}
    assert in_threads.isdisjoint(name for payload, name in seen if not payload % 2)
