"""max_attempts=m means exactly m deliveries, however they end.

Seen in oban-bg/oban 137, Bogdanp/dramatiq 213, contribsys/faktory 409 and russellromney/honker PR 65.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import step_past

MIXES = [mix for m in (1, 2, 3) for mix in itertools.product(("crash", "retry"), repeat=m)]


@pytest.mark.parametrize("released", [0, 2])
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_every_mix_of_crashes_and_retries_counts(
    store: Any, clock: ManualClock, mix: tuple[str, ...], released: int
) -> None:
    """Deliveries numbered 1…m, then one letter; jobs given back unworked in between are not counted."""
    queue = store.queue("q", max_attempts=len(mix))
    job_id = queue.enqueue("work")
    seen = []
    for end in mix:
        for _ in range(released):
            assert queue.claim_one("w", visibility=1).release()
        job = queue.claim_one("w", visibility=1)
        seen.append(job.attempts)
        if end == "retry":
            assert job.retry(f"error {job.attempts}", 0)
        else:
            step_past(clock, 1)
    assert seen == list(range(1, len(mix) + 1))
    assert queue.claim_one("w") is None
    (letter,) = queue.dead_letters()
    assert (letter.id, letter.attempts, letter.releases) == (job_id, len(mix), released * len(mix))
    if mix[-1] == "retry":
        assert letter.last_error == f"error {len(mix)}"
    else:
        assert letter.last_error == letter.reason == "max attempts exceeded"
        errors = [f"error {n}" for n, end in enumerate(mix, 1) if end == "retry"]
        assert letter.previous_error == (errors[-1] if errors else None)
    record = queue.get_job(job_id)
    assert (record.state, record.died_at, record.last_error) == ("dead", letter.died_at, letter.last_error)
    clock.advance(10_000)
    assert queue.claim_one("w") is None
    assert len(queue.dead_letters()) == 1


@pytest.mark.parametrize("m", [1, 2, 3])
def test_fail_ends_it_on_the_first(store: Any, m: int) -> None:
    """Whatever is left of the budget."""
    queue = store.queue("q", max_attempts=m)
    queue.enqueue("work")
    assert queue.claim_one("w").fail("no use")
    assert queue.claim_one("w") is None
    (letter,) = queue.dead_letters()
    assert (letter.attempts, letter.reason, letter.last_error) == (1, "failed", "no use")


@pytest.mark.parametrize("m", [1, 2, 3])
def test_redrive_gives_the_whole_budget_again(store: Any, clock: ManualClock, m: int) -> None:
    """And no more than that."""
    queue = store.queue("q", max_attempts=m)
    queue.enqueue("work")
    for _ in range(3):
        seen = []
        while (job := queue.claim_one("w", visibility=1)) is not None:
            seen.append(job.attempts)
            step_past(clock, 1)
        assert seen == list(range(1, m + 1))
        assert len(queue.redrive("all")) == 1


def exhausted_in_front(queue: Any, clock: ManualClock, count: int) -> list[int]:
    """So many jobs whose only attempt crashed, before five good ones; the ids of the good ones."""
    queue.enqueue_many(["bad"] * count)
    assert len(queue.claim_batch("w", count, visibility=1)) == count
    step_past(clock, 1)
    ids: list[int] = queue.enqueue_many(["good"] * 5)
    return ids


@pytest.mark.parametrize("count", [50, 2_500])
def test_exhausted_jobs_in_front_never_shorten_a_batch(store: Any, clock: ManualClock, count: int) -> None:
    """The good ones come in that same call, also behind more than one call cleans away."""
    queue = store.queue("q", max_attempts=1)
    good = exhausted_in_front(queue, clock, count)
    assert [job.id for job in queue.claim_batch("w", 5)] == good
    for _ in range(5):
        assert queue.claim_batch("w", 5) == []
    letters = queue.dead_letters(limit=10_000)
    assert len(letters) == count
    assert {letter.reason for letter in letters} == {"max attempts exceeded"}


def test_exhausted_jobs_wake_nobody(store: Any, clock: ManualClock) -> None:
    """Once they are dead nothing is due, so nobody polls for them."""
    queue = store.queue("q", max_attempts=1)
    exhausted_in_front(queue, clock, 50)
    for job in queue.claim_batch("w", 100):
        assert job.ack()
    stats = queue.stats()
    assert (stats.pending, stats.processing, stats.dead, stats.next_due_at) == (0, 0, 50, None)
    assert stats.oldest_ready_age is None


def test_waiting_claim_over_exhausted_jobs_ends_with_its_wait(opener: Any) -> None:
    """They neither return it early nor keep it from the end of its wait."""
    clock = ManualClock(autojump=True)
    queue = opener(clock=clock).queue("q", max_attempts=1)
    queue.enqueue_many(["bad"] * 10)
    queue.claim_batch("w", 10, visibility=5)
    begin = clock.now()
    assert queue.claim_batch("w", 5, wait=60) == []
    assert clock.now() == begin + 60
    assert queue.stats().dead == 10


MESSAGE_ENDS = ("crash", "nack", "park", "retry")


@pytest.mark.parametrize("mix", list(itertools.product(MESSAGE_ENDS, repeat=2)), ids="-".join)
def test_max_deliveries_is_exact_too(store: Any, clock: ManualClock, mix: tuple[str, ...]) -> None:
    """The same rule in a transport: released deliveries are not counted, all others are."""
    transport = store.transport("t", max_deliveries=len(mix))
    transport.publish_many([("g", "bad"), ("g", "good")])
    seen = []
    for end in mix:
        assert transport.claim("w", visibility=1).release()
        lease = transport.claim("w", visibility=1)
        seen.append((lease.event, lease.deliveries))
        if end == "nack":
            assert lease.nack(error="no")
        elif end == "park":
            assert lease.nack(3)
        elif end == "retry":
            assert lease.retry("no")
        step_past(clock, 60)
    assert seen == [("bad", n) for n in range(1, len(mix) + 1)]
    lease = transport.claim("w")
    assert (lease.event, lease.deliveries) == ("good", 1)
    (letter,) = transport.dead_letters()
    assert (letter.event, letter.deliveries, letter.reason) == ("bad", len(mix), "max deliveries exceeded")
