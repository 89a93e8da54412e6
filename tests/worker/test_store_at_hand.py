"""``worker.store``: the opened store, for handlers that enqueue what follows."""

from __future__ import annotations

from typing import Any

import pytest

import rota

from .running import Running, until


def chained(worker: rota.Worker) -> list[Any]:
    ends: list[Any] = []

    @worker.queue("first")
    def first(payload: Any) -> None:
        assert worker.store is not None
        worker.store.queue("second").enqueue([*payload, 2])

    @worker.queue("second")
    async def second(payload: Any) -> None:
        assert worker.store is not None
        await worker.store.as_async().queue("third").enqueue([*payload, 3])

    worker.queue("third")(ends.append)
    return ends


def test_while_it_runs(store: rota.Store, url: str, running: Any) -> None:
    worker = rota.Worker(url)
    ends = chained(worker)
    assert (worker.store, worker.bound_to) == (None, url)
    store.queue("first").enqueue([1])
    one: Running = running(worker)
    until(lambda: ends == [[1, 2, 3]])
    opened = worker.store
    assert opened is not None
    one.stop()
    assert opened.closed
    assert worker.store is None


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_while_it_steps_and_runs_between(store: rota.Store, url: str, running: Any) -> None:
    worker = rota.Worker(url)
    ends = chained(worker)
    store.queue("first").enqueue([1])
    assert worker.drain() == 3
    stepped = worker.store
    assert stepped is not None
    store.queue("first").enqueue([0])
    one: Running = running(worker)
    until(lambda: len(ends) == 2)
    assert worker.store not in (None, stepped)
    one.stop()
    assert worker.store is stepped
    worker.close()
    assert stepped.closed
    assert worker.store is None
    assert ends == [[1, 2, 3], [0, 2, 3]]


def test_one_that_was_given_is_there_always(store: rota.Store) -> None:
    worker = rota.Worker(store)
    ends = chained(worker)
    assert worker.store is worker.bound_to is store
    store.queue("first").enqueue([1])
    assert worker.drain() == 3
    worker.close()
    assert ends == [[1, 2, 3]]
    assert worker.store is store
