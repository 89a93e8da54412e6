"""What a handler with a typed payload may return and have kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rota

from .running import until


@dataclass
class Order:
    number: int


@pytest.mark.parametrize("color", ["async", "sync"])
@pytest.mark.parametrize(
    ("result", "kept"), [({"pages": 3}, {"pages": 3}), (Order(7), {"number": 7}), (None, None), ({1, 2}, None)]
)
def test_a_payload_s_annotation_does_not_bind_the_result(
    timeless: rota.Store, color: str, result: Any, kept: Any
) -> None:
    worker = rota.Worker(timeless)

    def make(order: Order) -> Any:
        assert order == Order(5)
        return result

    async def make_async(order: Order) -> Any:
        await asyncio.sleep(0)
        return make(order)

    worker.queue("q")(make_async if color == "async" else make)
    queue = timeless.queue("q", keep_done=60)
    id = queue.enqueue({"number": 5})
    assert worker.drain() == 1
    worker.close()
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.result) == ("done", kept)


@pytest.mark.parametrize("result", [{"pages": 3}, Order(7), [1, "two"], "done", None])
def test_a_typed_codec_does_not_bind_the_result(timeless: rota.Store, result: Any) -> None:
    """Named at the handle and at the handler; what comes back is what was returned."""
    codec = rota.TypedCodec(Order)
    worker = rota.Worker(timeless)
    worker.queue("q", codec=codec)(lambda job: result)
    queue = timeless.queue("q", keep_done=60, codec=codec)
    by_worker, by_hand = queue.enqueue_many([Order(5), Order(6)])
    assert worker.step()
    (job,) = queue.claim_batch("w", 1)
    assert job.ack(result)
    for id in (by_worker, by_hand):
        record = queue.get_job(id)
        assert record is not None
        assert (record.state, record.result) == ("done", result)


def test_a_result_that_would_come_back_as_the_payload_s_type_is_refused(timeless: rota.Store) -> None:
    queue = timeless.queue("q", keep_done=60, codec=rota.TypedCodec(Order))
    queue.enqueue(Order(1))
    (job,) = queue.claim_batch("w", 1)
    for wrong in ({"number": 7}, {1, 2}):
        with pytest.raises(rota.PayloadError):
            job.ack(wrong)
    assert job.ack({"number": "seven"})


async def elsewhere() -> None: ...


def forgetful(payload: Any) -> Any:
    """As a plain function around an async one does, or an ``await`` that is missing."""
    return {"await": elsewhere, "raise": lambda: rota.Fail("wrong number")}[payload]()


SAYS = {
    "await": "returned a coroutine: write it with async def, and await what it calls",
    "raise": "returned Fail(…): raise it",
}


@pytest.mark.parametrize("how", ["step", "run"])
@pytest.mark.parametrize("kind", ["sync", "async", "sync transactional", "async transactional", "process"])
@pytest.mark.parametrize("forgotten", ["await", "raise"])
def test_what_was_not_done_is_not_acked(tmp_path: Path, running: Any, forgotten: str, kind: str, how: str) -> None:
    async def aforgetful(payload: Any) -> Any:
        return forgetful(payload)

    def in_transaction(payload: Any, tx: rota.Transaction) -> Any:
        tx.enqueue("effects", 1)
        return forgetful(payload)

    async def ain_transaction(payload: Any, tx: rota.AsyncTransaction) -> Any:
        await tx.enqueue("effects", 1)
        return forgetful(payload)

    handler, options = {
        "sync": (forgetful, {}),
        "async": (aforgetful, {}),
        "sync transactional": (in_transaction, {"transactional": True}),
        "async transactional": (ain_transaction, {"transactional": True}),
        "process": (forgetful, {"processes": True}),
    }[kind]
    with rota.open(f"sqlite:///{tmp_path}/s.db") as store:
        queue = store.queue("q", max_attempts=1)
        id = queue.enqueue(forgotten)
        worker = rota.Worker(store)
        worker.queue("q", **options)(handler)  # type: ignore[arg-type]
        if how == "step":
            assert worker.step()
            worker.close()
        else:
            one = running(worker)
            until(lambda: not queue.stats().pending and not queue.stats().processing)
            one.stop()
        record = queue.get_job(id)
        assert record is not None
        assert record.state == "dead"
        assert SAYS[forgotten] in (record.last_error or "")
        assert store.queue("effects").stats().pending == 0
