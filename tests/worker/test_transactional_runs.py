"""Transactional handlers in a running worker: beside each other, ended by the worker, and what others see of them."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.aio.transaction import AsyncTransaction
from rota.wakeups import ThreadWaiter

from .running import Running, until
from .transactional import EFFECTS, Trial, effect, fail


@pytest.fixture
def trial(store: rota.Store, kind: str, colour: str) -> Trial:
    return Trial(store, kind, colour)


ONLY_QUEUES = pytest.mark.parametrize("kind", ["queue"], indirect=True)
ONLY_ASYNC = pytest.mark.parametrize("colour", ["async"], indirect=True)
ONLY_SYNC = pytest.mark.parametrize("colour", ["sync"], indirect=True)
ONLY_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def blocked(event: threading.Event) -> Any:
    """A step that waits for an event, in a thread, without blocking a loop."""

    def step(handle: Any, tx: Any) -> Any:
        if isinstance(tx, AsyncTransaction):
            return polling(event)
        event.wait(20)
        return None

    return step


async def polling(event: threading.Event) -> None:
    await asyncio.get_running_loop().run_in_executor(None, event.wait, 20)


def test_no_effect_twice_and_none_lost(trial: Trial, running: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Ten at once, every third try fails after its effect."""
    chance = random.Random(5)
    trial.handler(
        lambda handle, tx: tx.enqueue(EFFECTS, handle.payload if trial.kind == "queue" else handle.event),
        lambda handle, tx: fail(rota.Retry(delay=0.01))(handle, tx) if chance.random() < 0.3 else None,
    )
    ids = trial.add(60, max_attempts=100)
    running(trial.worker)
    until(lambda: trial.live == 0 and trial.counts.get("acked") == len(ids), 60)
    # The last retry is counted a moment after it is there.
    until(lambda: trial.counts["retried"] == len(trial.tries) - 60)
    assert sorted(trial.effects) == list(range(60))
    assert trial.counts["retried"] > 5
    # What was claimed ahead and had to wait may have been given back.
    assert set(trial.counts) <= {"acked", "retried", "released"}
    assert "transaction_not_begun" not in caplog.text


