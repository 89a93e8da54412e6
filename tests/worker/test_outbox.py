"""An outbox and the worker that delivers it (X5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota.testing import ManualClock


def test_its_worker_calls_deliver_with_the_payload(timeless: rota.Store, clock: ManualClock) -> None:
    tries: list[Any] = []

    def deliver(payload: Any) -> None:
        tries.append(payload)
        if len(tries) == 1:
            raise ConnectionError("down")

    outbox = timeless.outbox("hooks", deliver)
    with timeless.transaction() as tx:
        outbox.enqueue({"n": 1}, tx=tx)
    worker = outbox.worker(concurrency=3)
    assert worker.store is not None
    assert worker.sources == ["queue:hooks"]
    begin = clock.now()
    assert worker.drain(advance=clock) == 2
    # The outbox stamp.
    assert 2.5 <= clock.now() - begin <= 5
    assert tries == [{"n": 1}] * 2


def test_async(url: str) -> None:
    got: list[Any] = []

    async def main() -> None:
        async with rota.aopen(url) as store:

            async def deliver(job: rota.AsyncJob) -> None:
                got.append((job.payload, job.max_attempts))
                worker.stop()

            outbox = store.outbox("hooks", deliver)
            worker = outbox.worker()
            await outbox.enqueue(1)
            await worker.arun(signals=False)
            assert (await outbox.stats()).pending == 0

    asyncio.run(main())
    assert got == [(1, 5)]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
class TestOnOneEngine:
    def test_it_has_a_timeout_unless_told_not_to(self, store: rota.Store) -> None:
        for options, seconds in (({}, 30), ({"timeout": 5}, 5), ({"timeout": None}, None)):
            outbox = store.outbox("hooks", lambda payload: None)
            (spec,) = outbox.worker(**options)._registry.sources.values()
            assert spec.default is not None
            assert spec.default.timeout == seconds
            worker = rota.Worker()
            worker.outbox("hooks", **options)(lambda payload: None)  # type: ignore[arg-type]
            (spec,) = worker._registry.sources.values()
            assert spec.default is not None
            assert spec.default.timeout == seconds

    def test_its_codec_is_the_workers(self, store: rota.Store) -> None:
        class Shouting:
            def encode(self, obj: Any) -> str:
                return str(obj).upper()

            def decode(self, text: str) -> Any:
                return text

        got: list[Any] = []
        outbox = store.outbox("hooks", got.append, codec=Shouting())
        outbox.enqueue("hello")
        assert outbox.worker().step()
        assert got == ["HELLO"]

    def test_refusals(self, store: rota.Store) -> None:
        with pytest.raises(TypeError, match="nothing to deliver with"):
            store.outbox("hooks").worker()
        with pytest.raises(TypeError, match="must be a function"):
            store.outbox("hooks", 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be a function"):
            store.as_async().outbox("hooks", 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="payload more than once"):
            store.outbox("hooks", lambda one, two: None).worker()
