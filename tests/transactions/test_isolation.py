"""A caller's transaction that is stricter than READ COMMITTED, and one that stays open for long (PostgreSQL)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import rota

STRICT = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]


@pytest.fixture
def store(postgres_url: str) -> Iterator[Any]:
    with rota.open(postgres_url, notify=False) as store:
        yield store


@pytest.fixture
def mine(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url) as connection:
        yield connection


@pytest.mark.parametrize("level", STRICT)
def test_everything_works_in_a_stricter_transaction(store: Any, mine: Any, level: psycopg.IsolationLevel) -> None:
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue_many([1, 2, 3, 4])
    transport.publish_many([(group, group) for group in "abcdef"])
    done, again, dead, back = queue.claim_batch("w", 4)
    acked, parked, failed, released, *both = transport.claim_batch("w", 6)
    mine.isolation_level = level
    queue.enqueue(5, key="k", tx=mine)
    transport.publish_many([("a", "new"), ("x", "new")], tx=mine)
    assert done.ack(tx=mine)
    assert again.retry("no", 60, tx=mine)
    assert dead.fail("no", tx=mine)
    assert back.release(tx=mine)
    assert acked.ack(tx=mine)
    assert parked.nack(60, tx=mine)
    assert failed.fail("no", tx=mine)
    assert released.release(tx=mine)
    assert transport.ack_batch(both, tx=mine) == 2
    mine.commit()
    assert sorted(one.payload for one in queue.peek()) == [4, 5]
    # A group emptied there is gone for everybody: what comes next makes a new one.
    assert {group.group_id: group.messages for group in transport.groups()} == {"a": 1, "b": 1, "d": 1, "x": 1}
    transport.publish("e", "again", 7)
    assert next(group for group in transport.groups() if group.group_id == "e").priority == 7
    events = []
    while (lease := transport.claim("w")) is not None:
        events.append(lease.event)
        assert lease.ack()
    assert sorted(events) == ["again", "d", "new", "new"]


@pytest.mark.parametrize("level", STRICT)
def test_a_message_the_snapshot_does_not_see_is_not_stranded(store: Any, mine: Any, level: Any) -> None:
    """The ack of a group's last message, as far as the snapshot tells; another one was published since (T10)."""
    transport = store.transport("t")
    transport.publish("g", 1)
    lease = transport.claim("w")
    mine.isolation_level = level
    mine.execute("SELECT 1 FROM rota.messages")
    transport.publish("g", 2)
    assert lease.ack(tx=mine)
    assert transport.claim("v") is None
    mine.commit()
    deadline = time.monotonic() + 2
    while (taken := transport.claim("v")) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert taken is not None
    assert taken.event == 2


@pytest.mark.parametrize("level", STRICT)
def test_a_conflict_says_run_it_again(store: Any, mine: Any, level: Any) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    job = queue.claim_one("w")
    mine.isolation_level = level
    mine.execute("SELECT 1 FROM rota.jobs")
    assert job.heartbeat(60)
    with pytest.raises(rota.TransactionAborted):
        job.ack(tx=mine)
    mine.rollback()
    assert job.ack(tx=mine)
    mine.commit()


def test_an_aborted_transaction_stays_aborted(store: Any, mine: Any) -> None:
    """Rota neither rolls back nor tries again on it."""
    queue = store.queue("q")
    with pytest.raises(psycopg.errors.DivisionByZero):
        mine.execute("SELECT 1 / 0")
    for _ in range(2):
        with pytest.raises(rota.TransactionAborted):
            queue.enqueue(1, tx=mine)
    mine.rollback()
    queue.enqueue(2, tx=mine)
    mine.commit()
    assert [one.payload for one in queue.peek()] == [2]


def test_a_deadlock_aborts_one(store: Any, mine: Any, postgres_url: str) -> None:
    """Two transactions that take two keys in opposite orders; one of them is told to run again."""
    queue = store.queue("q")
    ends: list[Any] = []
    both = threading.Barrier(2)

    def take(first: str, second: str) -> None:
        try:
            with store.transaction() as tx:
                queue.enqueue(first, key=first, tx=tx)
                both.wait(10)
                queue.enqueue(second, key=second, tx=tx)
            ends.append("committed")
        except rota.TransactionAborted:
            ends.append("aborted")

    threads = [threading.Thread(target=take, args=keys) for keys in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ends) == ["aborted", "committed"]
    assert len(queue.peek()) == 2


def test_an_open_transaction_stalls_nobody(store: Any, postgres_url: str) -> None:
    """Others claim and ack other jobs and groups meanwhile, and use new queues and transports that it used first."""
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue_many(list(range(100)))
    transport.publish_many([(f"g{number}", number) for number in range(100)])
    job, lease = queue.claim_one("w"), transport.claim("w")
    slowest = 0.0
    with store.transaction() as tx, rota.open(postgres_url, notify=False) as others:
        assert job.ack(tx=tx)
        assert lease.ack(tx=tx)
        queue.enqueue("new", tx=tx)
        tx.enqueue("first", 1)
        tx.publish("first", "g", 1)
        found: list[Any] = []

        def work() -> None:
            nonlocal slowest
            queue, transport = others.queue("q"), others.transport("t")
            others.queue("first").enqueue(2)
            others.transport("first").publish("h", 2)
            for _ in range(99):
                begun = time.monotonic()
                job, lease = queue.claim_one("v"), transport.claim("v")
                found.append((job.payload, lease.event))
                assert job.ack()
                assert lease.ack()
                slowest = max(slowest, time.monotonic() - begun)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert len(found) == 99
    assert slowest < 1
    assert [one.payload for one in queue.peek()] == ["new"]
    assert transport.groups() == []


def test_what_is_committed_late_goes_first(store: Any) -> None:
    """Claims have gone on to later jobs and groups meanwhile, and have enough of them; the commit takes them back."""
    queue, transport = store.queue("q"), store.transport("t")
    late = 0
    for number in range(10):
        with store.transaction() as tx:
            queue.enqueue(number, tx=tx)
            transport.publish(f"late-{number}", number, tx=tx)

            def others(number: int = number) -> None:
                time.sleep(0.03)
                queue.enqueue_many([-1] * 400)
                transport.publish_many([(f"{number}-{other}", -1) for other in range(400)])
                for _ in range(30):
                    for job, lease in zip(queue.claim_batch("w", 10), transport.claim_batch("w", 10), strict=True):
                        assert (job.payload, lease.event) == (-1, -1)
                        assert job.ack()
                        assert lease.ack()

            thread = threading.Thread(target=others)
            thread.start()
            thread.join(30)
        job, lease = queue.claim_one("w"), transport.claim("w")
        late += (job.payload, lease.event) == (number, number)
        queue.purge("pending")
        queue.purge("processing")
        for group in transport.groups(limit=1000):
            transport.purge(group.group_id)
    # A look at everything comes twice a second anyway, so once in a while it would be found by chance.
    assert late == 10
