"""Context variables: handlers see what was set around the run, and nothing of each other."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

import rota

from .running import until

pytestmark = pytest.mark.parametrize("engine", ["memory"], indirect=True)
TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT", default="none")


def noting(store: rota.Store) -> tuple[rota.Worker, list[tuple[str, str]]]:
    """A worker whose handlers note what they see and then leave something behind."""
    worker, seen = rota.Worker(store), list[tuple[str, str]]()

    @worker.queue("async", concurrency=1)
    async def handle_async(payload: Any) -> None:
        seen.append(("async", TENANT.get()))
        TENANT.set(f"left by async {payload}")

    @worker.queue("sync", concurrency=1)
    def handle(payload: Any) -> None:
        seen.append(("sync", TENANT.get()))
        TENANT.set(f"left by sync {payload}")

    for name in ("async", "sync"):
        store.queue(name).enqueue_many([1, 2, 3])
    return worker, seen


EXPECTED = [("async", "acme")] * 3 + [("sync", "acme")] * 3


def test_run_in_a_thread(store: rota.Store) -> None:
    worker, seen = noting(store)

    def run() -> None:
        TENANT.set("acme")
        worker.run()
        assert TENANT.get() == "acme"

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(seen) == 6)
    worker.stop()
    thread.join(10)
    assert sorted(seen) == EXPECTED


def test_arun(store: rota.Store) -> None:
    worker, seen = noting(store)

    async def main() -> None:
        TENANT.set("acme")
        run = asyncio.create_task(worker.arun(signals=False))
        TENANT.set("set too late")
        await asyncio.to_thread(until, lambda: len(seen) == 6)
        worker.stop()
        await run

    asyncio.run(main())
    assert sorted(seen) == EXPECTED


def test_stepped(store: rota.Store) -> None:
    worker, seen = noting(store)
    before = TENANT.set("acme")
    try:
        assert worker.step()
        TENANT.set("later")
        assert worker.drain() == 5
        assert TENANT.get() == "later"
    finally:
        TENANT.reset(before)
        worker.close()
    assert sorted(tenant for _, tenant in seen) == ["acme"] + ["later"] * 5
