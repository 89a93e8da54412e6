"""Q1-Q6, Q13: stamping, ready time, claimability, order, reclaim, validity, exactly-once hand-out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota import Item
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Started, Suite, payloads, step


class QueueClaims(Suite):
    """What is handed out, when, to whom (Q1-Q6, Q13)."""

    # -- Q1 ------------------------------------------------------------------------------------------------------------

    def test_Q1_a_plain_job_has_the_default_stamp(self, queue: Any, clock: ManualClock) -> None:
        """300 s, 3 attempts, 5 s backoff, letters for ever, nothing kept of done jobs."""
        record = queue.get_job(queue.enqueue({"a": 1}))
        assert (record.visibility, record.max_attempts, record.backoff_base) == (300.0, 3, 5.0)
        assert (record.dead_letter_retention, record.keep_done) == (None, 0.0)
        assert (record.state, record.attempts, record.releases) == ("pending", 0, 0)
        assert record.enqueued_at == record.run_at == clock.now()
        assert (record.payload, record.headers, record.priority) == ({"a": 1}, {}, 0)
        assert (record.worker_id, record.claimed_at, record.expires_at, record.key) == (None, None, None, None)
        assert (record.queue, record.name, record.last_error) == ("q", None, None)

    def test_Q1_handle_options_are_overridden_by_the_calls(self, store: Any) -> None:
        """The call's options win over the handle's."""
        queue = store.queue("q", visibility=10, max_attempts=5, backoff_base=1, dead_letter_retention=7, keep_done=8)
        plain = queue.get_job(queue.enqueue(1))
        assert (plain.visibility, plain.max_attempts, plain.backoff_base) == (10.0, 5, 1.0)
        assert (plain.dead_letter_retention, plain.keep_done) == (7.0, 8.0)
        own = queue.get_job(queue.enqueue(1, visibility=20, max_attempts=1))
        assert (own.visibility, own.max_attempts, own.backoff_base) == (20.0, 1, 1.0)

    def test_Q1_the_stamp_rules_whichever_handle_claims(self, store: Any, clock: ManualClock) -> None:
        """Options of the claiming handle mean nothing for jobs enqueued through another."""
        maker = store.queue("q", visibility=7, max_attempts=1, keep_done=60)
        taker = store.queue("q", visibility=99, max_attempts=9)
        id = maker.enqueue(1)
        job = taker.claim_one("w")
        assert (job.max_attempts, job.claim_expires_at) == (1, clock.now() + 7)
        assert job.ack()
        assert taker.get_job(id).state == "done"

    def test_Q1_items_carry_the_same_options(self, queue: Any, clock: ManualClock) -> None:
        """enqueue_many takes payloads and Items with any option of enqueue."""
        ids = queue.enqueue_many(
            [
                "plain",
                Item(
                    "named", name="n", delay=5, priority=2, expires=60, max_attempts=1, visibility=9, headers={"h": "v"}
                ),
                Item("at", run_at=clock.now() - 3),
            ]
        )
        plain, named, at = (queue.get_job(id) for id in ids)
        assert ids == sorted(set(ids))
        assert (plain.payload, plain.name) == ("plain", None)
        assert (named.name, named.priority) == ("n", 2)
        assert (named.run_at, named.expires_at) == (clock.now() + 5, clock.now() + 60)
        assert (named.max_attempts, named.visibility, named.headers) == (1, 9.0, {"h": "v"})
        assert at.run_at == clock.now() - 3

    def test_Q1_enqueue_many_is_all_or_nothing(self, queue: Any) -> None:
        """One bad item and nothing is stored."""
        with pytest.raises(ValueError, match="priority"):
            queue.enqueue_many([1, Item(2, priority=2**40), 3])
        assert queue.stats().pending == 0

    def test_Q1_ids_increase_over_all_queues_and_are_never_reused(self, store: Any) -> None:
        """The id is unique in the store, also after the job is gone."""
        one, two = store.queue("one"), store.queue("two")
        ids = []
        for queue in (one, two, one, two):
            ids.append(queue.enqueue(1))
            assert queue.claim_one("w").ack()
        ids += two.enqueue_many([1, 2])
        assert ids == sorted(set(ids))

    def test_Q1_queues_do_not_share(self, store: Any) -> None:
        """A job is seen and claimed in its own queue alone."""
        one, two = store.queue("one"), store.queue("two")
        id = one.enqueue(1)
        assert two.claim_one("w") is None
        assert two.get_job(id) is None
        assert two.cancel(id) is False
        assert one.claim_one("w").id == id

    # -- Q2 ------------------------------------------------------------------------------------------------------------

    def test_Q2_delay_wins_over_run_at(self, queue: Any, clock: ManualClock) -> None:
        """delay, else run_at literally, else now."""
        now = clock.now()
        assert queue.get_job(queue.enqueue(1, delay=5, run_at=now + 100)).run_at == now + 5
        assert queue.get_job(queue.enqueue(1, run_at=now + 100)).run_at == now + 100
        assert queue.get_job(queue.enqueue(1)).run_at == now

    def test_Q2_the_past_is_ready_and_ordered_by_its_instant(self, queue: Any, clock: ManualClock) -> None:
        """A negative delay or past run_at is legal and goes before what became ready later."""
        queue.enqueue("now")
        queue.enqueue("minus 5", delay=-5)
        queue.enqueue("minus 60", run_at=clock.now() - 60)
        assert payloads(queue) == ["minus 60", "minus 5", "now"]

    def test_Q2_expires_is_relative_and_may_be_over(self, queue: Any, clock: ManualClock) -> None:
        """expires counts from now; zero or less is born expired."""
        assert queue.get_job(queue.enqueue(1, expires=10)).expires_at == clock.now() + 10
        for over in (0, -1):
            assert queue.get_job(queue.enqueue(1, expires=over)).state == "pending"
        assert len(queue.claim_batch("w", 5)) == 1

    # -- Q3 ------------------------------------------------------------------------------------------------------------

    def test_Q3_expiry_ends_at_its_own_instant(self, queue: Any, clock: ManualClock) -> None:
        """Claimable one microsecond before expires_at, not at it."""
        queue.enqueue("a", expires=10)
        queue.enqueue("b", expires=10)
        step(clock, 9_999_999)
        assert queue.claim_one("w").payload == "a"
        step(clock, 1)
        assert queue.claim_one("w") is None

    def test_Q3_a_lapsed_claim_of_an_expired_job_is_not_handed_out(self, queue: Any, clock: ManualClock) -> None:
        """Expiry wins over a lapse, and a claim does not bury it for its attempts either."""
        id = queue.enqueue("a", expires=10, max_attempts=1)
        queue.claim_one("w", visibility=5)
        clock.advance(10)
        assert queue.claim_one("w") is None
        assert queue.stats().dead == 0
        assert queue.sweep_expired() == 1
        assert queue.get_job(id).last_error == "expired"

    # -- Q4 ------------------------------------------------------------------------------------------------------------

    def test_Q4_order_is_priority_then_ready_time_then_id(self, queue: Any) -> None:
        """Priority descending, ready time ascending, id ascending; the returned list too."""
        queue.enqueue("d", priority=0)
        queue.enqueue("c", priority=0, delay=-1)
        queue.enqueue("e", priority=0)
        queue.enqueue("a", priority=5)
        queue.enqueue("f", priority=-1, delay=-99)
        queue.enqueue("b", priority=1)
        assert [job.payload for job in queue.claim_batch("w", 4)] == ["a", "b", "c", "d"]
        assert payloads(queue) == ["e", "f"]

    def test_Q4_a_claim_fills_the_job(self, queue: Any, clock: ManualClock) -> None:
        """processing, one attempt more, by this worker, until now + visibility; every field of the handle."""
        id = queue.enqueue({"n": 1}, name="mail", priority=3, visibility=20, expires=500, headers={"h": "v"})
        enqueued = clock.now()
        clock.advance(4)
        job = queue.claim_one("w-1")
        assert (job.id, job.queue, job.name, job.payload) == (id, "q", "mail", {"n": 1})
        assert (job.headers, job.priority, job.attempts, job.max_attempts) == ({"h": "v"}, 3, 1, 3)
        assert (job.run_at, job.enqueued_at, job.expires_at) == (enqueued, enqueued, enqueued + 500)
        assert (job.worker_id, job.claimed_at, job.claim_expires_at) == ("w-1", clock.now(), clock.now() + 20)
        assert (job.releases, job.last_error) == (0, None)
        record = queue.get_job(id)
        assert (record.state, record.attempts, record.worker_id) == ("processing", 1, "w-1")
        assert (record.claimed_at, record.claim_expires_at) == (job.claimed_at, job.claim_expires_at)

    def test_Q4_the_claims_visibility_wins_over_the_stamped(self, queue: Any, clock: ManualClock) -> None:
        """visibility= rules this claim, the stamp the next."""
        queue.enqueue(1, visibility=20)
        job = queue.claim_one("w", visibility=3)
        assert job.claim_expires_at == clock.now() + 3
        assert job.release()
        assert queue.claim_one("w").claim_expires_at == clock.now() + 20

    def test_Q4_an_empty_worker_id_is_refused(self, store: Any) -> None:
        """ValueError before any effect, in queue and transport; None makes one."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        claims: list[Callable[[], Any]] = [
            lambda: queue.claim_one(""),
            lambda: queue.claim_batch("", 1),
            lambda: transport.claim(""),
            lambda: transport.claim_batch("", 1),
            lambda: queue.ack_batch([1], ""),
        ]
        for claim in claims:
            with pytest.raises(ValueError, match="worker_id"):
                claim()
        assert queue.claim_one().attempts == 1
        assert transport.claim().deliveries == 1

    def test_Q4_used_up_jobs_are_buried_by_the_claim(self, queue: Any, clock: ManualClock) -> None:
        """The claim dead-letters lapsed jobs without attempts left and still comes back full (case 012)."""
        queue.enqueue_many([Item(number, max_attempts=1, priority=1) for number in range(50)])
        queue.claim_batch("w", 50, visibility=1)
        queue.enqueue_many(list("abcde"))
        step(clock, 1_000_001)
        assert [job.payload for job in queue.claim_batch("w", 5)] == list("abcde")
        letters = queue.dead_letters()
        assert len(letters) == 50
        assert {letter.reason for letter in letters} == {"max attempts exceeded"}
        assert queue.stats().next_due_at == clock.now() + 300.000001

    def test_Q4_a_claim_buries_nothing_of_other_queues(self, store: Any, clock: ManualClock) -> None:
        """Only the claimed queue's used-up jobs."""
        one, two = store.queue("one"), store.queue("two")
        one.enqueue(1, max_attempts=1)
        one.claim_one("w", visibility=1)
        clock.advance(2)
        assert two.claim_one("w") is None
        assert one.stats().dead == 0

    # -- Q5 ------------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("attempts", [1, 2, 3])
    @pytest.mark.parametrize("way", ["lapse", "retry", "mixed"])
    def test_Q5_max_attempts_means_exactly_that_many_deliveries(
        self, queue: Any, clock: ManualClock, attempts: int, way: str
    ) -> None:
        """By crash, by retry or by a mix: m deliveries numbered 1 to m, then one dead letter (case 012)."""
        id = queue.enqueue("j", max_attempts=attempts)
        numbers = []
        while (job := queue.claim_one("w", visibility=1)) is not None:
            numbers.append(job.attempts)
            if way == "retry" or (way == "mixed" and len(numbers) % 2):
                assert job.retry("again", delay=0)
            else:
                clock.advance(2)
        assert numbers == list(range(1, attempts + 1))
        letters = queue.dead_letters()
        assert [letter.id for letter in letters] == [id]
        assert letters[0].reason == "max attempts exceeded"
        if way == "retry":
            assert letters[0].last_error == "again"
        assert queue.stats().next_due_at is None

    def test_Q5_a_release_gives_the_attempt_back(self, queue: Any) -> None:
        """Released attempts are not used up."""
        queue.enqueue("j", max_attempts=1)
        for releases in range(4):
            job = queue.claim_one("w")
            assert (job.attempts, job.releases) == (1, releases)
            assert job.release()

    def test_Q5_a_lapsed_job_keeps_its_place(self, queue: Any, clock: ManualClock) -> None:
        """It is ordered by its old ready time."""
        queue.enqueue("first")
        step(clock, 1)
        queue.enqueue("second")
        assert queue.claim_one("w", visibility=1).payload == "first"
        clock.advance(2)
        assert payloads(queue) == ["first", "second"]

    # -- Q6 ------------------------------------------------------------------------------------------------------------

    def test_Q6_at_its_end_the_claim_is_still_valid(self, queue: Any, clock: ManualClock) -> None:
        """At claim_expires_at nobody else gets it and the holder may act."""
        queue.enqueue(1, visibility=10)
        job = queue.claim_one("w")
        step(clock, 10_000_000)
        assert queue.claim_one("v") is None
        assert job.ack()

    @pytest.mark.parametrize("verb", ["ack", "retry", "fail", "heartbeat", "release"])
    def test_Q6_one_microsecond_later_it_is_not(self, queue: Any, clock: ManualClock, verb: str) -> None:
        """Every operation returns False and changes nothing, though nobody took the job yet."""
        id = queue.enqueue(1, visibility=10)
        job = queue.claim_one("w")
        step(clock, 10_000_001)
        before = queue.get_job(id)
        assert getattr(job, verb)() is False
        assert queue.get_job(id) == before
        assert queue.claim_one("v").attempts == 2

    @pytest.mark.parametrize("verb", ["ack", "retry", "fail", "heartbeat", "release"])
    def test_Q6_the_token_tells_claims_of_one_worker_apart(self, queue: Any, clock: ManualClock, verb: str) -> None:
        """An older claim by the same worker id is another claim (case 009)."""
        queue.enqueue(1)
        old = queue.claim_one("pod-0", visibility=1)
        clock.advance(1.2)
        new = queue.claim_one("pod-0")
        assert new.token > old.token
        assert getattr(old, verb)() is False
        assert queue.ack_batch([old], "pod-0") == 0
        assert new.heartbeat() is True
        assert new.ack() is True

    def test_Q6_a_token_is_not_reused_after_a_release(self, queue: Any) -> None:
        """A released claim is spent, though attempts, worker and job are the same again."""
        queue.enqueue(1)
        old = queue.claim_one("w")
        assert old.release()
        new = queue.claim_one("w")
        assert (new.attempts, new.worker_id) == (old.attempts, old.worker_id)
        assert not old.ack()
        assert not old.heartbeat()
        assert new.ack()

    def test_Q6_foreign_jobs_settle_nothing(self, store: Any) -> None:
        """A job of another queue changes nothing here."""
        one, two = store.queue("one"), store.queue("two")
        one.enqueue(1)
        two.enqueue(2)
        first, second = one.claim_one("w"), two.claim_one("w")
        for operation in (two.ack, two.retry, two.fail, two.release, two.heartbeat):
            assert operation(first) is False
        assert two.ack_batch([first], "w") == 0
        assert [job.id for job in two.heartbeat_batch([first, second])] == [first.id]
        assert first.ack()
        assert second.ack()

    # -- Q13 -----------------------------------------------------------------------------------------------------------

    def test_Q13_a_claimable_job_goes_to_one_of_many(self, store: Any) -> None:
        """Six threads with batches of their own: no job twice, none left."""
        queue = store.queue("q")
        ids = queue.enqueue_many(list(range(300)))

        def work(name: str) -> list[int]:
            mine: list[int] = []
            while jobs := queue.claim_batch(name, 7):
                mine += [job.id for job in jobs]
            return mine

        workers = [Started(work, f"w{number}") for number in range(6)]
        claimed = [id for worker in workers for id in worker.result(60)]
        assert sorted(claimed) == ids

    def test_Q13_two_stores_on_one_place_share_the_work(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """On a durable engine a second store sees the first one's claims."""
        first = opener(clock=clock).queue("q")
        id = first.enqueue(1)
        if not self.durable:
            assert first.claim_one("w").id == id
            return
        second = opener(clock=clock).queue("q")
        job = second.claim_one("v")
        assert job.id == id
        assert first.claim_one("w") is None
        assert first.get_job(id).worker_id == "v"
        assert job.ack()
