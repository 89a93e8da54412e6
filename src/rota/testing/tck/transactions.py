"""X1: what is committed together, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rota import EngineBusy, Item, TransactionError
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Started, Suite, events, payloads, step


class Undo(Exception):
    """Leaves a block."""


@contextmanager
def undone(block: Any) -> Iterator[Any]:
    """A transaction or savepoint that an exception ends."""
    try:
        with block as entered:
            yield entered
            raise Undo
    except Undo:
        return
    raise AssertionError("the exception did not come out of the block")


def rolled_back(store: Any, act: Callable[[Any], object]) -> None:
    """Do something in a transaction that an exception ends."""
    with undone(store.transaction()) as tx:
        act(tx)


def all_raise(kind: type[Exception], *acts: Callable[[], object]) -> None:
    """Each of these is refused."""
    for act in acts:
        with pytest.raises(kind):
            act()


def late(call: Callable[..., Any], *args: Any) -> Any:
    """What a call gives that may have to wait for a transaction; ``EngineBusy`` itself where it cannot wait."""
    try:
        return call(*args)
    except EngineBusy:
        return EngineBusy


def claims_at_once(store: Any) -> bool:
    """Whether a claim does not wait for another's transaction: SQLite has one writer."""
    return bool(store.engine_facts()["engine"] != "sqlite")


