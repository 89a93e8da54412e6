"""A transaction that stays open, with something of every kind in it: whom it stalls. ``ROTA_TEST_HOLD``: seconds."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

import rota

HOLD = float(os.environ.get("ROTA_TEST_HOLD", "1"))


class Held:
    """What the transaction holds, and what others hold beside it."""

    def __init__(self, store: Any) -> None:
        self.queue, self.transport = store.queue("q"), store.transport("t")
        self.queue.enqueue_many([rota.Item(number, key=f"key-{number}") for number in range(5)])
        self.jobs = self.queue.claim_batch("w", 5, visibility=3600)
        self.transport.publish_many([(group, group) for group in "abcde"])
        self.leases = self.transport.claim_batch("w", 5, 3600)

    def fill(self, store: Any, tx: Any) -> None:
        """Settlements and renewals of every kind, new jobs, keys, groups, a queue and a transport of its own."""
        done, again, dead, back, kept = self.jobs
        assert done.ack(tx=tx)
        assert again.retry("later", 3600, tx=tx)
        assert dead.fail("no", tx=tx)
        assert back.release(tx=tx)
        assert kept.heartbeat(3600, tx=tx)
        acked, nacked, failed, released, extended = self.leases
        assert acked.ack(tx=tx)
        assert nacked.nack(tx=tx)
        assert failed.fail("no", tx=tx)
        assert released.release(tx=tx)
        assert extended.extend(3600, tx=tx)
        self.queue.enqueue("held", key="held", tx=tx)
        self.transport.publish_many([("held", 1), ("held", 2)], tx=tx)
        store.queue("its own").enqueue(1, tx=tx)
        store.transport("its own").publish("g", 1, tx=tx)


class Others:
    """What everybody else does meanwhile, on other jobs and groups; each round finds what it made."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.rounds = 0

    def round(self) -> None:
        store, number = self.store, self.rounds
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many([rota.Item("mine", key=f"mine-{number}"), "mine", "mine", rota.Item("old", expires=-1)])
        transport.publish_many([(f"{kind}-{number}", kind) for kind in ("mine", "more", "rest")])
        # New to everybody, the transaction's own among them.
        store.queue(f"new-{number}").enqueue(1)
        store.queue("its own").enqueue(2)
        store.transport("its own").publish("h", 2)
        one, *two = (queue.claim_one("v"), *queue.claim_batch("v", 2))
        assert [job.payload for job in (one, *two)] == ["mine"] * 3
        assert two[0].heartbeat(60)
        assert two[0].retry("again", 3600)
        assert one.ack()
        assert queue.ack_batch([two[1]], "v") == 1
        assert queue.cancel(two[0].id)
        leases = [transport.claim("v"), *transport.claim_batch("v", 2)]
        assert [lease.event for lease in leases] == ["mine", "more", "rest"]
        assert leases[0].ack()
        assert transport.extend_batch(leases[1:], 60).count(None) == 0
        assert leases[1].fail("no")
        assert leases[2].nack()
        assert transport.suspend(leases[2].group_id)
        assert transport.resume(leases[2].group_id)
        assert transport.purge(leases[2].group_id) == 1
        assert queue.sweep_expired() == 1
        transport.sweep()
        stats = queue.stats()
        assert (stats.pending, stats.processing) == (0, 5)
        assert transport.stats().leased == 5
        assert queue.peek() == []
        assert len(transport.groups()) == 5
        assert transport.claim("v") is None
        store.notify("c", "x")
        queue.purge("dead")
        transport.purge_dead("all")
        self.rounds += 1


def while_held(work: Callable[[], None], seconds: float) -> int:
    """Repeat it in another thread for so long; how many times it was done before that ended."""
    done = 0
    failures: list[BaseException] = []
    until = time.monotonic() + seconds

    def repeat() -> None:
        nonlocal done
        try:
            while not done or time.monotonic() < until:
                work()
                done += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    thread.join(seconds + 60)
    assert not thread.is_alive()
    assert failures == []
    return done


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alchemy(url: str) -> Iterator[Any]:
    made = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with made.connect() as connection:
        yield connection
    made.dispose()


@pytest.mark.parametrize("whose", ["own", "psycopg", "alchemy"])
def test_nobody_is_stalled_on_postgres(postgres_url: str, whose: str) -> None:
    """No verb on other jobs and groups waits: the locks it would wait for would be there until the end."""
    with rota.open(postgres_url) as store, rota.open(postgres_url, notify=False) as other:
        held, others = Held(store), Others(other)
        lent: dict[str, Callable[[], AbstractContextManager[Any]]] = {
            "own": store.transaction,
            "psycopg": lambda: psycopg.connect(postgres_url),
            "alchemy": lambda: _alchemy(postgres_url),
        }
        with lent[whose]() as tx:
            held.fill(store, tx)
            assert while_held(others.round, HOLD) > 0
            if whose == "alchemy":
                tx.commit()
        assert held.queue.peek()[-1].payload == "held"
        assert held.transport.stats().messages == 5


# -- Memory ------------------------------------------------------------------------------------------------------------


def test_nobody_is_stalled_on_memory() -> None:
    """Not even who needs what it holds: that is refused at once."""
    with rota.open("memory://?codec=json") as store:
        held, others = Held(store), Others(store)
        with store.transaction() as tx:
            held.fill(store, tx)

            def refused() -> None:
                for act in (
                    held.jobs[0].ack,
                    held.leases[0].ack,
                    lambda: held.queue.cancel(held.jobs[1].id),
                    lambda: held.queue.enqueue(1, key="held"),
                    lambda: held.transport.purge("a"),
                ):
                    with pytest.raises(rota.EngineBusy):
                        act()

            while_held(refused, 0)
            assert while_held(others.round, HOLD) > 0
        assert held.queue.peek()[-1].payload == "held"


# -- SQLite ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["own", "sqlite3", "alchemy"])
def test_others_are_told_in_time_on_sqlite(tmp_path: Path, whose: str) -> None:
    """It has one writer: whoever writes beside it gets ``EngineBusy`` within the busy timeout, readers see the past."""
    import sqlite3

    url = f"sqlite:///{tmp_path}/s.db"
    with rota.open(url) as store, rota.open(url, busy_timeout=0.3) as other:
        held = Held(store)
        mine = sqlite3.connect(tmp_path / "s.db")
        made = sqlalchemy.create_engine(url)
        connection = made.connect()
        tx = {"own": store.transaction().__enter__, "sqlite3": lambda: mine, "alchemy": lambda: connection}[whose]()
        held.fill(store, tx)
        queue, transport = other.queue("q"), other.transport("t")
        writes = (
            lambda: queue.enqueue(1),
            lambda: queue.claim_one("v"),
            lambda: transport.publish("z", 1),
            lambda: transport.claim("v"),
            queue.sweep_expired,
            lambda: queue.cancel(1),
            lambda: other.transaction().__enter__(),
        )

        def refused() -> None:
            for write in writes:
                begun = time.monotonic()
                with pytest.raises(rota.EngineBusy):
                    write()
                # Without a bound it would be 30 seconds at least.
                assert time.monotonic() - begun < 5
                assert queue.stats().processing == 5
                assert transport.stats().leased == 5

        assert while_held(refused, HOLD if HOLD > 1 else 0) > 0
        if whose == "own":
            tx.__exit__(None, None, None)
        else:
            tx.commit()
        connection.close()
        made.dispose()
        mine.close()
        assert queue.claim_one("v") is not None
        assert held.queue.peek()[-1].payload == "held"
