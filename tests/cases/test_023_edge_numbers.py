"""Zero, negative, huge and odd numbers.

Seen in Bogdanp/dramatiq 388, antirez/disque 25, career-ops-hq/career-ops PR 4308 and stellar/stellar-rpc PR 631: an
explicit 0 taken for 'not given', a count of 0 meaning everything, batches beyond the database's limit of bound values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .steps import MICROSECOND, step_past

BIG = 50_000


def nothing_stored(store: Any) -> bool:
    return store.queue("q").jobs() == [] and store.transport("t").groups() == []


@pytest.mark.parametrize("n", [0, -1, -(10**6), -(2**70)])
def test_a_count_of_zero_or_less_means_nothing(store: Any, n: int) -> None:
    """An empty list, never one job and never everything; waiting for nothing takes no time."""
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue_many(range(3))
    transport.publish_many([("g", 1), ("h", 2)])
    assert queue.claim_batch("w", n) == []
    assert queue.claim_batch("w", n, wait=1_000) == []
    assert transport.claim_batch("w", n) == []
    assert transport.claim_batch("w", n, wait=1_000) == []
    assert queue.peek(n) == []
    assert transport.peek("g", n) == []
    assert queue.jobs(limit=n) == []
    assert queue.stats().pending == 3
    assert transport.stats().ready == 2


@pytest.mark.parametrize("n", [10**6, 2**31, 2**63, 2**64, 10**40])
def test_a_count_beyond_what_is_there_gives_what_is_there(store: Any, n: int) -> None:
    """However far beyond."""
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue_many(range(3))
    transport.publish_many([("g", 1), ("h", 2)])
    assert len(queue.peek(n)) == 3
    assert len(queue.jobs(limit=n)) == 3
    assert len(queue.claim_batch("w", n)) == 3
    assert len(transport.claim_batch("w", n)) == 2


@pytest.mark.parametrize("n", [2.5, 3.0, True, False, "3", None, math.inf])
def test_a_count_that_is_no_int_is_refused(store: Any, n: Any) -> None:
    """Before anything is claimed."""
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue(1)
    transport.publish("g", 1)
    for call in (queue.claim_batch, transport.claim_batch):
        with pytest.raises(TypeError):
            call("w", n)
    assert (queue.stats().processing, transport.stats().leased) == (0, 0)


def test_batches_of_fifty_thousand(plain: Any) -> None:
    """One call each, in, out and back."""
    queue, transport = plain.queue("q"), plain.transport("t")
    ids = queue.enqueue_many(range(BIG))
    assert len(set(ids)) == BIG
    jobs = queue.claim_batch("w", BIG)
    assert [job.id for job in jobs] == ids
    assert queue.heartbeat_batch(jobs) == []
    shuffled = ids + ids[: BIG // 2]
    random.Random(23).shuffle(shuffled)
    assert queue.ack_batch(shuffled, "w") == BIG
    seqs = transport.publish_many([(f"g{n}", n) for n in range(BIG)])
    leases = transport.claim_batch("w", BIG)
    assert [lease.seq for lease in leases] == seqs
    assert None not in transport.extend_batch(leases, 60)
    assert transport.ack_batch(leases) == BIG
    assert nothing_stored(plain)


def test_ack_batch_counts_what_it_acked(store: Any, clock: ManualClock) -> None:
    """Empty, twice the same, unknown, lapsed, another worker's and absurd ones in one list."""
    queue = store.queue("q")
    ids = queue.enqueue_many(range(6))
    assert queue.ack_batch([], "w") == 0
    assert queue.ack_batch([0, -1, 10**9, 2**63, 2**64, -(2**64)], "w") == 0
    lapsed = queue.claim_batch("w", 2, visibility=1)
    step_past(clock, 1)
    assert queue.cancel(ids[0])
    mine = queue.claim_batch("w", 3)
    assert [job.id for job in mine] == ids[1:4]
    assert queue.claim_one("other").id == ids[4]
    assert queue.ack_batch([*ids, *ids, *lapsed, *mine, 2**64], "w") == 3
    assert [job.id for job in queue.jobs()] == ids[4:]
    for odd in (1.5, "1", True, None):
        with pytest.raises(TypeError):
            queue.ack_batch([odd], "w")


