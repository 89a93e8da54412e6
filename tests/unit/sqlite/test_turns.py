"""Transactions of one process beside each other and beside its other writes: one writer, and everybody's turn comes."""

from __future__ import annotations

import threading
import time

import pytest

import rota


@pytest.fixture
def store(path: str) -> rota.Store:
    return rota.open(f"sqlite:///{path}?durability=normal&busy_timeout=20")


def test_a_transaction_that_has_to_wait_begins_when_the_other_one_ends(store: rota.Store) -> None:
    began, order = threading.Event(), []

    def second() -> None:
        began.set()
        with store.transaction() as tx:
            order.append("second")
            tx.enqueue("q", 2)

    thread = threading.Thread(target=second)
    with store:
        with store.transaction() as tx:
            thread.start()
            assert began.wait(10)
            time.sleep(0.1)
            tx.enqueue("q", 1)
            order.append("first")
        thread.join(10)
        assert order == ["first", "second"]
        assert [job.payload for job in store.queue("q").jobs()] == [1, 2]


def test_whoever_waits_goes_before_the_next_transaction(store: rota.Store) -> None:
    """Transactions in a row, each beginning when the one before ends, do not shut out a write."""
    done: list[int] = []
    with store:
        writer = threading.Thread(target=lambda: done.append(store.queue("q").enqueue("write")))
        engine = store._core.engine
        begun = 0
        while not done and begun < 500:
            with store.transaction() as tx:
                begun += 1
                tx.enqueue("q", begun)
                if begun == 1:
                    writer.start()
                    while not engine._waiting:  # type: ignore[attr-defined]
                        time.sleep(0.001)
        writer.join(10)
        # The next transaction let it go first.
        assert [job.payload for job in store.queue("q").jobs()][:2] == [1, "write"]
