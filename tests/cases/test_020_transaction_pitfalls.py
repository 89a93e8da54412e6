"""Transactional enqueue: rollback, visibility, nesting (frappe 20236, nebi 312, honker 66)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.testing.tck.base import Started
from rota.testing.tck.transactions import rolled_back, undone


def test_a_rolled_back_work_is_never_sent(store: Any) -> None:
    """(a) Nor by the next, unrelated commit on the same connection."""
    queue, transport = store.queue("q"), store.transport("t")
    for number in range(20):
        rolled_back(store, lambda tx: (queue.enqueue("never", tx=tx), transport.publish("g", "never", tx=tx)))
        with store.transaction() as tx:
            queue.enqueue(number, tx=tx)
    assert [job.payload for job in queue.jobs()] == list(range(20))
    assert transport.groups() == []


def test_b_not_claimable_before_the_commit_and_promptly_after(opener: Callable[..., Any]) -> None:
    """(b) A worker waits meanwhile; it starts within a tenth of a second after the commit."""
    store = opener()
    queue = store.queue("q")
    started: list[float] = []

    def work() -> None:
        assert queue.claim_one("w", wait=20).payload == "now"
        started.append(time.monotonic())

    working = threading.Thread(target=work)
    working.start()
    time.sleep(0.2)
    with store.transaction() as tx:
        queue.enqueue("now", tx=tx)
        time.sleep(1)
        assert not started
    committed = time.monotonic()
    working.join(20)
    assert started[0] - committed < 0.1


def test_c_in_an_open_transaction_nothing_hangs(store: Any, engine: str) -> None:
    """(c) A queue used for the first time, a second transaction, a claim: they work, or say at once why not."""
    store.queue("q").enqueue(1)
    begun = time.monotonic()
    with store.transaction() as tx:
        first = store.queue("first").enqueue(1, tx=tx)
        for refused in (
            lambda: store.transaction().__enter__(),
            lambda: store.queue("q").claim_one("w"),
            lambda: store.queue("second").enqueue(2),
        ):
            with pytest.raises(rota.TransactionError):
                refused()
        assert time.monotonic() - begun < 2
        # Others are not refused because of it: on SQLite, with its one writer, they wait.
        other = Started(lambda: store.queue("third").enqueue(3))
        if engine != "sqlite":
            other.result()
    assert first < other.result()
    assert store.queue("q").claim_one("w").ack()


def test_d_back_to_a_savepoint(store: Any) -> None:
    """(d) What was enqueued after it is not there, what came before and after is."""
    queue, transport = store.queue("q"), store.transport("t")
    with store.transaction() as tx:
        queue.enqueue(1, tx=tx)
        with undone(tx.savepoint()):
            queue.enqueue("never", tx=tx)
            transport.publish("g", "never", tx=tx)
        queue.enqueue(2, tx=tx)
    assert [job.payload for job in queue.jobs()] == [1, 2]
    assert transport.groups() == []
