"""One bad job neither strands nor ages the rest of a claimed batch.

Seen in dbos-inc/dbos-transact-py 546, taskiq-python/taskiq 569 and celery/kombu 1198. The part of it that concerns
``rota work`` is in ``test_018_work_batch``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .steps import step_past, tokens


class Fragile:
    """A codec that cannot read everything it wrote, as after a change of a program's types."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def encode(self, obj: Any) -> str:
        return json.dumps(obj)

    def decode(self, text: str) -> Any:
        if "unreadable" in text:
            raise self._error
        return json.loads(text)


ERRORS = [ValueError("which version was this?"), KeyError("field"), RecursionError("too deep"), rota.PayloadError("no")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_undecodable_job_comes_with_its_error_among_the_others(store: Any, clock: ManualClock, error: Any) -> None:
    """The whole batch is delivered; the bad one can be dead-lettered with a clear text, the rest is worked."""
    queue = store.queue("q", codec=Fragile(error))
    ids = queue.enqueue_many([1, "unreadable", 3, 4, 5])
    jobs = queue.claim_batch("w", 5, visibility=2)
    assert [job.id for job in jobs] == ids
    assert [job.payload for job in jobs if job.id != ids[1]] == [1, 3, 4, 5]
    assert isinstance(jobs[1].payload, rota.PayloadError)
    assert jobs[1].fail(jobs[1].payload)
    for job in jobs[:1] + jobs[2:]:
        assert job.ack()
    (letter,) = queue.dead_letters()
    assert "PayloadError" in letter.last_error
    assert isinstance(letter.payload, rota.PayloadError)
    assert queue.redrive("all") == [ids[1]]
    assert isinstance(queue.peek(1)[0].payload, rota.PayloadError)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_undecodable_message_comes_with_its_error_among_the_others(store: Any, error: Any) -> None:
    """The same for leases; its group goes on as soon as it is settled."""
    transport = store.transport("t", codec=Fragile(error))
    transport.publish_many([("a", 1), ("b", "unreadable"), ("c", 3), ("b", 4)])
    leases = transport.claim_batch("w", 5)
    assert [lease.group_id for lease in leases] == ["a", "b", "c"]
    assert isinstance(leases[1].event, rota.PayloadError)
    assert isinstance(transport.peek("b", 1)[0].event, rota.PayloadError)
    assert leases[1].fail(leases[1].event)
    assert transport.claim("w").event == 4
    assert leases[0].ack()
    assert leases[2].ack()


def test_waiting_jobs_are_renewed_together_and_only_the_valid_ones(store: Any, clock: ManualClock) -> None:
    """A worker that holds a batch keeps the waiting ones alive with one call, which tells what is lost."""
    queue = store.queue("q", visibility=2)
    queue.enqueue_many(range(5))
    jobs = queue.claim_batch("w", 5)
    clock.advance(1.5)
    assert queue.heartbeat_batch(jobs[2:]) == []
    clock.advance(1)
    taken = queue.claim_batch("other", 5)
    assert [job.payload for job in taken] == [0, 1]
    assert tokens(queue.heartbeat_batch(jobs)) == tokens(jobs[:2])
    assert [job.ack() for job in jobs] == [False, False, True, True, True]
    assert [job.ack() for job in taken] == [True, True]


def test_late_ack_is_refused_and_raises_nothing(store: Any, clock: ManualClock) -> None:
    """A job that ran on a lapsed lease next to its new holder: False, and the batch verbs count the rest."""
    queue = store.queue("q")
    queue.enqueue_many(range(3))
    late = queue.claim_batch("w", 3, visibility=2)
    step_past(clock, 2)
    again = queue.claim_batch("other", 2)
    assert late[0].ack() is False
    assert queue.ack_batch([*late, *again], "other") == 2
    assert queue.claim_one("other").payload == 2


def test_given_back_prefetch_is_claimable_at_once_and_not_counted(store: Any) -> None:
    """What was claimed and never started goes back without using up an attempt."""
    queue, transport = store.queue("q", max_attempts=1), store.transport("t", max_deliveries=1)
    queue.enqueue_many(range(5))
    transport.publish_many([(f"g{n}", n) for n in range(5)])
    for job in queue.claim_batch("w", 5):
        assert job.release()
    for lease in transport.claim_batch("w", 5):
        assert lease.release()
    jobs, leases = queue.claim_batch("other", 9), transport.claim_batch("other", 9)
    assert [(job.payload, job.attempts, job.releases) for job in jobs] == [(n, 1, 1) for n in range(5)]
    assert [(lease.event, lease.deliveries) for lease in leases] == [(n, 1) for n in range(5)]
