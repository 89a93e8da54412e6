"""Q7-Q10, Q12: what a holder may do, backoff, batches, cancelling and sweeping."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rota.testing.clock import ManualClock
from rota.testing.tck.base import Started, Suite, step


class QueueHandles(Suite):
    """Operations on claimed jobs (Q7-Q10, Q12)."""

    # -- Q7 ------------------------------------------------------------------------------------------------------------

    def test_Q7_ack_removes_the_job(self, queue: Any) -> None:
        """Without keep_done nothing is left."""
        id = queue.enqueue(1)
        assert queue.claim_one("w").ack("ignored") is True
        assert queue.get_job(id) is None
        stats = queue.stats()
        assert (stats.pending, stats.processing, stats.done, stats.dead) == (0, 0, 0, 0)

    def test_Q7_ack_keeps_the_result_for_keep_done(self, store: Any, clock: ManualClock) -> None:
        """With keep_done the record stays as done, with result and time, until its time is over."""
        queue = store.queue("q", keep_done=60)
        id = queue.enqueue(1)
        assert queue.claim_one("w").ack({"sum": 3})
        record = queue.get_job(id)
        assert (record.state, record.result, record.done_at) == ("done", {"sum": 3}, clock.now())
        assert (record.attempts, record.worker_id) == (1, "w")
        assert queue.claim_one("w") is None
        step(clock, 59_999_999)
        queue.sweep_expired()
        assert queue.get_job(id).state == "done"
        step(clock, 1)
        assert queue.sweep_expired() == 0
        assert queue.get_job(id) is None

    def test_Q7_a_result_that_cannot_be_stored_leaves_the_claim(self, store: Any) -> None:
        """PayloadError, and the claim can still be acked."""
        from rota import PayloadError

        queue = store.queue("q", keep_done=60)
        queue.enqueue(1)
        job = queue.claim_one("w")
        with pytest.raises(PayloadError):
            job.ack({1, 2})
        assert job.ack([1, 2])

    def test_Q7_retry_sets_error_and_ready_time(self, queue: Any, clock: ManualClock) -> None:
        """Pending again at now + delay; the error is kept, the one before too."""
        id = queue.enqueue(1)
        assert queue.claim_one("w").retry("first", delay=10) is True
        record = queue.get_job(id)
        assert (record.state, record.run_at, record.last_error) == ("pending", clock.now() + 10, "first")
        assert (record.worker_id, record.attempts) == (None, 1)
        step(clock, 9_999_999)
        assert queue.claim_one("w") is None
        step(clock, 1)
        job = queue.claim_one("w")
        assert (job.attempts, job.last_error) == (2, "first")
        assert job.retry(ValueError("second"), delay=0)
        record = queue.get_job(id)
        assert (record.last_error, record.previous_error) == ("ValueError: second", "first")

    def test_Q7_retry_without_an_error_keeps_the_old_one(self, queue: Any) -> None:
        """An omitted error changes neither last_error nor previous_error."""
        id = queue.enqueue(1)
        assert queue.claim_one("w").retry("first", delay=0)
        assert queue.claim_one("w").retry(delay=0)
        record = queue.get_job(id)
        assert (record.last_error, record.previous_error) == ("first", None)

    def test_Q7_retry_with_no_attempt_left_is_dead(self, queue: Any, clock: ManualClock) -> None:
        """True as well; with the error given, else the reason."""
        for error, last in (("boom", "boom"), (None, "max attempts exceeded")):
            id = queue.enqueue(1, max_attempts=1)
            assert queue.claim_one("w").retry(error, delay=0) is True
            record = queue.get_job(id)
            assert (record.state, record.last_error, record.died_at) == ("dead", last, clock.now())
        assert [letter.reason for letter in queue.dead_letters()] == ["max attempts exceeded"] * 2

    def test_Q7_fail_is_dead_now(self, queue: Any) -> None:
        """Whatever attempts are left; error or "failed"."""
        for error, last in (("boom", "boom"), (None, "failed"), ("", "failed")):
            id = queue.enqueue(1)
            assert queue.claim_one("w").fail(error) is True
            assert queue.get_job(id).last_error == last
        assert {letter.reason for letter in queue.dead_letters()} == {"failed"}
        assert queue.claim_one("w") is None

    def test_Q7_heartbeat_resets_the_end(self, queue: Any, clock: ManualClock) -> None:
        """now + this claim's visibility, or the extend given; repeatable, may shorten; attempts untouched."""
        id = queue.enqueue(1, visibility=100)
        job = queue.claim_one("w", visibility=10)
        claimed = clock.now()
        clock.advance(6)
        assert job.heartbeat() is True
        assert job.claim_expires_at == queue.get_job(id).claim_expires_at == clock.now() + 10
        assert job.heartbeat(50) is True
        assert queue.get_job(id).claim_expires_at == clock.now() + 50
        assert job.heartbeat(1) is True
        record = queue.get_job(id)
        assert (record.claim_expires_at, record.claimed_at, record.attempts) == (clock.now() + 1, claimed, 1)
        step(clock, 1_000_000)
        assert job.heartbeat() is True
        step(clock, 10_000_001)
        assert job.heartbeat() is False

    def test_Q7_heartbeat_batch_says_which_are_lost(self, queue: Any, clock: ManualClock) -> None:
        """The jobs whose claim is lost; the others are renewed."""
        queue.enqueue_many([1, 2, 3])
        jobs = queue.claim_batch("w", 3, visibility=10)
        assert jobs[0].ack()
        assert queue.cancel(jobs[2].id)
        clock.advance(5)
        assert [job.id for job in queue.heartbeat_batch(jobs)] == [jobs[0].id, jobs[2].id]
        assert queue.get_job(jobs[1].id).claim_expires_at == clock.now() + 10

    def test_Q7_release_gives_it_back(self, queue: Any, clock: ManualClock) -> None:
        """Pending with its old run_at, or now + delay; attempt given back, releases counted."""
        id = queue.enqueue(1, delay=-7)
        run_at = queue.get_job(id).run_at
        assert queue.claim_one("w").release() is True
        record = queue.get_job(id)
        assert (record.state, record.run_at, record.attempts, record.releases) == ("pending", run_at, 0, 1)
        assert (record.worker_id, record.claim_expires_at) == (None, None)
        assert queue.claim_one("w").release(delay=30) is True
        assert queue.get_job(id).run_at == clock.now() + 30
        assert queue.claim_one("w") is None

    @pytest.mark.parametrize("end", ["ack", "retry", "fail", "release"])
    def test_Q7_a_settled_handle_is_spent(self, queue: Any, end: str) -> None:
        """After a terminal operation every other one returns False."""
        queue.enqueue(1)
        job = queue.claim_one("w")
        assert getattr(job, end)() is True
        for verb in ("ack", "retry", "fail", "heartbeat", "release"):
            assert getattr(job, verb)() is False

    def test_Q7_verbs_of_queue_and_job_are_the_same(self, store: Any) -> None:
        """queue.verb(job) is job.verb(), through any handle of that queue."""
        queue, again = store.queue("q"), store.queue("q")
        for verb in ("ack", "retry", "fail", "release"):
            queue.enqueue(1)
            job = queue.claim_one("w")
            assert again.heartbeat(job) is True
            assert getattr(again, verb)(job) is True
            assert getattr(again, verb)(job) is False
            queue.purge("pending")

    # -- Q8 ------------------------------------------------------------------------------------------------------------

    def test_Q8_backoff_has_equal_jitter(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """Base 2: attempts 1, 2, 3 wait [1,2], [2,4], [4,8] seconds, not always the same."""
        queue = opener(clock=clock, rng=random.Random(3)).queue("q", backoff_base=2, max_attempts=4)
        for attempt, (low, high) in enumerate(((1, 2), (2, 4), (4, 8)), start=1):
            delays = set()
            for _ in range(20):
                id = queue.enqueue(1)
                for _ in range(attempt - 1):
                    assert queue.claim_one("w").retry(delay=-1)
                assert queue.claim_one("w").retry("x")
                delays.add(round(queue.get_job(id).run_at - clock.now(), 6))
                assert queue.cancel(id)
            assert low <= min(delays)
            assert max(delays) <= high
            assert len(delays) > 10

    def test_Q8_backoff_is_total(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """Any number of attempts and a base of 0 or many hours: never an overflow, never beyond an hour."""
        store = opener(clock=clock)
        long = store.queue("long", backoff_base=10**9, max_attempts=2**31 - 1)
        id = long.enqueue(1)
        for _ in range(70):
            job = long.claim_one("w")
            assert job.retry()
            assert 1_800 <= long.get_job(id).run_at - clock.now() <= 3_600
            clock.advance(3_601)
        zero = store.queue("zero", backoff_base=0)
        id = zero.enqueue(1)
        assert zero.claim_one("w").retry()
        assert zero.get_job(id).run_at == clock.now()

    def test_Q8_the_random_source_is_the_stores(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """A source that gives 0 gives the shortest delay, one near 1 the longest."""

        class Fixed:
            def __init__(self, value: float) -> None:
                self.value = value

            def random(self) -> float:
                return self.value

        rng = Fixed(0.0)
        queue = opener(clock=clock, rng=rng).queue("q", backoff_base=2)
        for value, delay in ((0.0, 1.0), (0.5, 1.5)):
            rng.value = value
            id = queue.enqueue(1)
            assert queue.claim_one("w").retry()
            assert queue.get_job(id).run_at == clock.now() + delay
            assert queue.cancel(id)

    def test_Q8_a_given_delay_is_taken_verbatim(self, queue: Any, clock: ManualClock) -> None:
        """0 is ready now, negative is ready by that earlier instant."""
        for delay in (0, -30, 0.25, 10**9):
            id = queue.enqueue(1)
            assert queue.claim_one("w").retry(delay=delay)
            assert queue.get_job(id).run_at == clock.now() + delay
            assert queue.cancel(id)

    # -- Q9 ------------------------------------------------------------------------------------------------------------

    def test_Q9_ack_batch_counts_the_valid_once(self, queue: Any, clock: ManualClock) -> None:
        """Jobs and ids mixed; duplicates, unknown, lapsed and other workers' are passed over."""
        queue.enqueue_many(list(range(6)))
        mine = queue.claim_batch("me", 3)
        short = queue.claim_one("me", visibility=1)
        theirs = queue.claim_one("you")
        waiting = queue.peek(1)[0].id
        step(clock, 1_000_001)
        batch = [mine[0], mine[0].id, mine[1].id, mine[1].id, short, short.id, theirs, theirs.id, waiting, 10**9, -1]
        assert queue.ack_batch(batch, "me") == 2
        assert theirs.ack()
        assert mine[2].ack()
        assert queue.stats().pending == 1

    def test_Q9_bare_ids_are_judged_by_worker_and_deadline(self, queue: Any, clock: ManualClock) -> None:
        """An id carries no token: the worker's newer claim of that job is acked."""
        id = queue.enqueue(1)
        queue.claim_one("w", visibility=1)
        clock.advance(2)
        assert queue.ack_batch([id], "w") == 0
        queue.claim_one("w")
        assert queue.ack_batch([id], "v") == 0
        assert queue.ack_batch([id], "w") == 1
        assert queue.get_job(id) is None

    # -- Q10 -----------------------------------------------------------------------------------------------------------

    def test_Q10_cancel_deletes_pending_and_processing(self, queue: Any) -> None:
        """Whoever holds it; the holder's next operation returns False and nothing revives it (case 021)."""
        pending, held = queue.enqueue(1), queue.enqueue(2, priority=1)
        job = queue.claim_one("w")
        assert queue.cancel(pending) is True
        assert queue.cancel(held) is True
        assert queue.cancel(held) is False
        for verb in ("retry", "ack", "fail", "heartbeat", "release"):
            assert getattr(job, verb)() is False
        assert queue.get_job(held) is None
        assert queue.claim_one("w") is None

    def test_Q10_dead_done_and_unknown_are_not_cancelled(self, store: Any) -> None:
        """False, no exception, no effect."""
        queue = store.queue("q", keep_done=60)
        dead, done = queue.enqueue(1), queue.enqueue(2)
        assert queue.claim_one("w").fail()
        assert queue.claim_one("w").ack()
        for id in (dead, done, 10**12, 0, -5, 2**70):
            assert queue.cancel(id) is False
        assert queue.get_job(dead).state == "dead"
        assert queue.get_job(done).state == "done"

    @pytest.mark.parametrize("rival", ["ack", "retry", "fail"])
    def test_Q10_cancel_against_the_holder_has_one_winner(self, queue: Any, rival: str) -> None:
        """In each race exactly one side is True (case 021); retry loses its job to a later cancel at most."""
        for _ in range(40):
            id = queue.enqueue(1)
            job = queue.claim_one("w")
            cancelling = Started(queue.cancel, id)
            settled = getattr(job, rival)()
            cancelled = cancelling.result()
            state = queue.get_job(id)
            if rival == "retry":
                assert cancelled
                assert state is None
            else:
                assert settled is not cancelled
                assert (state is None) is (cancelled or rival == "ack")

    # -- Q12 -----------------------------------------------------------------------------------------------------------

    def test_Q12_sweep_buries_every_expired_job_of_this_queue(self, store: Any, clock: ManualClock) -> None:
        """Pending, delayed, lapsed and validly held ones; another queue's stay."""
        queue, other = store.queue("q"), store.queue("other")
        other_id = other.enqueue(1, expires=10)
        held = queue.enqueue("held", expires=10, priority=9)
        job = queue.claim_one("w", visibility=100)
        ids = [held, queue.enqueue("pending", expires=10), queue.enqueue("delayed", expires=10, delay=60)]
        alive = queue.enqueue("alive", expires=11)
        step(clock, 9_999_999)
        assert queue.sweep_expired() == 0
        assert job.heartbeat()
        step(clock, 1)
        assert job.heartbeat()
        assert queue.claim_one("w").id == alive
        assert queue.sweep_expired() == 3
        assert queue.sweep_expired() == 0
        assert not job.ack()
        assert [letter.id for letter in queue.dead_letters()] == ids
        for letter in queue.dead_letters():
            assert (letter.reason, letter.last_error, letter.died_at) == ("expired", "expired", clock.now())
        assert other.get_job(other_id).state == "pending"

    def test_Q12_sweep_deletes_letters_whose_retention_is_over(self, store: Any, clock: ManualClock) -> None:
        """At died_at + retention, by each job's own stamp."""
        short = store.queue("q", dead_letter_retention=10)
        ever = store.queue("q")
        for queue in (short, ever):
            queue.enqueue(1)
            assert queue.claim_one("w").fail()
        step(clock, 9_999_999)
        short.sweep_expired()
        assert short.stats().dead == 2
        step(clock, 1)
        assert ever.sweep_expired() == 0
        assert ever.stats().dead == 1

    def test_Q12_a_race_of_ack_and_sweep_has_one_end(self, queue: Any, clock: ManualClock) -> None:
        """ack True means never in the dead letters, False means there once (case 011)."""
        for _ in range(40):
            id = queue.enqueue(1, expires=1)
            job = queue.claim_one("w")
            clock.advance(1)
            sweeping = Started(queue.sweep_expired)
            acked = job.ack()
            swept = sweeping.result()
            assert acked is (swept == 0)
            record = queue.get_job(id)
            assert record is None if acked else record.state == "dead"
