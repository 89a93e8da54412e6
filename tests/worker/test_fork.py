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
