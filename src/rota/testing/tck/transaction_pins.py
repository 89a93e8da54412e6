"""X2, X3, X5: what an open transaction pins, what a lost lease does to it, the outbox stamp."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rota import EngineBusy, Item, LeaseLost
from rota.testing.clock import ManualClock
from rota.testing.tck.base import MICROSECOND, Started, Suite, events, step
from rota.testing.tck.transactions import all_raise, claims_at_once, late, rolled_back


class PinClauses(Suite):
    """X2, X3, X5."""

    # -- X2: pins ------------------------------------------------------------------------------------------------------

    def test_X2_a_settled_job_is_pinned(self, store: Any, clock: ManualClock, queue: Any) -> None:
        """Judged when called: what lapses and expires before the commit is still settled, and nobody's meanwhile."""
        queue.enqueue(1, visibility=10, expires=50)
        job = queue.claim_one("w")
        with store.transaction() as tx:
            clock.advance(10)
            assert job.ack(tx=tx)
            clock.advance(60)
            others = [Started(late, call) for call in (lambda: queue.claim_one("v"), queue.sweep_expired)]
            time.sleep(0.1)
        assert others[0].result() in (None, EngineBusy)
        assert others[1].result() in (0, EngineBusy)
        assert queue.stats().dead == 0
        assert queue.get_job(job.id) is None

    def test_X2_cancel_waits_or_is_busy(self, store: Any, queue: Any) -> None:
        """A job settled in an open transaction cannot be cancelled; after a rollback it can."""
        queue.enqueue_many([1, 2])
        kept, undone = queue.claim_batch("w", 2)
        with store.transaction() as tx:
            assert kept.retry("again", 0, tx=tx)
            other = Started(late, queue.cancel, kept.id)
            time.sleep(0.1)
        assert other.result() in (True, EngineBusy)
        rolled_back(store, lambda tx: undone.ack(tx=tx))
        assert queue.cancel(undone.id)
        assert undone.ack() is False

    def test_X2_a_rollback_restores_the_claim(self, store: Any, clock: ManualClock, queue: Any, transport: Any) -> None:
        """ "Spent" is the store's state: the same handle settles again, and lapses when it would have."""
        queue.enqueue_many([Item(1, visibility=10), Item(2, visibility=10)])
        transport.publish_many([("g", 1), ("h", 2)])
        job, lapsing = queue.claim_batch("w", 2)
        lease, late_one = transport.claim_batch("w", 2, 10)

        def act(tx: Any) -> None:
            for one in (job, lapsing):
                assert one.fail("no", tx=tx)
            assert lease.ack(tx=tx)
            assert late_one.nack(60, tx=tx)

        rolled_back(store, act)
        assert queue.dead_letters() == []
        assert job.ack()
        assert lease.ack()
        clock.advance(10 * 1 + MICROSECOND.total_seconds())
        assert lapsing.ack() is False
        assert [one.attempts for one in queue.claim_batch("v", 2)] == [2]
        assert transport.claim("v").deliveries == 2
        assert late_one.ack() is False

    def test_X2_a_settled_group_is_pinned(self, store: Any, clock: ManualClock, transport: Any) -> None:
        """A lease that lapses after it was settled is not handed out, and later messages wait."""
        transport.publish_many([("g", 1), ("g", 2)])
        lease = transport.claim("w", 10)
        with store.transaction() as tx:
            assert lease.ack(tx=tx)
            clock.advance(60)
            other = Started(late, transport.claim, "v")
            time.sleep(0.1)
            if claims_at_once(store):
                assert other.result() is None
        taken = other.result()
        if taken is not None and taken is not EngineBusy:
            assert taken.ack()
            assert taken.event == 2
        assert events(transport) == ([] if taken is not None and taken is not EngineBusy else [2])

    def test_X2_a_late_settlement_pins_too(self, store: Any, clock: ManualClock, transport: Any) -> None:
        """T6: lapsed, not taken by anybody, settled in a transaction."""
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        clock.advance(60)
        rolled_back(store, lambda tx: lease.ack(tx=tx))
        with store.transaction() as tx:
            assert lease.ack(tx=tx)
        assert transport.claim("v") is None
        assert transport.stats().messages == 0

    def test_X2_purge_and_suspension(self, store: Any, transport: Any) -> None:
        """A pinned group can be suspended, not purged before the end."""
        transport.publish_many([("g", 1), ("g", 2)])
        lease = transport.claim("w")
        with store.transaction() as tx:
            assert lease.nack(tx=tx)
            purging = Started(late, transport.purge, "g")
            time.sleep(0.1)
        assert purging.result() in (2, EngineBusy)
        transport.publish("h", 3)
        transport.suspend("h")
        transport.resume("h")
        lease = transport.claim_batch("w", 5)[-1]
        rolled_back(store, lambda tx: lease.nack(tx=tx))
        assert lease.ack()

    # -- X3: lost leases -----------------------------------------------------------------------------------------------

    def test_X3_a_lost_claim_raises(self, store: Any, clock: ManualClock, queue: Any) -> None:
        """Every operation of a job whose claim is over; what else the transaction did can still be committed."""
        queue.enqueue(1, visibility=10)
        job = queue.claim_one("w")
        step(clock, 10_000_001)
        with store.transaction() as tx:
            queue.enqueue(2, tx=tx)
            all_raise(
                LeaseLost,
                lambda: job.ack(tx=tx),
                lambda: job.retry("no", tx=tx),
                lambda: job.fail(tx=tx),
                lambda: job.release(tx=tx),
                lambda: job.heartbeat(tx=tx),
                lambda: queue.ack_batch([job], "w", tx=tx),
                lambda: queue.ack_batch([job.id], "w", tx=tx),
            )
            assert [one.id for one in queue.heartbeat_batch([job], tx=tx)] == [job.id]
        assert [one.attempts for one in queue.claim_batch("v", 2)] == [2, 1]

    def test_X3_a_lost_lease_raises(self, store: Any, transport: Any) -> None:
        """Every operation of a lease that is spent."""
        transport.publish("g", 1)
        lease = transport.claim("w")
        assert lease.nack()
        with store.transaction() as tx:
            all_raise(
                LeaseLost,
                lambda: lease.ack(tx=tx),
                lambda: lease.nack(tx=tx),
                lambda: lease.retry("no", tx=tx),
                lambda: lease.fail(tx=tx),
                lambda: lease.release(tx=tx),
                lambda: lease.extend(5, tx=tx),
                lambda: transport.ack_batch([lease], tx=tx),
            )
            assert transport.extend_batch([lease], 5, tx=tx) == [None]
        assert events(transport) == [1]

    def test_X3_twice_in_one_transaction(self, store: Any, queue: Any, transport: Any) -> None:
        """The first settlement spends the claim, within the transaction too."""
        queue.enqueue(1)
        transport.publish("g", 1)
        job, lease = queue.claim_one("w"), transport.claim("w")
        with store.transaction() as tx:
            assert job.heartbeat(50, tx=tx)
            assert job.ack(tx=tx)
            assert lease.extend(50, tx=tx)
            assert lease.ack(tx=tx)
            all_raise(LeaseLost, lambda: job.ack(tx=tx), lambda: lease.ack(tx=tx), lambda: job.heartbeat(tx=tx))
        assert queue.stats().processing == transport.stats().messages == 0

    def test_X3_a_batch_is_acked_whole_or_not_at_all(self, store: Any, queue: Any, transport: Any) -> None:
        """With one lost lease in it nothing of the batch is settled."""
        queue.enqueue_many([1, 2])
        transport.publish_many([("g", 1), ("h", 2)])
        jobs, leases = queue.claim_batch("w", 2), transport.claim_batch("w", 2)
        assert jobs[1].release()
        assert leases[1].nack()
        with store.transaction() as tx:
            with pytest.raises(LeaseLost):
                queue.ack_batch(jobs, "w", tx=tx)
            with pytest.raises(LeaseLost):
                transport.ack_batch(leases, tx=tx)
        assert jobs[0].ack()
        assert leases[0].ack()

    def test_X3_a_lost_lease_rolls_back(self, store: Any, queue: Any) -> None:
        """Unhandled, it takes the effect with it: no effect without its ack."""
        queue.enqueue(1)
        job = queue.claim_one("w")
        assert job.ack()

        def act() -> None:
            with store.transaction() as tx:
                queue.enqueue("effect", tx=tx)
                job.ack(tx=tx)

        with pytest.raises(LeaseLost):
            act()
        assert queue.peek() == []

    def test_X3_items_of_other_queues(self, store: Any, queue: Any, transport: Any) -> None:
        """A handle of another queue or transport settles nothing, and says so."""
        other, another = store.queue("other"), store.transport("other")
        queue.enqueue(1)
        transport.publish("g", 1)
        job, lease = queue.claim_one("w"), transport.claim("w")
        with store.transaction() as tx:
            all_raise(
                LeaseLost,
                lambda: other.ack(job, tx=tx),
                lambda: another.ack(lease, tx=tx),
                lambda: other.ack_batch([job], "w", tx=tx),
                lambda: another.ack_batch([lease], tx=tx),
            )
        assert job.ack()
        assert lease.ack()

    # -- X5 ------------------------------------------------------------------------------------------------------------

    def test_X5_the_outbox_stamp(self, store: Any) -> None:
        """60 s, 5 attempts, 5 s, for ever."""
        outbox = store.outbox("webhooks")
        with store.transaction() as tx:
            job_id = outbox.enqueue({"url": "x"}, tx=tx)
        record = outbox.get_job(job_id)
        assert (record.visibility, record.max_attempts, record.backoff_base) == (60, 5, 5)
        assert (record.dead_letter_retention, record.keep_done) == (None, 0)
