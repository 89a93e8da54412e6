"""A process that forks while its worker runs: the child has none of it, and may run the same worker itself."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

import pytest

import rota

from .running import Running, until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_runs_it_too(store: rota.Store, url: str, running: Any) -> None:
    here, there = multiprocessing.Pipe()
    worker = rota.Worker(url)

    @worker.queue("q")
    def handle(payload: Any) -> None:
        there.send((os.getpid(), payload))
        worker.stop()

    one: Running = running(worker)
    until(lambda: worker.health().state == "working")

    def child(to: Connection) -> None:
        to.send((worker.health().state, worker.store))
        worker.run(signals=False)
        to.send("ended")

    process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    process.start()
    assert here.poll(10)
    assert here.recv() == ("idle", None)
    assert worker.health().state == "working"
    one.stop()
    store.queue("q").enqueue("work")
    assert [here.recv() for _ in range(2) if here.poll(15)] == [(process.pid, "work"), "ended"]
    process.join(10)
    assert process.exitcode == 0
    assert worker.health().state == "idle"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["thread", "loop"])
@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_child_of_a_handler_that_comes_back_is_ended(store: rota.Store, running: Any, how: str, end: str) -> None:
    """It forgot to end, or the program it should become is not there. It must not go on with the worker's items."""
    worker, ends = rota.Worker(store), list[int]()

    def fork(payload: Any) -> Any:
        child = os.fork()
        if child == 0:
            if end == "raises":
                raise FileNotFoundError("no such program")
            return "child"
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return "parent"

    async def afork(payload: Any) -> Any:
        return fork(payload)

    worker.queue("q", concurrency=1)(fork if how == "thread" else afork)
    queue = store.queue("q", keep_done=60)
    queue.enqueue_many(range(5))
    running(worker)
    until(lambda: queue.stats().done == 5, 60)
    assert ends == [1] * 5
    assert [(job.result, job.attempts) for job in queue.jobs()] == [("parent", 1)] * 5
