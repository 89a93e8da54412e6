"""What is special about transactions on memory: nobody waits, everything is given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from rota.testing import ManualClock
from rota.testing.tck.transactions import rolled_back


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Any]:
    with rota.open("memory://", clock=clock, max_items=10) as store:
        yield store


def elsewhere(act: Callable[[], Any]) -> Any:
    """What a call in another thread gives or raises."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        except rota.RotaError as error:
            found.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    return found[0]


def test_a_pinned_job_is_busy_for_all_but_claims(store: Any, clock: ManualClock) -> None:
    queue = store.queue("q", visibility=10)
    queue.enqueue(1, expires=20)
    job = queue.claim_one("w")
    with store.transaction() as tx:
        assert job.ack(tx=tx)
        clock.advance(30)
        for act in (
            job.ack,
            job.heartbeat,
            job.fail,
            lambda: queue.cancel(job.id),
            lambda: queue.purge("processing"),
            lambda: queue.ack_batch([job.id], "w"),
            lambda: queue.heartbeat_batch([job]),
        ):
            assert elsewhere(act) is rota.EngineBusy
        assert elsewhere(lambda: queue.claim_one("v")) is None
        assert elsewhere(queue.sweep_expired) == 0
        tx.rollback()
    # It expired meanwhile; the sweep has not forgotten it.
    assert queue.sweep_expired() == 1


def test_a_pinned_group_is_busy_for_all_but_claims(store: Any, clock: ManualClock) -> None:
    transport = store.transport("t")
    transport.publish_many([("g", 1), ("g", 2)])
    lease = transport.claim("w", 10)
    with store.transaction() as tx:
        assert lease.nack(tx=tx)
        clock.advance(30)
        for act in (
            lease.ack,
            lease.nack,
            lambda: lease.extend(5),
            lambda: transport.ack_batch([lease]),
            lambda: transport.purge("g"),
        ):
            assert elsewhere(act) is rota.EngineBusy
        assert elsewhere(lambda: transport.claim("v")) is None
        assert elsewhere(lambda: transport.publish("g", 3)) == 3
        assert elsewhere(lambda: transport.suspend("g"))
        assert elsewhere(lambda: transport.resume("g"))
        assert elsewhere(lambda: transport.claim("v")) is None
    assert transport.claim("v").event == 1


def test_two_transactions_at_once(store: Any) -> None:
    """They do not see each other; a job settled in one is busy for the other."""
    queue = store.queue("q")
    queue.enqueue_many([1, 2])
    mine, theirs = queue.claim_batch("w", 2)

    def other() -> list[Any]:
        with store.transaction() as tx:
            assert theirs.ack(tx=tx)
            tx.enqueue("q", "theirs")
            with pytest.raises(rota.EngineBusy):
                mine.ack(tx=tx)
            with pytest.raises(rota.EngineBusy):
                queue.enqueue("theirs", key="k", tx=tx)
        return [one.payload for one in queue.peek()]

    with store.transaction() as tx:
        assert mine.ack(tx=tx)
        queue.enqueue("mine", key="k", tx=tx)
        assert elsewhere(other) == ["theirs"]
    assert sorted(one.payload for one in queue.peek()) == ["mine", "theirs"]
    assert queue.stats().processing == 0


def test_room_is_reserved_and_given_back(store: Any) -> None:
    """The cap counts what open transactions have asked for."""
    queue = store.queue("q")
    queue.enqueue_many(range(4))
    with store.transaction() as tx:
        queue.enqueue_many(range(6), tx=tx)
        with pytest.raises(rota.EngineFull):
            queue.enqueue(1, tx=tx)
        assert elsewhere(lambda: queue.enqueue(1)) is rota.EngineFull
        tx.rollback()
    rolled_back(store, lambda tx: queue.enqueue_many(range(6), tx=tx))
    assert store.engine_facts()["items"] == 4
    with store.transaction() as tx:
        queue.enqueue_many(range(6), tx=tx)
    assert store.engine_facts()["items"] == 10
    assert len(queue.claim_batch("w", 20)) == 10


def test_the_guard_goes_with_the_last_transaction(store: Any) -> None:
    """Afterwards verbs take the plain lock again."""
    queue = store.queue("q")
    shared = store._core.engine.shared
    plain = shared.lock
    with store.transaction():
        assert shared.lock is not plain
        assert elsewhere(lambda: queue.enqueue(1)) == 1
    queue.enqueue(2)
    assert shared.lock is plain


def test_an_object_published_in_a_transaction_stays_the_same(store: Any) -> None:
    event = object()
    with store.transaction() as tx:
        store.transport("t").publish("g", event, tx=tx)
    assert store.transport("t").claim("w").event is event


def test_closed_in_between(store: Any) -> None:
    """Another thread closes the store: nothing can be committed any more, rolling back is quiet."""
    queue = store.queue("q")

    def commit() -> None:
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            thread = threading.Thread(target=store.close)
            thread.start()
            thread.join()

    with pytest.raises(rota.StoreClosed):
        commit()