class TransactionClauses(Suite):
    """X1."""

    # -- X1: one commit ------------------------------------------------------------------------------------------------

    def test_X1_all_of_it_or_nothing(self, store: Any, queue: Any, transport: Any) -> None:
        """Jobs and messages of a transaction appear at its commit, in the order of their ids."""
        with store.transaction() as tx:
            first = queue.enqueue(1, tx=tx)
            second, third = queue.enqueue_many([2, 3], tx=tx)
            seq = transport.publish("g", "a", tx=tx)
            others = transport.publish_many([("g", "b"), ("h", "c", 5)], tx=tx)
            assert queue.peek() == transport.peek("g") == []
            assert queue.get_job(first) is None
        assert first < second < third
        assert seq < others[0] < others[1]
        assert payloads(queue) == [1, 2, 3]
        assert events(transport) == ["a", "c", "b"]

    def test_X1_rollback_leaves_nothing(self, store: Any, queue: Any, transport: Any) -> None:
        """Nor is anything there after the next commit."""

        def act(tx: Any) -> None:
            queue.enqueue(1, tx=tx)
            transport.publish("g", "a", tx=tx)
            tx.enqueue("q", 2)
            tx.publish("t", "g", "b")

        rolled_back(store, act)
        with store.transaction() as tx:
            queue.enqueue(3, tx=tx)
        assert payloads(queue) == [3]
        assert events(transport) == []
        assert transport.groups() == []

    def test_X1_rollback_by_hand_ends_it(self, store: Any, queue: Any) -> None:
        """What names the transaction later is misuse; leaving the block is not."""
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            tx.rollback()
            all_raise(TransactionError, lambda: queue.enqueue(2, tx=tx), tx.rollback, lambda: tx.notify("c"))
            # It holds nothing any more.
            queue.enqueue(3)
        assert payloads(queue) == [3]

    def test_X1_it_is_entered_once(self, store: Any, queue: Any) -> None:
        """Before it has begun and after its end it takes no verbs."""
        tx = store.transaction()
        with pytest.raises(TransactionError, match="not begun"):
            queue.enqueue(1, tx=tx)
        with tx:
            queue.enqueue(2, tx=tx)
        with pytest.raises(TransactionError, match="committed"):
            queue.enqueue(3, tx=tx)
        with pytest.raises(TransactionError), tx:
            pass
        assert payloads(queue) == [2]

    def test_X1_savepoints(self, store: Any, queue: Any, transport: Any) -> None:
        """A savepoint undoes its own block, what is nested in it too, and nothing else."""
        queue.enqueue("held")
        job = queue.claim_one("w")
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            with undone(tx.savepoint()):
                queue.enqueue(2, tx=tx)
                transport.publish("g", "a", tx=tx)
                assert job.ack(tx=tx)
                with tx.savepoint():
                    queue.enqueue(3, tx=tx)
            with tx.savepoint():
                queue.enqueue(4, tx=tx)
            assert job.ack(tx=tx)
        assert payloads(queue) == [1, 4]
        assert events(transport) == []
        assert job.ack() is False

    def test_X1_a_savepoint_gives_back_what_it_held(self, store: Any, queue: Any) -> None:
        """A key taken and a job settled in an undone block are free again, in the same transaction too."""
        queue.enqueue("held")
        job = queue.claim_one("w")
        with store.transaction() as tx:
            with undone(tx.savepoint()):
                assert job.retry("no", 0, tx=tx)
                queue.enqueue(1, key="k", tx=tx)
            queue.enqueue(2, key="k", tx=tx)
        assert job.ack()
        assert payloads(queue) == [2]

    def test_X1_plain_stamp(self, store: Any, queue: Any) -> None:
        """``tx.enqueue`` uses no handle's options (Q1); those of the call count."""
        with store.transaction() as tx:
            plain = tx.enqueue("q", 1)
            own = tx.enqueue("q", 2, max_attempts=7, visibility=5, priority=3, name="n", headers={"a": "b"}, key="k")
            assert tx.enqueue("q", 3, key="k") == own
        record = queue.get_job(plain)
        assert (record.visibility, record.max_attempts, record.backoff_base, record.keep_done) == (300, 3, 5, 0)
        assert record.dead_letter_retention is None
        record = queue.get_job(own)
        assert (record.visibility, record.max_attempts, record.priority, record.name) == (5, 7, 3, "n")
        assert record.headers == {"a": "b"}

    def test_X1_settlements_take_effect_at_commit(self, store: Any, queue: Any, transport: Any) -> None:
        """Every settlement of jobs and messages, each seen only after the commit."""
        queue.enqueue_many([0, 1, 2, 3, 4, 5])
        done, again, dead, back, *pair = queue.claim_batch("w", 6)
        transport.publish_many([(group, group) for group in "abcdef"])
        acked, nacked, failed, released, *both = transport.claim_batch("w", 6)
        with store.transaction() as tx:
            assert done.ack(tx=tx)
            assert again.retry("later", 60, tx=tx)
            assert dead.fail("broken", tx=tx)
            assert back.release(tx=tx)
            assert queue.ack_batch([pair[0], pair[1].id], "w", tx=tx) == 2
            assert acked.ack(tx=tx)
            assert nacked.nack(60, error="later", tx=tx)
            assert failed.fail("broken", tx=tx)
            assert released.release(tx=tx)
            assert transport.ack_batch(both, tx=tx) == 2
            assert queue.stats().processing == 6
            assert transport.stats().leased == 6
            assert queue.dead_letters() == transport.dead_letters() == []
        stats = queue.stats()
        assert (stats.pending, stats.processing, stats.dead) == (2, 0, 1)
        assert [(one.payload, one.releases, one.attempts) for one in queue.peek()] == [(3, 1, 0)]
        assert queue.get_job(again.id).last_error == "later"
        assert [letter.last_error for letter in queue.dead_letters()] == ["broken"]
        assert [group.group_id for group in transport.groups("parked")] == ["b"]
        assert [letter.event for letter in transport.dead_letters()] == ["c"]
        assert [group.group_id for group in transport.groups()] == ["b", "d"]
        assert transport.claim("v").deliveries == 1

    def test_X1_renewals(self, store: Any, clock: ManualClock, queue: Any, transport: Any) -> None:
        """Heartbeats and extensions count from the call, and are undone with the transaction."""
        queue.enqueue_many([Item(1, visibility=10), Item(2, visibility=10)])
        transport.publish_many([("g", 1), ("h", 2)])
        job, undone = queue.claim_batch("w", 2)
        lease, given_up = transport.claim_batch("w", 2, 10)

        def act(tx: Any) -> None:
            assert undone.heartbeat(100, tx=tx)
            assert given_up.extend(100, tx=tx)

        rolled_back(store, act)
        with store.transaction() as tx:
            clock.advance(5)
            assert queue.heartbeat_batch([job], 20, tx=tx) == []
            assert lease.extend(20, tx=tx).deadline == clock.now() + 20
        clock.advance(5)
        step(clock, 1)
        assert [one.payload for one in queue.claim_batch("v", 2)] == [2]
        assert transport.claim("v").event == 2
        clock.advance(10)
        assert job.ack()
        assert lease.ack()

    def test_X1_a_settled_group_goes_on_after_the_commit(self, store: Any, transport: Any) -> None:
        """The next message is claimable then, not before (T1)."""
        transport.publish_many([("g", 1), ("g", 2)])
        lease = transport.claim("w")
        with store.transaction() as tx:
            assert lease.ack(tx=tx)
            if claims_at_once(store):
                assert Started(transport.claim, "v").result() is None
        assert events(transport) == [2]

    def test_X1_who_holds_it_writes_with_it(self, store: Any, queue: Any, transport: Any) -> None:
        """A write or claim without ``tx=`` by whoever holds the transaction is refused at once, reads are not."""
        queue.enqueue(1)
        transport.publish("g", 1)
        job, lease = queue.claim_one("w"), transport.claim("w")
        with store.transaction() as tx:
            begun = time.monotonic()
            all_raise(
                TransactionError,
                lambda: queue.enqueue(2),
                lambda: queue.enqueue_many([2]),
                lambda: transport.publish("g", 2),
                lambda: queue.claim_one("w"),
                lambda: queue.claim_one("w", wait=5),
                lambda: transport.claim("w"),
                lambda: transport.claim_batch("w", 2, wait=5),
                job.ack,
                job.heartbeat,
                lease.ack,
                lambda: lease.extend(5),
                lambda: queue.cancel(job.id),
                queue.sweep_expired,
                queue.suspend,
                lambda: transport.purge("g"),
                lambda: store.notify("c"),
                lambda: store.queue("new").enqueue(1),
                lambda: store.configure_transport("t", max_deliveries=3),
                store.close,
            )
            with pytest.raises(TransactionError), store.transaction():
                pass
            assert time.monotonic() - begun < 2
            assert queue.get_job(job.id).state == "processing"
            assert queue.stats().processing == 1
            assert transport.stats().leased == 1
            assert [group.group_id for group in transport.groups()] == ["g"]
            assert store.queues() == ["q"]
            assert queue.enqueue(3, tx=tx)
        assert payloads(queue) == [3]
        assert job.ack()
        assert lease.ack()

    def test_X4_what_is_no_connection_is_refused(self, store: Any, queue: Any) -> None:
        """``tx=`` takes a transaction or a connection; anything else is a wrong type."""
        for wrong in ("tx", 1, object()):
            with pytest.raises(TypeError):
                queue.enqueue(1, tx=wrong)
        assert queue.peek() == []

    def test_X1_another_store(self, opener: Callable[..., Any], store: Any) -> None:
        """A transaction belongs to the store it was made from."""
        other = opener()
        with store.transaction() as tx, pytest.raises(TransactionError):
            other.queue("q").enqueue(1, tx=tx)
        assert store.queue("q").peek() == []

    def test_X1_wakeups_after_the_commit(self, store: Any, queue: Any) -> None:
        """Who waits gets the job at the commit, not before, and nothing after a rollback."""
        waiting = Started(lambda: queue.claim_one("v", wait=20))
        time.sleep(0.1)
        rolled_back(store, lambda tx: queue.enqueue(0, tx=tx))
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            time.sleep(0.2)
            assert waiting.running
            committed = time.monotonic()
        job = waiting.result()
        assert time.monotonic() - committed < 1
        assert job.payload == 1

    def test_X1_notify_at_commit(self, store: Any) -> None:
        """A notification is heard after the commit, each of them; a rolled back one never."""
        listener = store.listen("c", timeout=5)
        hearing = Started(next, listener)
        time.sleep(0.1)
        rolled_back(store, lambda tx: tx.notify("c", "never"))
        with store.transaction() as tx:
            for payload in ("now", "now", None, None, "1", "end"):
                tx.notify("c", payload)
            time.sleep(0.1)
            assert hearing.running
        assert hearing.result() == "now"
        assert [next(listener) for _ in range(5)] == ["now", None, None, "1", "end"]
        listener.close()

    def test_X1_keys(self, store: Any, queue: Any, transport: Any) -> None:
        """Q15 inside a transaction: its own keys count at once, and are free after a rollback."""
        old = queue.enqueue("old", key="old")
        rolled_back(store, lambda tx: (queue.enqueue(0, key="k", tx=tx), transport.publish("g", 0, key="k", tx=tx)))
        with store.transaction() as tx:
            assert queue.enqueue(1, key="old", tx=tx) == old
            first = queue.enqueue(1, key="k", tx=tx)
            assert queue.enqueue(2, key="k", tx=tx) == first
            seq = transport.publish("g", 1, key="k", tx=tx)
            assert transport.publish_many([("g", 2)], tx=tx) != [seq]
            assert transport.publish("h", 3, key="k", tx=tx) == seq
        assert queue.enqueue(3, key="k") == first
        assert transport.publish("g", 4, key="k") == seq
        assert payloads(queue) == ["old", 1]
        assert events(transport) == [1, 2]

    def test_X1_a_key_in_an_open_transaction_is_in_doubt(self, store: Any, queue: Any) -> None:
        """Who needs it meanwhile waits, or is told that somebody is busy; never are there two."""
        with store.transaction() as tx:
            mine = queue.enqueue(1, key="k", tx=tx)
            other = Started(late, lambda: queue.enqueue(2, key="k"))
            time.sleep(0.1)
        assert other.result() in (mine, EngineBusy)
        assert payloads(queue) == [1]

    def test_X1_ready_times_count_from_the_call(self, store: Any, clock: ManualClock, queue: Any) -> None:
        """A delay begins when the verb is called, not when the transaction began or ended (case 026)."""
        start = clock.now()
        with store.transaction() as tx:
            clock.advance(5)
            job_id = queue.enqueue(1, delay=10, expires=100, tx=tx)
            clock.advance(7)
            queue.enqueue(2, tx=tx)
        record = queue.get_job(job_id)
        assert (record.enqueued_at, record.run_at, record.expires_at) == (start + 5, start + 15, start + 105)
        assert payloads(queue) == [2]
        clock.set(start + 15)
        assert payloads(queue) == [1]

    def test_X1_a_message_committed_late(self, store: Any, transport: Any) -> None:
        """T2: of two publishes that overlap, the later commit may bring the lower seq; both are delivered once."""
        transport.publish("g", 0)
        with store.transaction() as tx:
            transport.publish("g", "late", tx=tx)
            other = Started(late, transport.publish, "g", "early")
            other.result() if claims_at_once(store) else time.sleep(0.1)
        assert other.result() is not EngineBusy
        assert sorted(map(str, events(transport))) == ["0", "early", "late"]

    def test_X1_ids_keep_growing(self, store: Any, queue: Any) -> None:
        """What a rollback drew is never lower than what comes later in the store."""
        drawn: list[int] = []
        rolled_back(store, lambda tx: drawn.append(queue.enqueue(1, tx=tx)))
        first = queue.enqueue(2)
        with store.transaction() as tx:
            second = queue.enqueue(3, tx=tx)
        assert first < second

    def test_X1_transactions_side_by_side(self, store: Any, queue: Any) -> None:
        """Several at once on one store: nobody is refused because somebody else holds one; they wait if they must."""

        def work(number: int) -> bool:
            for turn in range(3):
                with store.transaction() as tx:
                    queue.enqueue([number, turn], tx=tx)
                    time.sleep(0.005)
            return True

        everybody = [Started(work, number) for number in range(4)]
        assert all(one.result() for one in everybody)
        assert queue.stats().pending == 12

    def test_X1_savepoints_end_from_the_inside_out(self, store: Any, queue: Any) -> None:
        """One that ended with the one around it cannot end again."""
        with store.transaction() as tx:
            outer, inner = tx.savepoint(), tx.savepoint()
            outer.__enter__()
            inner.__enter__()
            queue.enqueue(1, tx=tx)
            outer.__exit__(KeyError, KeyError(), None)
            all_raise(TransactionError, lambda: inner.__exit__(None, None, None))
            queue.enqueue(2, tx=tx)
        assert payloads(queue) == [2]

    def test_X1_nothing_in_it(self, store: Any, queue: Any) -> None:
        """An empty transaction, and one of empty batches."""
        with store.transaction():
            pass
        with store.transaction() as tx:
            assert queue.enqueue_many([], tx=tx) == []
            assert queue.ack_batch([], "w", tx=tx) == 0
            assert queue.heartbeat_batch([], tx=tx) == []
        assert queue.peek() == []