def test_zero_is_zero(store: Any, clock: ManualClock) -> None:
    """An explicit 0 is not the default: ready at once, no backoff, no retention, no wait."""
    queue = store.queue("q", backoff_base=0, dead_letter_retention=0, keep_done=0, key_ttl=0)
    queue.enqueue("work", delay=0, key="k")
    job = queue.claim_one("w")
    assert job.run_at == clock.now()
    assert job.retry("again")
    assert queue.claim_one("w").retry("again", 0)
    assert queue.claim_one("w", wait=0).fail("enough")
    assert queue.enqueue("more", key="k") > job.id
    assert queue.purge("pending") == 1
    assert len(queue.dead_letters()) == 1
    queue.sweep_expired()
    assert queue.dead_letters() == []
    slow = store.queue("slow")
    slow.enqueue("work")
    assert slow.claim_one("w").retry("again", 0)
    assert slow.claim_one("w").attempts == 2
    transport = store.transport("t")
    transport.publish("g", 1)
    assert transport.claim("w").nack(0)
    assert transport.claim("w").retry("again", 0)
    assert transport.claim("w").release(delay=0)
    assert transport.claim("w").deliveries == 3


def test_negative_delays(store: Any, clock: ManualClock) -> None:
    """Of a job they are legal and order it by that earlier instant; a park has none."""
    queue = store.queue("q")
    queue.enqueue("now")
    queue.enqueue("earlier", delay=-5)
    queue.enqueue("expired at birth", delay=-9, expires=0)
    assert queue.claim_one("w").payload == "earlier"
    job = queue.claim_one("w")
    assert (job.payload, job.retry("again", -10)) == ("now", True)
    assert queue.claim_one("w").run_at == clock.now() - 10
    transport = store.transport("t")
    transport.publish("g", 1)
    lease = transport.claim("w")
    for call in (lambda: lease.nack(-5), lambda: lease.retry("x", -5), lambda: lease.release(delay=-MICROSECOND)):
        with pytest.raises(ValueError, match="-"):
            call()
    assert lease.ack()


def test_very_long_delays_do_not_overflow(store: Any, clock: ManualClock) -> None:
    """10**12 seconds are some thirty thousand years."""
    queue, transport = store.queue("q"), store.transport("t")
    job_id = queue.enqueue("work", delay=10**12)
    assert queue.get_job(job_id).run_at == clock.now() + 10**12
    queue.enqueue("other", expires=10**12, visibility=10**12)
    job = queue.claim_one("w")
    assert job.claim_expires_at == clock.now() + 10**12
    assert job.heartbeat(10**12)
    assert job.retry("later", 10**12)
    transport.publish("g", 1)
    assert transport.claim("w", visibility=10**12).nack(10**12)
    clock.advance(10**9)
    assert queue.claim_one("w") is None
    assert transport.claim("w") is None


