"""Cancel against claim, ack and retry.

Seen in procrastinate-org/procrastinate 1131 and 511 and SamSaffron/term-llm PR 918. The races are in ``tests/race``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import step_past, tokens

VERBS: dict[str, Callable[[Any], bool]] = {
    "retry": lambda job: job.retry("no", 0),
    "ack": lambda job: job.ack("result"),
    "fail": lambda job: job.fail("no"),
    "heartbeat": lambda job: job.heartbeat(),
    "release": lambda job: job.release(),
}


@pytest.mark.parametrize("first", VERBS)
def test_handle_of_a_cancelled_job_does_nothing(store: Any, clock: ManualClock, first: str) -> None:
    """Every later operation says False and raises nothing; no retry revives the job, nothing is kept of it."""
    queue = store.queue("q", keep_done=60)
    job_id = queue.enqueue("work")
    job = queue.claim_one("w")
    assert queue.cancel(job_id) is True
    for verb in (VERBS[first], *VERBS.values()):
        assert verb(job) is False
    assert tokens(queue.heartbeat_batch([job])) == [job.token]
    assert queue.ack_batch([job, job_id], "w") == 0
    assert queue.get_job(job_id) is None
    clock.advance(10_000)
    assert queue.claim_one("w") is None
    assert queue.dead_letters() == []


def test_the_running_handler_is_told_by_its_next_beat(store: Any, clock: ManualClock) -> None:
    """Cancel interrupts nobody; the beat is what tells."""
    queue = store.queue("q")
    job_id = queue.enqueue("work")
    job = queue.claim_one("w")
    assert job.heartbeat()
    assert queue.cancel(job_id)
    assert job.heartbeat() is False


STATES: dict[str, Callable[[Any, Any], None]] = {
    "pending": lambda queue, clock: None,
    "delayed": lambda queue, clock: queue.claim_one("w").retry("later", 60),
    "processing": lambda queue, clock: queue.claim_one("w"),
    "lapsed": lambda queue, clock: (queue.claim_one("w", visibility=1), step_past(clock, 1)),
    "released": lambda queue, clock: queue.claim_one("w").release(),
    "redriven": lambda queue, clock: (queue.claim_one("w").fail("no"), queue.redrive("all")),
}


@pytest.mark.parametrize("state", STATES)
def test_cancel_is_true_exactly_once(store: Any, clock: ManualClock, state: str) -> None:
    """Whatever live state the job is in."""
    queue = store.queue("q")
    job_id = queue.enqueue("work")
    STATES[state](queue, clock)
    assert queue.cancel(job_id) is True
    assert queue.cancel(job_id) is False
    clock.advance(10_000)
    assert queue.claim_one("w") is None
    assert queue.get_job(job_id) is None


def test_cancel_of_what_is_over_or_unknown(store: Any, clock: ManualClock) -> None:
    """False, no exception, and nothing changed: dead, done, gone, of another queue, never there, absurd."""
    queue = store.queue("q", keep_done=60)
    dead, done, gone = queue.enqueue_many(range(3))
    assert queue.claim_one("w").fail("no")
    assert queue.claim_one("w").ack()
    assert queue.cancel(gone)
    elsewhere = store.queue("other").enqueue("work")
    for unknown in (dead, done, gone, elsewhere, 10**6, 0, -1, 2**63 - 1, 2**63, 2**64, 10**30):
        assert queue.cancel(unknown) is False
    assert [queue.get_job(id).state for id in (dead, done)] == ["dead", "done"]
    assert store.queue("other").get_job(elsewhere).state == "pending"
    with pytest.raises(TypeError):
        queue.cancel("1")


def test_cancelled_id_is_never_reused(store: Any) -> None:
    """A late handle cannot hit a newborn job."""
    queue = store.queue("q")
    first = queue.enqueue("work")
    job = queue.claim_one("w")
    assert queue.cancel(first)
    second = queue.enqueue("other work")
    assert second > first
    newer = queue.claim_one("w")
    assert job.ack() is False
    assert newer.ack() is True


def test_purge_is_a_cancel_of_many(store: Any) -> None:
    """Holders of purged jobs and messages learn it the same way."""
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue_many(range(3))
    transport.publish_many([("g", 1), ("g", 2)])
    jobs, lease = queue.claim_batch("w", 2), transport.claim("w")
    assert queue.purge("processing") == 2
    assert transport.purge("g") == 2
    assert [verb(job) for job in jobs for verb in VERBS.values()] == [False] * 10
    assert [lease.ack(), lease.nack(), lease.fail(), lease.release(), lease.extend(5)] == [False] * 4 + [None]
    assert queue.claim_one("w").payload == 2
    transport.publish("g", 3)
    assert transport.claim("w").event == 3
    assert not lease.ack()