@ONLY_SQLITE
def test_they_take_turns_where_there_is_one_writer(
    url: str, kind: str, colour: str, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Together they take longer than the busy timeout and than the visibility: none is refused, none is lost, and the
    worker's other work goes on between them."""
    with rota.open(url, busy_timeout=1) as store:
        trial = Trial(store, kind, colour, concurrency=25, visibility=1.5)
        trial.handler(effect(), lambda handle, tx: asyncio.sleep(0.1) if colour == "async" else time.sleep(0.1))
        others: list[int] = []

        @trial.worker.queue("other")
        def other(number: int) -> None:
            others.append(len(trial.effects))

        trial.add(25)
        one: Running = running(trial.worker)
        until(lambda: trial.effects, 20)
        store.queue("other").enqueue(1)
        until(lambda: len(trial.effects) == 25, 60)
        one.stop()
        assert trial.tries == [1] * 25
        assert len(others) == 1
        assert others[0] < 25
        assert "transaction_not_begun" not in caplog.text


def test_woken_after_the_commit_only(trial: Trial, running: Any) -> None:
    waiter, woken = ThreadWaiter("q:" + EFFECTS), []
    trial.store._core.wakeups.add(waiter)
    engine: Any = trial.store._core.engine
    if hasattr(engine, "listening"):
        # When it begins to listen it wakes everybody.
        until(lambda: engine.listening == "listening")
        waiter.clear()
    trial.handler(
        effect(),
        lambda handle, tx: woken.append(waiter._event.is_set()),
        lambda handle, tx: fail(rota.Retry(delay=0.2))(handle, tx) if len(trial.tries) == 1 else None,
    )
    trial.add()
    running(trial.worker)
    until(lambda: trial.counts.get("retried"))
    assert not waiter._event.is_set()
    until(lambda: trial.counts.get("acked"))
    until(waiter._event.is_set)
    assert woken == [False, False]
    trial.store._core.wakeups.remove(waiter)


@ONLY_ASYNC
def test_an_async_one_whose_time_is_over_is_rolled_back(trial: Trial, running: Any) -> None:
    async def stubborn(handle: Any, tx: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            # It goes on as if nothing was: what it wrote does not count all the same.
            return

    trial.options["timeout"] = 0.2
    trial.handler(effect(), lambda handle, tx: stubborn(handle, tx) if len(trial.tries) == 1 else None)
    trial.add()
    running(trial.worker)
    until(lambda: trial.counts.get("retried"))
    assert trial.effects == []
    trial.worker.stop()


@ONLY_SYNC
def test_a_thread_whose_time_is_over_does_not_commit(trial: Trial, running: Any) -> None:
    """Its claim lapses, another try does the work, and when it returns at last nothing is written twice."""
    trial.options |= {"timeout": 0.3, "visibility": 0.6, "concurrency": 2}
    told = []
    trial.handler(effect(), lambda handle, tx: told.append(handle.lost.wait(20)) if len(trial.tries) == 1 else None)
    trial.add(max_attempts=10)
    running(trial.worker)
    until(lambda: trial.counts.get("acked") and len(told) == 1, 30)
    assert trial.effects == ["effect"]
    assert trial.tries == [1, 2]


@ONLY_QUEUES
@pytest.mark.parametrize("engine", ["memory", "postgresql"], indirect=True)
def test_a_claim_lost_under_its_handler(trial: Trial, running: Any) -> None:
    """Cancelled meanwhile: an async handler is cancelled, a thread told; nothing is committed."""
    trial.options["visibility"] = 0.5
    waiting, ended = threading.Event(), threading.Event()

    async def wait(handle: Any) -> None:
        try:
            waiting.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    def step(handle: Any, tx: Any) -> Any:
        if trial.colour == "async":
            return wait(handle)
        waiting.set()
        assert handle.lost.wait(20)
        ended.set()
        return None

    trial.handler(effect(), step)
    (id,) = trial.add()
    running(trial.worker)
    until(waiting.is_set)
    assert trial.queue.cancel(id)
    until(ended.is_set)
    until(lambda: not trial.worker.health().sources[0].running)
    assert trial.effects == []
    assert trial.counts == {"lost": 1}


@ONLY_QUEUES
@ONLY_SQLITE
def test_a_claim_lost_while_it_waits_for_its_turn(trial: Trial, running: Any) -> None:
    """Whoever waits for the writer goes before the next transaction; that one finds its claim gone at the ack."""
    go = threading.Event()
    trial.handler(effect(), blocked(go))
    ids = trial.add(2)
    running(trial.worker)
    until(lambda: trial.tries and trial.worker.health().sources[0].running == 2)
    waiting = {1: ids[1], 0: ids[0]}[trial.handles[0].id == ids[0]]
    done: list[bool] = []
    cancelling = threading.Thread(target=lambda: done.append(trial.queue.cancel(waiting)))
    cancelling.start()
    engine: Any = trial.store._core.engine
    until(lambda: engine._waiting)
    go.set()
    cancelling.join()
    until(lambda: not trial.worker.health().sources[0].running)
    assert done == [True]
    assert trial.effects == ["effect"]
    assert trial.counts == {"acked": 1, "lost": 1}


def test_stopped_handlers_are_rolled_back_and_given_back(
    store: rota.Store, kind: str, colour: str, running: Any
) -> None:
    trial = Trial(store, kind, colour)
    trial.worker.configure(grace=0, worker_id=None)

    def step(handle: Any, tx: Any) -> Any:
        return asyncio.sleep(60) if colour == "async" else handle.lost.wait(20)

    trial.handler(effect(), step)
    (id,) = trial.add()
    one: Running = running(trial.worker)
    until(lambda: trial.tries)
    one.stop()
    until(lambda: not trial.worker.health().sources)
    assert trial.effects == []
    assert trial.live == 1
    if kind == "queue":
        record = until(lambda: (found := trial.queue.get_job(id)) and found.state == "pending" and found)
        # A claim under way may have got it, and given it back.
        assert record.attempts == 0
        assert record.releases >= 1
    else:
        assert until(lambda: trial.transport.claim("next")).deliveries == 1


@ONLY_SQLITE
def test_who_waits_for_a_turn_is_given_back_at_once(trial: Trial, running: Any) -> None:
    """A worker that stops lets the one that has begun finish, and begins no other, however long its grace is."""
    go = threading.Event()
    trial.handler(effect(), blocked(go))
    trial.add(6)
    one: Running = running(trial.worker)
    until(lambda: trial.tries and trial.worker.health().sources[0].running == 6)
    one.worker.stop()
    until(lambda: trial.worker.health().sources[0].running == 1)
    assert trial.worker.health().state == "stopping"
    go.set()
    one.join()
    assert (trial.tries, trial.effects, trial.live) == ([1], ["effect"], 5)
    if trial.kind == "queue":
        assert {(job.state, job.attempts) for job in trial.queue.jobs() if job.state != "done"} == {("pending", 0)}
    else:
        assert {lease.deliveries for lease in trial.transport.claim_batch("next", 10)} == {1}


@ONLY_ASYNC
def test_a_commit_under_way_is_not_cut_short(trial: Trial, running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of it: it is waited for, and counts."""
    committing, commit = threading.Event(), AsyncTransaction._commit

    async def slow(self: AsyncTransaction) -> None:
        committing.set()
        await asyncio.sleep(0.3)
        await commit(self)

    monkeypatch.setattr(AsyncTransaction, "_commit", slow)
    trial.handler(effect())
    trial.add()
    one: Running = running(trial.worker)
    until(committing.is_set)
    one.worker.stop(now=True)
    one.join()
    assert trial.effects == ["effect"]
    assert trial.live == 0


@ONLY_ASYNC
def test_one_left_behind_holds_nothing(trial: Trial, running: Any) -> None:
    """It swallows every cancellation: it is left, its loop ends, and its transaction with it."""

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    trial.options["visibility"] = 1
    trial.handler(effect(), lambda handle, tx: stubborn())
    trial.add()
    one: Running = running(trial.worker)
    until(lambda: trial.tries)
    one.stop(now=True)
    trial.store.queue("free").enqueue(1)
    assert trial.effects == []
    until(lambda: trial.queue.claim_one("next") if trial.kind == "queue" else trial.transport.claim("next"))


# -- Handlers that settle in transactions of their own -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["rolled back", "committed"])
def test_an_ordinary_handler_with_a_transaction_of_its_own(store: rota.Store, running: Any, how: str) -> None:
    """What it settled there counts if that was committed; else the handler that returns is acked as any other."""
    worker, settled = rota.Worker(store), []

    @worker.queue("q")
    def handle(job: rota.Job) -> None:
        with store.transaction() as tx:
            tx.enqueue(EFFECTS, 1)
            job.fail("inside", tx=tx)
            settled.append(job.settled)  # type: ignore[attr-defined]
            if how == "rolled back":
                tx.rollback()
        settled.append(job.settled)  # type: ignore[attr-defined]

    queue = store.queue("q", keep_done=60)
    id = queue.enqueue(1)
    running(worker)
    state = until(lambda: (found := queue.get_job(id)) and found.state in ("done", "dead") and found.state)
    until(lambda: worker.health().sources[0].handled)
    assert state == ("done" if how == "rolled back" else "dead")
    assert settled == [True, how == "committed"]
    assert store.queue(EFFECTS).stats().pending == (how == "committed")
    assert worker.health().sources[0].lost == 0


@pytest.fixture
def connection(sqlite_file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(sqlite_file, timeout=20, check_same_thread=False)
    yield connection
    connection.close()


@ONLY_SQLITE
@pytest.mark.parametrize("how", ["rollback", "commit"])
def test_a_handler_that_settles_on_a_connection_of_its_own(
    store: rota.Store, running: Any, connection: sqlite3.Connection, how: str
) -> None:
    """Nobody here knows how that ends: nothing is recorded; if it was rolled back the claim lapses."""
    worker, tries = rota.Worker(store), []

    @worker.queue("q", visibility=0.5)
    def handle(job: rota.Job) -> None:
        tries.append(job.attempts)
        connection.execute("BEGIN IMMEDIATE")
        job.ack(tx=connection)
        getattr(connection, how if len(tries) == 1 else "commit")()

    queue = store.queue("q")
    id = queue.enqueue(1)
    running(worker)
    until(lambda: queue.get_job(id) is None)
    until(lambda: worker.health().sources[0].running == 0)
    assert tries == ([1] if how == "commit" else [1, 2])
    assert worker.health().sources[0].lost == 0


# -- Heartbeats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["memory", "postgresql"], indirect=True)
def test_one_renewed_in_an_open_transaction_silences_no_other(trial: Trial, running: Any) -> None:
    """It is locked until the commit; the others of its source, and of its worker, are renewed all the same."""
    trial.options |= {"visibility": 2, "concurrency": 3}
    go = threading.Event()

    def renew(handle: Any, tx: Any) -> Any:
        if len(trial.handles) > 1:
            return None
        return handle.heartbeat(60, tx=tx) if trial.kind == "queue" else handle.extend(60, tx=tx)

    trial.handler(renew, blocked(go))
    lost: list[bool] = []

    @trial.worker.queue("plain", visibility=2)
    def plain(job: rota.Job) -> None:
        lost.append(job.lost.wait(5))

    trial.add(1)
    running(trial.worker)
    until(lambda: trial.handles)
    trial.queue.enqueue_many([1, 1]) if trial.kind == "queue" else trial.transport.publish_many([("a", 1), ("b", 1)])
    trial.store.queue("plain").enqueue(1)
    until(lambda: lost, 30)
    go.set()
    until(lambda: trial.counts.get("acked") == 3)
    assert lost == [False]
    assert trial.tries == [1, 1, 1]
    assert "lost" not in trial.counts
