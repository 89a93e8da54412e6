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
from rota.wakeups import queue_address


def told(store: Any) -> list[str]:
    """Whom the store is told to wake, from here on."""
    addresses: list[str] = []
    store._core.wakeups.wake = addresses.append
    return addresses


def test_a_rolled_back_work_is_never_sent(store: Any) -> None:
    """(a) Nor by the next, unrelated commit on the same connection. Nobody is woken for it, then or later."""
    queue, transport = store.queue("q"), store.transport("t")
    woken = told(store)
    for number in range(20):
        rolled_back(store, lambda tx: (queue.enqueue("never", tx=tx), transport.publish("g", "never", tx=tx)))
        rolled_back(store, lambda tx: (tx.enqueue("other", "never"), tx.notify("c", "never")))
        assert woken == []
        with store.transaction() as tx:
            queue.enqueue(number, tx=tx)
        assert woken == [queue_address("q")]
        woken.clear()
    assert [job.payload for job in queue.jobs()] == list(range(20))
    assert store.queue("other").jobs() == transport.groups() == []


def test_b_not_claimable_before_the_commit_and_promptly_after(opener: Callable[..., Any]) -> None:
    """(b) A worker waits meanwhile; it starts within a tenth of a second after the commit, if the machine lets it."""
    store = opener()
    queue = store.queue("q")

    def seconds(held: float) -> float:
        started: list[float] = []

        def work() -> None:
            assert queue.claim_one("w", wait=20).payload == "now"
            started.append(time.monotonic())

        working = threading.Thread(target=work)
        working.start()
        time.sleep(0.2)
        with store.transaction() as tx:
            queue.enqueue("now", tx=tx)
            time.sleep(held)
            assert not started
        committed = time.monotonic()
        working.join(20)
        return started[0] - committed

    # Who only polls would need longer than that, time and again, but once in a while.
    found = [seconds(1.0)]
    while sum(one < 0.1 for one in found) < len(found) * 0.6 and len(found) < 10:
        found.append(seconds(0.1))
    assert sum(one < 0.1 for one in found) >= len(found) * 0.6, found


def test_c_in_an_open_transaction_nothing_hangs(store: Any, engine: str) -> None:
    """(c) A queue used for the first time, a second transaction, a claim: they work, or say at once why not."""
    store.queue("q").enqueue_many([1, 2])
    job = store.queue("q").claim_one("w")
    begun = time.monotonic()
    with store.transaction() as tx:
        first = store.queue("first").enqueue(1, tx=tx)
        for refused in (
            lambda: store.transaction().__enter__(),
            lambda: store.queue("q").claim_one("w"),
            lambda: store.queue("second").enqueue(2),
            job.ack,
        ):
            with pytest.raises(rota.TransactionError):
                refused()
        assert job.ack(tx=tx)
        assert time.monotonic() - begun < 2
        # Others are not refused because of it: on SQLite, with its one writer, they wait.
        other = Started(lambda: store.queue("third").enqueue(3))
        if engine != "sqlite":
            other.result()
    assert first < other.result()
    assert store.queue("q").claim_one("w").ack()


def test_d_back_to_a_savepoint(store: Any) -> None:
    """(d) What was enqueued after it is not there, what came before and after is; nobody is woken for the former."""
    queue, transport = store.queue("q"), store.transport("t")
    woken = told(store)
    with store.transaction() as tx:
        queue.enqueue(1, tx=tx)
        with undone(tx.savepoint()):
            queue.enqueue("never", tx=tx)
            transport.publish("g", "never", tx=tx)
        queue.enqueue(2, tx=tx)
    assert woken == [queue_address("q")]
    assert [job.payload for job in queue.jobs()] == [1, 2]
    assert transport.groups() == []
