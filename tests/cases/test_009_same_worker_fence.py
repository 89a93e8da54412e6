"""Two claims by one worker id are two claims.

Seen in procrastinate-org/procrastinate 1518, dbos-inc/dbos-transact-py 804 and oban-bg/oban 862: a worker named after
its host keeps its name after a restart, and the newborn is taken for the dead one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .steps import payloads, tokens

WORKER = "pod-0"

JOB_VERBS: dict[str, Callable[[Any], Any]] = {
    "heartbeat": lambda job: job.heartbeat(),
    "heartbeat(extend)": lambda job: job.heartbeat(60),
    "retry": lambda job: job.retry("late"),
    "retry(0)": lambda job: job.retry("late", 0),
    "fail": lambda job: job.fail("late"),
    "release": lambda job: job.release(),
    "ack": lambda job: job.ack(),
}
LEASE_VERBS: dict[str, Callable[[Any], Any]] = {
    "extend": lambda lease: lease.extend(60),
    "nack": lambda lease: lease.nack(),
    "park": lambda lease: lease.nack(5),
    "retry": lambda lease: lease.retry("late"),
    "fail": lambda lease: lease.fail("late"),
    "release": lambda lease: lease.release(),
    "ack": lambda lease: lease.ack(),
}
# How the first claim came to its end; afterwards the same worker claims again.
JOB_ENDS: dict[str, Callable[[Any, Any, ManualClock], Any]] = {
    "lapse": lambda queue, job, clock: clock.advance(1.2),
    "release": lambda queue, job, clock: job.release(),
    "retry": lambda queue, job, clock: job.retry("again", 0),
    "redrive": lambda queue, job, clock: (job.fail("dead"), queue.redrive("all")),
}
LEASE_ENDS: dict[str, Callable[[Any, Any, ManualClock], Any]] = {
    "lapse": lambda transport, lease, clock: clock.advance(1.2),
    "release": lambda transport, lease, clock: lease.release(),
    "nack": lambda transport, lease, clock: lease.nack(),
    "redrive": lambda transport, lease, clock: (lease.fail("dead"), transport.redrive("all", position="original")),
}


@pytest.mark.parametrize("end", JOB_ENDS)
def test_old_claim_of_the_same_worker_does_nothing(store: Any, clock: ManualClock, end: str) -> None:
    """Every verb of the first handle is refused and changes nothing; the second one's are accepted."""
    queue = store.queue("q")
    job_id = queue.enqueue("work")
    first = queue.claim_one(WORKER, visibility=1)
    JOB_ENDS[end](queue, first, clock)
    second = queue.claim_one(WORKER)
    assert (second.id, second.worker_id) == (job_id, first.worker_id)
    assert second.token > first.token
    before = queue.get_job(job_id)
    for name, verb in JOB_VERBS.items():
        assert verb(first) is False, name
        assert queue.get_job(job_id) == before, name
    assert tokens(queue.heartbeat_batch([first, second])) == [first.token]
    assert queue.ack_batch([first], WORKER) == 0
    assert queue.dead_letters() == []
    assert second.heartbeat()
    assert second.ack()
    assert queue.get_job(job_id) is None


@pytest.mark.parametrize("end", LEASE_ENDS)
def test_old_lease_of_the_same_worker_does_nothing(store: Any, clock: ManualClock, end: str) -> None:
    """The same for a transport."""
    transport = store.transport("t")
    transport.publish_many([("g", "A"), ("g", "B")])
    first = transport.claim(WORKER, visibility=1)
    LEASE_ENDS[end](transport, first, clock)
    second = transport.claim(WORKER)
    assert (second.event, second.worker_id) == ("A", first.worker_id)
    assert second.token > first.token
    before = transport.groups(), transport.peek("g", 9)
    for name, verb in LEASE_VERBS.items():
        assert verb(first) in (False, None), name
        assert (transport.groups(), transport.peek("g", 9)) == before, name
    assert transport.extend_batch([first], 5) == [None]
    assert transport.ack_batch([first, first]) == 0
    assert transport.dead_letters() == []
    assert second.extend(60).ack()
    assert [message.event for message in transport.peek("g", 9)] == ["B"]


def test_attempt_two_belongs_to_the_second_claim(store: Any, clock: ManualClock) -> None:
    """The restarted worker sees that it is the second try."""
    queue = store.queue("q")
    queue.enqueue("work")
    assert queue.claim_one(WORKER, visibility=1).attempts == 1
    clock.advance(1.2)
    assert queue.claim_one(WORKER).attempts == 2


def test_ack_batch_of_handles_is_fenced_of_bare_ids_is_not(store: Any, clock: ManualClock) -> None:
    """Q9: handles bring their token; with bare ids the old process of one name cannot be told from the new one."""
    queue = store.queue("q")
    ids = queue.enqueue_many(range(4))
    old = queue.claim_batch(WORKER, 4, visibility=1)
    clock.advance(1.2)
    new = queue.claim_batch(WORKER, 3)
    assert queue.ack_batch(old, WORKER) == 0
    assert queue.ack_batch([old[0], new[0]], WORKER) == 1
    assert queue.ack_batch([new[1]], "pod-1") == 0
    assert queue.ack_batch(ids[1:], "pod-1") == 0
    assert queue.ack_batch(ids, WORKER) == 2, "the one acked before and the one not claimed again are passed over"
    assert payloads(queue) == [3]


def test_fence_holds_over_a_restart(url: str, clock: ManualClock) -> None:
    """The store is opened anew by the process that came after: tokens go on, none is used again."""
    keeper = rota.open(url, clock=clock)
    with rota.open(url, clock=clock) as before:
        before.queue("q").enqueue("work")
        before.transport("t").publish("g", "A")
        tokens = [before.queue("q").claim_one(WORKER, visibility=1).token]
        tokens.append(before.transport("t").claim(WORKER, visibility=1).token)
    clock.advance(1.2)
    with keeper, rota.open(url, clock=clock) as after:
        job, lease = after.queue("q").claim_one(WORKER), after.transport("t").claim(WORKER)
        assert min(job.token, lease.token) > max(tokens)
        assert job.attempts == lease.deliveries == 2