def refused(verb: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return verb, options


OUT_OF_RANGE = [
    *(refused("enqueue", visibility=value) for value in (0, -1, 1e-7, math.nan, math.inf, -math.inf, 10**13)),
    *(refused("enqueue", max_attempts=value) for value in (0, -1, 2**31, 2**63, 2**64)),
    *(refused("enqueue", priority=value) for value in (2**31, -(2**31) - 1, 2**63, 2**64, -(2**64))),
    *(refused("enqueue", delay=value) for value in (math.nan, math.inf, 10**13, -(10**13), timedelta.max)),
    *(refused("enqueue", run_at=value) for value in (math.nan, -math.inf, 10**13, -(10**13))),
    *(refused("enqueue", expires=value) for value in (math.nan, math.inf, 10**40)),
    *(refused("publish", priority=value) for value in (2**31, -(2**31) - 1, 2**63, 2**64)),
    *(refused("queue", backoff_base=value) for value in (-1, math.nan, -MICROSECOND)),
    *(refused("queue", **{option: -1}) for option in ("dead_letter_retention", "keep_done", "key_ttl", "visibility")),
    *(refused("queue", max_attempts=value) for value in (0, -3)),
    *(refused("transport", max_deliveries=value) for value in (0, -1, 2**64)),
    *(refused("transport", **{option: -1}) for option in ("backoff_base", "dead_letter_retention", "key_ttl")),
    *(refused("claim_one", visibility=value) for value in (0, -1, math.nan, 1e-7)),
    *(refused("claim_one", wait=value) for value in (-1, math.nan, math.inf)),
    *(refused("claim", visibility=value) for value in (0, -1, math.inf)),
    *(refused("claim", wait=value) for value in (-1, math.nan)),
]
WRONG_TYPES = [
    *(refused("enqueue", **{option: True}) for option in ("visibility", "max_attempts", "priority", "delay", "run_at")),
    *(refused("enqueue", **{option: "5"}) for option in ("visibility", "max_attempts", "priority", "delay", "run_at")),
    *(refused("enqueue", **{option: 1.5}) for option in ("max_attempts", "priority")),
    *(refused("publish", priority=value) for value in (True, 1.0, "1")),
    *(refused("claim", min_priority=value) for value in (True, 1.0, "1")),
    *(refused("claim_one", visibility=value) for value in (True, "5")),
    *(refused("claim_one", wait=value) for value in (True, "5")),
]


def call(store: Any, verb: str, options: dict[str, Any]) -> Any:
    verbs: dict[str, Callable[..., Any]] = {
        "enqueue": lambda **options: store.queue("q").enqueue("work", **options),
        "publish": lambda **options: store.transport("t").publish("g", 1, **options),
        "queue": lambda **options: store.queue("q", **options),
        "transport": lambda **options: store.transport("t", **options),
        "claim_one": lambda **options: store.queue("q").claim_one("w", **options),
        "claim": lambda **options: store.transport("t").claim("w", **options),
    }
    return verbs[verb](**options)


@pytest.mark.parametrize(("error", "inputs"), [(ValueError, OUT_OF_RANGE), (TypeError, WRONG_TYPES)])
def test_bad_numbers_are_refused(store: Any, error: type[Exception], inputs: list[Any]) -> None:
    """Out of range and of a wrong type: one error on every engine, naming the argument, before anything is touched."""
    for verb, options in inputs:
        with pytest.raises(error, match=next(iter(options))):
            pytest.fail(f"{verb}({options}) gave {call(store, verb, options)!r}")
    assert nothing_stored(store)


def test_one_bad_item_stores_nothing_of_its_batch(store: Any) -> None:
    """All or nothing, wherever in the batch it stands."""
    for place in (0, 500, 999):
        jobs: list[Any] = [rota.Item(n) for n in range(1_000)]
        jobs[place] = rota.Item("bad", priority=2**31)
        messages: list[Any] = [("g", n) for n in range(1_000)]
        messages[place] = ("g", "bad", 2**31)
        with pytest.raises(ValueError, match="priority"):
            store.queue("q").enqueue_many(jobs)
        with pytest.raises(ValueError, match="priority"):
            store.transport("t").publish_many(messages)
    assert store.queue("q").enqueue_many([]) == []
    assert store.transport("t").publish_many([]) == []
    assert nothing_stored(store)


def test_the_ends_of_the_domain_are_inside(store: Any) -> None:
    """The smallest and the largest priority, in order; one microsecond of visibility."""
    queue, transport = store.queue("q"), store.transport("t")
    for priority in (-(2**31), 0, 2**31 - 1):
        queue.enqueue(priority, priority=priority)
        transport.publish(f"g{priority}", priority, priority)
    assert [queue.claim_one("w", visibility=MICROSECOND).payload for _ in range(3)] == [2**31 - 1, 0, -(2**31)]
    assert transport.claim("w", min_priority=2**31 - 1).event == 2**31 - 1
    assert transport.claim("w", min_priority=-(2**31)).event == -(2**31)
