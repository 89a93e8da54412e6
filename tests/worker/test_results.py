"""What a handler with a typed payload may return and have kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import rota


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
