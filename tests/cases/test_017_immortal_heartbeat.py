"""A job whose outcome could not be recorded is not held for ever (rails/solid_queue 748).

Here the part that the contract of leases decides: beats end, so the lease does. What the worker does about a failed ack
is in ``test_038_blocked_writers``.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import MICROSECOND, step_past, tokens


def test_beats_that_end_let_the_lease_lapse(store: Any, clock: ManualClock) -> None:
    """Nothing renews a claim by itself: after the last beat it is over, the next delivery is counted."""
    queue = store.queue("q", visibility=2)
    queue.enqueue("work")
    job = queue.claim_one("w")
    for _ in range(10):
        clock.advance(1)
        assert job.heartbeat()
        assert queue.claim_one("other") is None
    clock.advance(2)
    assert queue.claim_one("other") is None
    clock.advance(MICROSECOND)
    again = queue.claim_one("other")
    assert (again.id, again.attempts) == (job.id, 2)
    assert not job.heartbeat()
    assert not job.ack()
    assert again.ack()


@pytest.mark.parametrize("taken", [False, True])
def test_late_beat_revives_nothing(store: Any, clock: ManualClock, taken: bool) -> None:
    """A beat after the deadline is refused even when nobody else took the job, alone or in a batch."""
    queue, transport = store.queue("q", visibility=2), store.transport("t")
    queue.enqueue("work")
    transport.publish("g", "A")
    job, lease = queue.claim_one("w"), transport.claim("w", visibility=2)
    step_past(clock, 2)
    if taken:
        assert queue.claim_one("other") is not None
        assert transport.claim("other") is not None
    assert not job.heartbeat()
    assert not job.heartbeat(1_000)
    assert tokens(queue.heartbeat_batch([job])) == [job.token]
    assert lease.extend(1_000) is None
    assert transport.extend_batch([lease], 5) == [None]
    assert (queue.claim_one("third") is None) is taken
    assert (transport.claim("third") is None) is taken


def test_crashed_attempts_are_counted_to_the_end(store: Any, clock: ManualClock) -> None:
    """A job that is beaten and never settled uses up its attempts like any other, then it is dead."""
    queue = store.queue("q", visibility=2, max_attempts=3)
    queue.enqueue("work")
    for attempt in (1, 2, 3):
        job = queue.claim_one("w")
        assert job.attempts == attempt
        clock.advance(1)
        assert job.heartbeat()
        step_past(clock, 2)
    assert queue.claim_one("w") is None
    assert [letter.reason for letter in queue.dead_letters()] == ["max attempts exceeded"]


def test_beating_does_not_outlive_the_expiry(store: Any, clock: ManualClock) -> None:
    """An expired job ends with the sweep although its worker beats on."""
    queue = store.queue("q", visibility=2)
    queue.enqueue("work", expires=5)
    job = queue.claim_one("w")
    for _ in range(5):
        clock.advance(1)
        assert job.heartbeat()
    assert queue.sweep_expired() == 1
    assert not job.heartbeat()


def test_one_stuck_job_holds_up_no_other(store: Any, clock: ManualClock) -> None:
    """While one job is beaten and beaten, others of its queue and of its group's transport go through."""
    queue, transport = store.queue("q", visibility=2), store.transport("t")
    queue.enqueue_many(["stuck", *range(20)])
    transport.publish_many([("stuck", 0), *((f"g{n}", n) for n in range(20))])
    job, lease = queue.claim_one("w"), transport.claim("w", visibility=2)
    for number in range(20):
        clock.advance(1)
        assert job.heartbeat()
        lease = lease.extend(2)
        other, another = queue.claim_one("w"), transport.claim("w", visibility=2)
        assert (other.payload, another.event) == (number, number)
        assert other.ack()
        assert another.ack()


def test_beat_may_shorten_and_counts_from_now(store: Any, clock: ManualClock) -> None:
    """An absolute reset: a worker that is about to end can let go early."""
    queue = store.queue("q", visibility=100)
    queue.enqueue("work")
    job = queue.claim_one("w")
    assert job.heartbeat(1)
    assert job.claim_expires_at == clock.now() + 1
    step_past(clock, 1)
    assert queue.claim_one("other").attempts == 2
