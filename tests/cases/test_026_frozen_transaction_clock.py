"""The clock does not stand still inside a long transaction (pgmq 367). Claims take no ``tx=``, all else is tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

import rota


def test_leases_and_ready_times_count_from_the_call(opener: Callable[..., Any]) -> None:
    """A second into the transaction: a heartbeat, an extension, a delay of 0 and a park count from then."""
    store = opener()
    queue, transport = store.queue("q", visibility=1.5), store.transport("t")
    queue.enqueue(1)
    transport.publish_many([("g", 1), ("h", 2)])
    job = queue.claim_one("w")
    lease, parked = transport.claim_batch("w", 2, 1.5)
    with store.transaction() as tx:
        time.sleep(1)
        called = store.now()
        assert job.heartbeat(1.5, tx=tx)
        lease = lease.extend(1.5, tx=tx)
        assert parked.nack(1.5, tx=tx)
        ids = [queue.enqueue("now", delay=0, tx=tx), queue.enqueue("later", delay=1.2, tx=tx)]
        transport.publish("i", "now", tx=tx)
    assert lease.deadline - called > 1.4
    now, later = (queue.get_job(one) for one in ids)
    assert -0.1 < now.enqueued_at - called < 0.4
    assert 1.1 < later.run_at - called < 1.6
    # Right after the commit: what is due is claimable, what is held is not.
    assert queue.claim_one("v").payload == "now"
    assert queue.claim_one("v") is None
    assert [one.event for one in transport.claim_batch("v", 5)] == ["now"]
    # Had they counted from the beginning, these would be over now.
    time.sleep(max(0.0, called + 0.9 - store.now()))
    assert job.ack()
    assert lease.ack()
    assert transport.claim("v") is None


def test_in_a_transaction_of_the_callers_whose_clock_stands_still(postgres_url: str) -> None:
    """``now()`` stands still there; what others claim meanwhile, and what is renewed in it, counts from the call."""
    with rota.open(postgres_url) as store, psycopg.connect(postgres_url) as mine:
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many(["held", "claimed"])
        held = queue.claim_one("w", visibility=60)
        transport.publish("g", "held")
        lease = transport.claim("w", 60)
        (begun,) = mine.execute("SELECT extract(epoch FROM now())::float").fetchone()
        time.sleep(2.2)
        claimed = queue.claim_one("w", visibility=2)
        called = store.now()
        assert held.heartbeat(2, tx=mine)
        lease = lease.extend(2, tx=mine)
        job_id = queue.enqueue("now", delay=0, tx=mine)
        transport.publish("h", "now", tx=mine)
        assert mine.execute("SELECT extract(epoch FROM now())::float").fetchone() == (begun,)
        mine.commit()
        # Counted from the beginning, all of these would be over already.
        assert lease.deadline > called + 1.9
        assert queue.get_job(held.id).claim_expires_at > called + 1.9
        assert queue.get_job(job_id).enqueued_at > called - 0.1
        assert [one.payload for one in queue.claim_batch("v", 5)] == ["now"]
        assert [one.event for one in transport.claim_batch("v", 5)] == ["now"]
        assert claimed.claim_expires_at > called + 1.8
        assert claimed.ack()
