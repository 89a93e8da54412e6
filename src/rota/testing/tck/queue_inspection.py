"""Q11, Q14: looking at jobs, counting, purging, suspending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite, payloads, step


class QueueInspection(Suite):
    """Inspection and control of a queue (Q11, Q14)."""

    # -- Q11 -----------------------------------------------------------------------------------------------------------

    def test_Q11_get_job_shows_every_state(self, store: Any, clock: ManualClock) -> None:
        """pending, processing, done and dead, all values resolved; None for unknown ones."""
        queue = store.queue("q", keep_done=60)
        pending = queue.enqueue("p", delay=9)
        done, dead, held = queue.enqueue("o"), queue.enqueue("d"), queue.enqueue("h")
        assert queue.claim_one("w").ack("result")
        assert queue.claim_one("w").fail("broken")
        queue.claim_one("w")
        states = {id: queue.get_job(id).state for id in (pending, held, done, dead)}
        assert states == {pending: "pending", held: "processing", done: "done", dead: "dead"}
        record = queue.get_job(dead)
        assert (record.last_error, record.died_at, record.payload) == ("broken", clock.now(), "d")
        assert (record.max_attempts, record.visibility, record.keep_done) == (3, 300.0, 60.0)
        for unknown in (10**9, 0, -1, 2**70):
            assert queue.get_job(unknown) is None
        assert not hasattr(record, "token")

    def test_Q11_a_lapsed_claim_is_shown_until_someone_claims(self, queue: Any, clock: ManualClock) -> None:
        """The public state stays processing, with worker and deadline."""
        id = queue.enqueue(1)
        job = queue.claim_one("w", visibility=1)
        clock.advance(10)
        other = queue.enqueue("x", priority=5)
        assert queue.claim_one("v").id == other
        record = queue.get_job(id)
        assert (record.state, record.worker_id, record.claim_expires_at) == ("processing", "w", job.claim_expires_at)
        stats = queue.stats()
        assert (stats.pending, stats.processing) == (0, 2)
        assert [each.id for each in queue.jobs("processing")] == [id, other]

    # -- Q14 -----------------------------------------------------------------------------------------------------------

    def test_Q14_peek_shows_what_a_claim_would_hand_out(self, queue: Any, clock: ManualClock) -> None:
        """In its order, claiming nothing, skipping delayed, held and expired ones."""
        queue.enqueue("delayed", delay=5)
        queue.enqueue("expired", expires=0)
        queue.enqueue("held", priority=9)
        queue.claim_one("w", visibility=10)
        queue.enqueue("b")
        queue.enqueue("a", priority=1)
        assert [record.payload for record in queue.peek(10)] == ["a", "b"]
        assert [record.payload for record in queue.peek(1)] == ["a"]
        step(clock, 10_000_001)
        assert [record.payload for record in queue.peek(10)] == ["held", "a", "b", "delayed"]
        assert [job.payload for job in queue.claim_batch("w", 10)] == ["held", "a", "b", "delayed"]

    def test_Q14_peek_leaves_out_used_up_jobs(self, queue: Any, clock: ManualClock) -> None:
        """A claim would bury them, not hand them out."""
        queue.enqueue(1, max_attempts=1)
        queue.claim_one("w", visibility=1)
        clock.advance(2)
        assert queue.peek(10) == []
        assert queue.stats().dead == 0

    def test_Q14_jobs_are_listed_by_state_and_page(self, store: Any) -> None:
        """Ascending ids, exclusive after, every state or one."""
        queue = store.queue("q", keep_done=60)
        ids = queue.enqueue_many(list(range(6)))
        first, second, third = queue.claim_batch("w", 3)
        assert first.ack()
        assert second.fail()
        assert [record.id for record in queue.jobs()] == ids
        assert [record.id for record in queue.jobs("done")] == [ids[0]]
        assert [record.id for record in queue.jobs("dead")] == [ids[1]]
        assert [record.id for record in queue.jobs("processing")] == [third.id]
        assert [record.id for record in queue.jobs("pending", 2)] == ids[3:5]
        assert [record.id for record in queue.jobs("pending", 2, ids[4])] == ids[5:]
        assert [record.id for record in queue.jobs(limit=2, after=ids[0])] == ids[1:3]
        assert queue.jobs(limit=0) == []
        with pytest.raises(ValueError, match="state"):
            queue.jobs("lost")

    @pytest.mark.parametrize("state", ["pending", "processing", "done", "dead"])
    def test_Q14_purge_deletes_one_state(self, store: Any, state: str) -> None:
        """Only that state; holders of purged jobs get False."""
        queue = store.queue("q", keep_done=60)
        queue.enqueue_many(list(range(8)))
        jobs = queue.claim_batch("w", 6)
        for number, job in enumerate(jobs[:4]):
            assert job.ack() if number % 2 else job.fail()
        counts = dict.fromkeys(("pending", "processing", "done", "dead"), 2)
        assert queue.purge(state) == 2
        assert queue.purge(state) == 0
        stats = queue.stats()
        assert {name: getattr(stats, name) for name in counts} == counts | {state: 0}
        assert jobs[4].ack() is (state != "processing")
        if state == "dead":
            assert queue.dead_letters() == []

    def test_Q14_stats_count(self, queue: Any, clock: ManualClock) -> None:
        """By state; the oldest ready age; the next instant something becomes claimable by time alone."""
        empty = queue.stats()
        assert (empty.pending, empty.oldest_ready_age, empty.next_due_at, empty.suspended) == (0, None, None, False)
        queue.enqueue("ready", delay=-3)
        queue.enqueue("later", delay=60)
        queue.enqueue("held", priority=1)
        job = queue.claim_one("w", visibility=20)
        stats = queue.stats()
        assert (stats.pending, stats.processing, stats.done, stats.dead, stats.capped) == (2, 1, 0, 0, ())
        assert stats.oldest_ready_age == 3.0
        assert stats.next_due_at == job.claim_expires_at + 0.000001
        assert job.ack()
        assert queue.stats().next_due_at == clock.now() + 60

    def test_Q14_the_oldest_ready_age_of_a_lapsed_job_counts_from_its_deadline(
        self, queue: Any, clock: ManualClock
    ) -> None:
        """It became ready when its claim ran out."""
        queue.enqueue(1, delay=-100)
        queue.claim_one("w", visibility=10)
        assert queue.stats().oldest_ready_age is None
        clock.advance(25)
        assert queue.stats().oldest_ready_age == 15.0

    def test_Q14_stats_are_marked_when_capped(self, queue: Any) -> None:
        """Beyond 10,000 a count is given as 10,000 and named."""
        queue.enqueue_many([0] * 10_000)
        assert (queue.stats().pending, queue.stats().capped) == (10_000, ())
        queue.enqueue(1)
        assert (queue.stats().pending, queue.stats().capped) == (10_000, ("pending",))

    def test_Q14_explain_names_the_first_obstacle(self, store: Any, clock: ManualClock) -> None:
        """Why a job is not claimable now, and since when."""
        queue = store.queue("q", keep_done=60)
        start = clock.now()
        ready, delayed = queue.enqueue(1), queue.enqueue(2, delay=50)
        expired = queue.enqueue(3, expires=1)
        clock.advance(1)
        assert (queue.explain(ready).claimable, queue.explain(ready).since) == (True, start)
        why = queue.explain(delayed)
        assert (why.claimable, why.reason, why.since, why.until) == (False, "delayed", start, start + 50)
        assert (queue.explain(expired).reason, queue.explain(expired).since) == ("expired", start + 1)
        job = queue.claim_one("w-1", visibility=10)
        held = queue.explain(ready)
        assert (held.reason, held.until, held.worker_id) == ("processing", job.claim_expires_at, "w-1")
        step(clock, 10_000_001)
        assert queue.explain(ready).claimable is True
        queue.suspend()
        assert queue.explain(ready).reason == "queue suspended"
        queue.resume()
        assert queue.claim_one("w").ack()
        assert queue.explain(ready).reason == "done"
        clock.advance(50)
        assert queue.claim_one("w").fail()
        assert queue.explain(delayed).reason == "dead"
        assert queue.explain(10**9).reason == "unknown"

    def test_Q14_a_suspended_queue_hands_out_nothing(self, queue: Any, clock: ManualClock) -> None:
        """Claims come back empty and bury nothing; holders go on; resume lifts it."""
        queue.enqueue("used up", max_attempts=1, priority=9)
        queue.enqueue("held", priority=5)
        queue.claim_one("w", visibility=1)
        job = queue.claim_one("w")
        assert queue.suspend() is True
        assert queue.suspend() is False
        queue.enqueue("new")
        clock.advance(2)
        assert queue.claim_one("w") is None
        stats = queue.stats()
        assert (stats.suspended, stats.dead, stats.next_due_at) == (True, 0, None)
        assert job.heartbeat()
        assert job.ack()
        assert queue.resume() is True
        assert queue.resume() is False
        assert payloads(queue) == ["new"]
        assert queue.stats().dead == 1

    def test_Q14_everything_survives_reopening(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """Where the engine is durable: jobs, claims, letters, keys, done records and suspensions are there again."""
        first = opener(clock=clock)
        queue = first.queue("q", keep_done=600)
        ids = queue.enqueue_many(["a", "b", "c", "d"])
        keyed = queue.enqueue("keyed", key="k", delay=5, headers={"h": "v"})
        jobs = queue.claim_batch("w", 3)
        assert jobs[0].ack({"r": 1})
        assert jobs[1].fail("broken")
        queue.suspend()
        first.close()
        again = opener(clock=clock).queue("q")
        if not self.durable:
            assert again.jobs() == []
            return
        assert [record.state for record in again.jobs()] == ["done", "dead", "processing", "pending", "pending"]
        assert again.get_job(ids[0]).result == {"r": 1}
        assert again.dead_letters()[0].last_error == "broken"
        assert again.get_job(ids[2]).worker_id == "w"
        assert again.get_job(keyed).headers == {"h": "v"}
        assert again.enqueue("other", key="k") == keyed
        assert again.claim_one("w") is None
        assert again.resume() is True
        job = again.claim_one("w")
        assert job.id == ids[3]
        assert job.token > max(each.token for each in jobs)
        assert again.enqueue("new") > keyed
