"""Claims, settlements, expiry and letters of the memory queue (Q1-Q15, D)."""

from __future__ import annotations

from rota.memory.queue import MemoryQueue
from rota.records import JobClaim

from .bench import Bench, job, stamp


def one(q: MemoryQueue, visibility: int | None = 10) -> JobClaim | None:
    claims = q.claim("w", 1, visibility)
    return claims[0] if claims else None


def test_q4_priority_then_ready_time_then_id(bench: Bench) -> None:
    q = bench.queue()
    ids = q.enqueue_many(
        [
            job(priority=0),
            job(priority=0, delay=-5),
            job(priority=9, run_at=bench.now),
            job(priority=9, run_at=bench.now - 1),
            job(priority=0, delay=1),
            job(priority=0),
        ]
    )
    expected = [ids[3], ids[2], ids[1], ids[0], ids[5]]
    assert [row.id for row in q.peek(9)] == expected
    assert [claim.id for claim in q.claim("w", 9, None)] == expected
    assert q.next_due() == bench.now + 1
    bench.now += 1
    assert one(q).id == ids[4]


def test_q6_boundaries_of_a_claim(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue(job())
    first = one(q, 10)
    bench.now += 10
    assert one(q) is None
    assert q.heartbeat([first], 10) == [bench.now + 10]
    bench.now += 11
    assert q.heartbeat([first], None) == [None]
    assert not q.ack(first, None)
    second = one(q, 10)
    assert second.attempts == 2
    assert second.token > first.token
    assert not q.ack(second._replace(worker_id="other"), None)
    assert q.ack(second, None)
    assert not q.ack(second, None)


def test_q7_heartbeat_is_an_absolute_reset_and_may_shorten(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue(job())
    claim = one(q, 100)
    assert q.heartbeat([claim], 5) == [bench.now + 5]
    assert q.next_due() == bench.now + 6
    assert q.heartbeat([claim], None) == [bench.now + 100]
    assert q.next_due() == bench.now + 101
    assert q.heartbeat([claim], 5) == [bench.now + 5]
    bench.now += 6
    assert one(q).attempts == 2


def test_q5_exhausted_in_front_never_shorten_a_batch_and_die_in_order(bench: Bench) -> None:
    q = bench.queue()
    ids = q.enqueue_many([job(stamp=stamp(max_attempts=1), priority=1)] * 50)
    q.claim("w", 25, 20)
    q.claim("w", 25, 10)
    good = q.enqueue_many([job()] * 5)
    bench.now += 21
    assert [row.id for row in q.peek(99)] == good
    assert q.get_job(ids[0]).state == "processing"
    assert [claim.id for claim in q.claim("w", 5, None)] == good
    letters = q.dead_letters(99, None)
    assert [letter.job.id for letter in letters] == ids[25:] + ids[:25]
    assert {letter.reason for letter in letters} == {"max attempts exceeded"}
    assert [letter.letter_id for letter in q.dead_letters(2, letters[3].letter_id)] == [
        letters[4].letter_id,
        letters[5].letter_id,
    ]


def test_retry_release_and_their_errors(bench: Bench) -> None:
    q = bench.queue()
    number = q.enqueue(job(stamp=stamp(max_attempts=2)))
    claim = one(q)
    assert q.release(claim, None)
    assert not q.retry(claim, "x", 0)
    assert q.retry(one(q), "first", 0)
    assert q.retry(one(q)._replace(), None, 0)
    row = q.get_job(number)
    assert (row.state, row.attempts, row.releases) == ("dead", 2, 1)
    assert (row.last_error, row.previous_error) == ("max attempts exceeded", "first")
    assert q.redrive(None) == [number]
    row = q.get_job(number)
    assert (row.state, row.attempts, row.worker_id, row.releases) == ("pending", 0, None, 1)


def test_expired_jobs_are_hidden_and_only_the_sweep_buries_them(bench: Bench) -> None:
    q = bench.queue()
    held, born, late, other = q.enqueue_many([job(expires=10, priority=1), job(expires=0), job(expires=10), job()])
    claim = one(q, 100)
    assert claim.id == held
    bench.now += 10
    assert [c.id for c in q.claim("w", 9, None)] == [other]
    assert q.get_job(late).state == "pending"
    assert q.explain(late).reason == "expired"
    assert q.heartbeat([claim], None) != [None]
    assert q.sweep_expired() == 3
    assert not q.ack(claim, None)
    assert [letter.job.id for letter in q.dead_letters(9, None)] == [born, held, late]
    assert {letter.reason for letter in q.dead_letters(9, None)} == {"expired"}


def test_an_expired_job_with_no_attempts_left_waits_for_the_sweep(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue(job(stamp=stamp(max_attempts=1), expires=5))
    one(q, 5)
    bench.now += 6
    assert one(q) is None
    assert q.dead_letters(9, None) == []
    assert q.sweep_expired() == 1
    assert q.dead_letters(9, None)[0].reason == "expired"


def test_keep_done_retention_and_keys_are_swept(bench: Bench) -> None:
    q = bench.queue()
    kept = q.enqueue(job(stamp=stamp(keep_done=10, key_ttl=10), key="k"))
    dead = q.enqueue(job(stamp=stamp(dead_letter_retention=10)))
    done, failed = q.claim("w", 2, None)
    assert q.ack(done, '"ok"')
    assert q.fail(failed, "no")
    row = q.get_job(kept)
    assert (row.state, row.result, row.done_at, row.worker_id) == ("done", '"ok"', bench.now, "w")
    assert not q.cancel(kept)
    assert not q.cancel(dead)
    assert [row.id for row in q.jobs(None, 9, None)] == [kept, dead]
    bench.now += 9
    assert q.sweep_expired() == 0
    assert q.stats().done == 1
    assert q.enqueue(job(key="k")) == kept
    bench.now += 1
    q.sweep_expired()
    assert q.jobs(None, 9, None) == []
    assert bench.engine.shared.items == 0
    assert q.enqueue(job(key="k")) > dead


def test_q9_q10_batches_and_cancel(bench: Bench) -> None:
    q = bench.queue()
    ids = q.enqueue_many([job()] * 6)
    claims = q.claim("w", 4, None)
    (foreign,) = q.claim("v", 1, None)
    assert q.cancel(ids[0])
    assert not q.cancel(ids[0])
    assert q.cancel(ids[5])
    batch = [claims[0], claims[1], claims[1], foreign]
    assert q.ack_batch(batch, [ids[2], ids[2], ids[4], 999], "w") == 2
    assert q.stats()[:4] == (0, 2, 0, 0)
    bench.now = foreign.claim_expires_at + 1
    assert q.ack_batch([], ids, "w") == 0


def test_purge_by_state(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue_many([job(), job(delay=9), job()])
    claim = one(q)
    assert q.purge("pending") == 2
    assert q.purge("processing") == 1
    assert not q.ack(claim, None)
    q.enqueue(job())
    q.fail(one(q), None)
    assert q.purge("dead") == 1
    assert q.purge("done") == 0
    assert q.stats()[:4] == (0, 0, 0, 0)


def test_suspended_queue_claims_nothing_and_has_no_other_effect(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue(job(stamp=stamp(max_attempts=1)))
    one(q, 1)
    bench.now += 5
    assert q.suspend()
    assert not q.suspend()
    assert one(q) is None
    assert q.dead_letters(9, None) == []
    assert q.next_due() is None
    assert q.resume()
    assert not q.resume()
    assert one(q) is None
    assert len(q.dead_letters(9, None)) == 1


def test_reading_verbs_make_no_queue(bench: Bench) -> None:
    q = bench.queue()
    assert q.stats().pending == 0
    assert q.get_job(1) is None
    assert q.peek(3) == []
    assert one(q) is None
    assert bench.engine.queues() == []
    q.enqueue(job())
    assert bench.engine.queues() == ["q"]


def test_stats_name_the_oldest_ready_instant(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue_many([job(priority=3, delay=-4), job(delay=-9, expires=0), job(delay=-2), job(delay=7)])
    assert q.stats().oldest_ready_at == bench.now - 4
    one(q, 5)
    assert q.stats().oldest_ready_at == bench.now - 2
    assert q.stats().next_due_at == bench.now + 6
    one(q, 500)
    bench.now += 6
    assert q.stats().oldest_ready_at == bench.now - 1
    assert q.stats().processing == 2


def test_c9_settling_after_a_job_was_found_lapsed_and_the_clock_went_back(bench: Bench) -> None:
    q = bench.queue()
    q.enqueue_many([job(), job()])
    a, b = q.claim("w", 2, 10)
    bench.now += 50
    assert [row.id for row in q.peek(9)] == [a.id, b.id]
    bench.now -= 50
    assert q.peek(9) == []
    assert q.retry(a, None, 30)
    assert q.next_due() == bench.now + 11
    assert q.heartbeat([b], 20) == [bench.now + 20]
    bench.now += 20
    assert one(q) is None
    bench.now += 1
    assert one(q).id == b.id
    bench.now += 9
    assert one(q).id == a.id
    assert one(q, 1) is None
