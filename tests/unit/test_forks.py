"""A fork while other threads are busy leaves a child that works."""

from __future__ import annotations

import os
import threading

import pytest

import rota

from .forking import in_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.mark.parametrize("url", ["memory://", "memory://forked"])
def test_busy_threads_leave_no_lock_behind_in_the_child(url: str) -> None:
    with rota.open(url) as store:
        queue, stop = store.queue("q"), threading.Event()

        def work() -> None:
            while not stop.is_set():
                queue.enqueue(1)
                store.queue("q").claim_one("w", wait=0.001)
                store.transport("t").stats()

        def act() -> None:
            queue.enqueue("child")
            assert store.queue("q").claim_one("w", wait=1)
            with rota.open("memory://forked-too") as another:
                another.queue("q").enqueue(1)

        act()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                in_child(act)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert queue.enqueue(1)


def test_a_fork_within_a_verb_of_the_same_thread() -> None:
    """From a signal handler, say: the child goes on in the middle of the verb, as the parent does."""
    with rota.open("memory://") as store:
        queue = store.queue("q")
        with store._core.engine.shared.lock:
            in_child(lambda: queue.enqueue(1))
        assert queue.enqueue(1) == 1
