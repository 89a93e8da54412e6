"""Q15: keys, on queues and transports."""

from __future__ import annotations

from typing import Any

from rota import Item
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Started, Suite, step


class KeyClauses(Suite):
    """Keys (Q15)."""

    def test_Q15_a_taken_key_stores_nothing(self, store: Any) -> None:
        """The existing id comes back and the stored item stays as it is."""
        queue, transport = store.queue("q"), store.transport("t")
        id = queue.enqueue("first", key="k")
        assert queue.enqueue("second", key="k", priority=9) == id
        assert (queue.stats().pending, queue.get_job(id).payload, queue.get_job(id).key) == (1, "first", "k")
        seq = transport.publish("g", "first", key="k")
        assert transport.publish("h", "second", key="k") == seq
        assert [message.event for message in transport.peek("g")] == ["first"]
        assert transport.peek("g")[0].key == "k"
        assert transport.stats().messages == 1

    def test_Q15_the_key_is_taken_until_its_time_is_over(self, store: Any, clock: ManualClock) -> None:
        """While now < enqueued_at + key_ttl, even when the job is long acked; free at that very instant."""
        queue, transport = store.queue("q", key_ttl=10), store.transport("t", key_ttl=10)
        id, seq = queue.enqueue(1, key="k"), transport.publish("g", 1, key="k")
        assert queue.claim_one("w").ack()
        assert transport.claim("w").ack()
        step(clock, 9_999_999)
        assert queue.enqueue(2, key="k") == id
        assert transport.publish("g", 2, key="k") == seq
        assert queue.stats().pending == transport.stats().messages == 0
        step(clock, 1)
        assert queue.enqueue(3, key="k") > id
        assert transport.publish("g", 3, key="k") > seq

    def test_Q15_the_key_is_taken_while_its_item_lives(self, store: Any, clock: ManualClock) -> None:
        """A pending or processing item holds it beyond its time; sweeping does not free it."""
        queue, transport = store.queue("q", key_ttl=1), store.transport("t", key_ttl=1)
        id, seq = queue.enqueue(1, key="k"), transport.publish("g", 1, key="k")
        clock.advance(100)
        queue.sweep_expired()
        transport.sweep()
        assert queue.enqueue(2, key="k") == id
        assert transport.publish("g", 2, key="k") == seq
        job, lease = queue.claim_one("w"), transport.claim("w")
        assert queue.enqueue(3, key="k") == id
        assert transport.publish("g", 3, key="k") == seq
        assert job.ack()
        assert lease.ack()
        assert queue.enqueue(4, key="k") > id
        assert transport.publish("g", 4, key="k") > seq

    def test_Q15_a_key_ttl_of_zero_lasts_as_long_as_the_item(self, store: Any) -> None:
        """With key_ttl=0 only the living item holds it."""
        queue = store.queue("q", key_ttl=0)
        id = queue.enqueue(1, key="k")
        assert queue.enqueue(2, key="k") == id
        assert queue.claim_one("w").ack()
        assert queue.enqueue(3, key="k") > id

    def test_Q15_dead_and_done_items_hold_it_for_its_time_only(self, store: Any, clock: ManualClock) -> None:
        """Neither dead nor done counts as living."""
        queue = store.queue("q", key_ttl=10, keep_done=1_000)
        dead, done = queue.enqueue(1, key="dead"), queue.enqueue(2, key="done")
        assert queue.claim_one("w").fail()
        assert queue.claim_one("w").ack()
        assert queue.enqueue(3, key="dead") == dead
        assert queue.enqueue(4, key="done") == done
        clock.advance(10)
        assert queue.enqueue(5, key="dead") > done
        assert queue.enqueue(6, key="done") > done

    def test_Q15_cancel_and_purge_leave_the_key_for_its_time(self, store: Any, clock: ManualClock) -> None:
        """A repeated call whose job was deleted meanwhile makes no second one."""
        queue, transport = store.queue("q"), store.transport("t")
        id, seq = queue.enqueue(1, key="k"), transport.publish("g", 1, key="k")
        assert queue.cancel(id)
        assert transport.purge("g") == 1
        assert queue.enqueue(2, key="k") == id
        assert transport.publish("g", 2, key="k") == seq
        clock.advance(300)
        assert queue.enqueue(2, key="k") > id
        assert transport.publish("g", 2, key="k") > seq

    def test_Q15_keys_belong_to_one_queue_or_transport(self, store: Any) -> None:
        """The same key elsewhere is another key; so is another spelling."""
        ids = {store.queue(name).enqueue(1, key="k") for name in ("a", "b")}
        assert len(ids) == 2
        assert store.transport("a").publish("g", 1, key="k") is not None
        assert store.transport("a").stats().messages == 1
        queue = store.queue("a")
        assert len({queue.enqueue(1, key=key) for key in ("x", "X", "x ", "é", "e\u0301")}) == 5

    def test_Q15_repeated_keys_inside_one_batch(self, queue: Any) -> None:
        """The second gets the first one's id."""
        ids = queue.enqueue_many([Item(1, key="a"), Item(2), Item(3, key="a"), Item(4, key="b")])
        assert ids[2] == ids[0]
        assert len(set(ids)) == 3
        assert queue.stats().pending == 3

    def test_Q15_racing_enqueues_store_one(self, queue: Any) -> None:
        """Eight threads enqueue with one key: one job, one id."""
        callers = [Started(queue.enqueue, number, key="k") for number in range(8)]
        assert len({caller.result() for caller in callers}) == 1
        assert queue.stats().pending == 1

    def test_Q15_sweeping_frees_keys_whose_time_is_over(self, store: Any, clock: ManualClock) -> None:
        """After the sweep the key is as unused; before its time it stays taken."""
        queue, transport = store.queue("q", key_ttl=10), store.transport("t", key_ttl=10)
        id, seq = queue.enqueue(1, key="k"), transport.publish("g", 1, key="k")
        assert queue.claim_one("w").ack()
        assert transport.claim("w").ack()
        clock.advance(5)
        queue.sweep_expired()
        transport.sweep()
        assert queue.enqueue(1, key="k") == id
        assert transport.publish("g", 1, key="k") == seq
        clock.advance(5)
        queue.sweep_expired()
        transport.sweep()
        assert queue.enqueue(1, key="k") > id
        assert transport.publish("g", 1, key="k") > seq
