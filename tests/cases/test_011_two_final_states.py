"""A job reaches exactly one end when ack, sweep and reclaim collide.

Seen in riverqueue/river 1302, rails/solid_queue 589 and rq/rq 2424. Here every order of the verbs is run at every
boundary, one after the other; ``tests/race`` runs them at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import MICROSECOND

# Each says whether it ended the job, and how.
VERBS: dict[str, Callable[[Any, Any], str | None]] = {
    "ack": lambda queue, job: "gone" if job.ack() else None,
    "fail": lambda queue, job: "dead" if job.fail("failed it") else None,
    "retry": lambda queue, job: "dead" if job.retry("last try", 0) else None,
    "sweep": lambda queue, job: "dead" if queue.sweep_expired() else None,
    "cancel": lambda queue, job: "gone" if queue.cancel(job.id) else None,
    "claim": lambda queue, job: _claim(queue),
}
VISIBILITY = 10
MOMENTS = {"before": -MICROSECOND, "at": timedelta(0), "after": MICROSECOND}


def _claim(queue: Any) -> str | None:
    """Nothing is left to hand out: all a claim can do is bury the job."""
    letters = len(queue.dead_letters())
    assert queue.claim_one("other") is None
    return "dead" if len(queue.dead_letters()) > letters else None


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("expires", [None, VISIBILITY])
def test_every_order_gives_one_end(plain: Any, clock: ManualClock, moment: str, expires: float | None) -> None:
    """max_attempts=1: whoever comes first ends the job, all others are told that they did not."""
    for number, order in enumerate(itertools.permutations(VERBS, 3)):
        queue = plain.queue(f"q{number}", max_attempts=1)
        job_id = queue.enqueue(list(order), expires=expires)
        job = queue.claim_one("w", visibility=VISIBILITY)
        clock.set(job.claim_expires_at)
        clock.advance(MOMENTS[moment])
        ends = [end for end in (VERBS[verb](queue, job) for verb in order) if end is not None]
        letters = [letter.id for letter in queue.dead_letters()]
        record = queue.get_job(job_id)
        assert len(ends) <= 1, f"{order}: {ends}"
        if ends == ["dead"]:
            assert letters == [job_id], order
            assert record.state == "dead", order
        elif ends == ["gone"]:
            assert (letters, record) == ([], None), order
        else:
            assert (letters, record.state) == ([], "processing"), order
        assert not job.ack() or not ends, order


def test_the_last_valid_instant_belongs_to_the_holder(store: Any, clock: ManualClock) -> None:
    """At the deadline the claim finds nothing and the ack lands; a microsecond later it is the other way round."""
    queue = store.queue("q", max_attempts=1)
    for late in (False, True):
        job_id = queue.enqueue("work")
        job = queue.claim_one("w", visibility=1)
        clock.set(job.claim_expires_at)
        if late:
            clock.advance(MICROSECOND)
        assert queue.claim_one("other") is None
        assert job.ack() is not late
        record = queue.get_job(job_id)
        assert record.state == "dead" if late else record is None
    assert [letter.reason for letter in queue.dead_letters()] == ["max attempts exceeded"]


def test_sweep_ends_a_validly_held_job_once(store: Any, clock: ManualClock) -> None:
    """Expiry beats a valid claim: the holder's settlement then changes nothing, and the letter says why."""
    queue = store.queue("q", keep_done=60)
    job_id = queue.enqueue("work", expires=5)
    job = queue.claim_one("w")
    clock.advance(5)
    assert queue.sweep_expired() == 1
    assert queue.sweep_expired() == 0
    for verb in (job.ack, job.retry, job.fail, job.release, job.heartbeat):
        assert verb() is False
    (letter,) = queue.dead_letters()
    assert (letter.id, letter.reason) == (job_id, "expired")
    assert queue.stats().done == 0


def test_done_job_is_not_swept_cancelled_or_claimed(store: Any, clock: ManualClock) -> None:
    """A finished job that would have expired since stays finished."""
    queue = store.queue("q", keep_done=60)
    job_id = queue.enqueue("work", expires=5)
    assert queue.claim_one("w").ack({"sum": 3})
    clock.advance(10)
    assert queue.sweep_expired() == 0
    assert queue.claim_one("w") is None
    assert queue.cancel(job_id) is False
    record = queue.get_job(job_id)
    assert (record.state, record.result) == ("done", {"sum": 3})
    assert queue.dead_letters() == []
