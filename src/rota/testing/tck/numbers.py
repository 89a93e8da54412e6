"""C6, C8: numbers outside their domain, batches of any size, and cleaning that never shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.public import Item
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite


class NumberClauses(Suite):
    """Domains and sizes (C6, C8)."""

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("visibility", 0),
            ("visibility", -1),
            ("max_attempts", 0),
            ("max_attempts", -1),
            ("priority", 2**31),
            ("priority", -(2**31) - 1),
            ("priority", 2**64),
            ("delay", 10**30),
            ("run_at", 10**30),
        ],
    )
    def test_C6_enqueue_refuses_numbers_outside_their_domain(self, queue: Any, option: str, value: int) -> None:
        """ValueError naming the option, before any effect."""
        with pytest.raises(ValueError, match=option):
            queue.enqueue(1, **{option: value})
        assert queue.stats().pending == 0

    @pytest.mark.parametrize(
        ("option", "value"),
        [("priority", 1.5), ("priority", "1"), ("max_attempts", 2.0), ("delay", "5"), ("visibility", b"1")],
    )
    def test_C6_enqueue_refuses_wrong_types(self, queue: Any, option: str, value: Any) -> None:
        """TypeError naming the option, before any effect."""
        with pytest.raises(TypeError, match=option):
            queue.enqueue(1, **{option: value})
        assert queue.stats().pending == 0

    def test_C6_options_of_handles_are_checked(self, store: Any) -> None:
        """A handle is not made with a number outside its domain."""
        for options in (
            {"visibility": 0},
            {"max_attempts": 0},
            {"backoff_base": -1},
            {"dead_letter_retention": -1},
            {"keep_done": -0.5},
            {"key_ttl": -1},
        ):
            with pytest.raises(ValueError, match=next(iter(options))):
                store.queue("q", **options)
        for odd in ({"max_deliveries": 0}, {"backoff_base": -1}, {"poison": "drop"}, {"new_groups": "middle"}):
            with pytest.raises(ValueError, match=next(iter(odd))):
                store.transport("t", **odd)

    def test_C6_settlements_refuse_before_any_effect(self, store: Any) -> None:
        """A refused settlement leaves the claim as it was."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("j")
        transport.publish("g", "m")
        job, lease = queue.claim_one("w"), transport.claim("w")
        for extend in (0, -1):
            with pytest.raises(ValueError, match="extend"):
                job.heartbeat(extend)
            with pytest.raises(ValueError, match="visibility"):
                lease.extend(extend)
        with pytest.raises(ValueError, match="delay"):
            lease.nack(-1)
        with pytest.raises(ValueError, match="delay"):
            lease.release(delay=-1)
        with pytest.raises(TypeError, match="delay"):
            job.retry(delay="soon")
        assert job.ack()
        assert lease.ack()

    def test_C6_claims_refuse_before_any_effect(self, store: Any) -> None:
        """A refused claim takes nothing."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("j")
        transport.publish("g", "m")
        with pytest.raises(ValueError, match="visibility"):
            queue.claim_one("w", visibility=0)
        with pytest.raises(ValueError, match="visibility"):
            transport.claim("w", 0)
        with pytest.raises(ValueError, match="wait"):
            queue.claim_one("w", wait=-1)
        with pytest.raises(TypeError):
            queue.claim_batch("w", 2.5)
        with pytest.raises(TypeError):
            transport.claim_batch("w", "2")
        assert queue.claim_one("w").attempts == 1
        assert transport.claim("w").deliveries == 1

    def test_C6_zero_is_zero(self, store: Any, clock: ManualClock) -> None:
        """An explicit 0 is not taken for the default."""
        queue, transport = store.queue("q", backoff_base=100), store.transport("t", backoff_base=100)
        queue.enqueue("j", delay=0, run_at=clock.now() + 50)
        transport.publish("g", "m")
        assert queue.claim_one("w").retry(delay=0)
        assert queue.claim_one("w").attempts == 2
        assert transport.claim("w").retry(delay=0)
        assert transport.claim("w").deliveries == 2
        assert queue.get_job(queue.enqueue("e", expires=0)).expires_at == clock.now()

    def test_C6_none_is_the_default(self, store: Any) -> None:
        """None in place of an option means its default."""
        queue = store.queue("q", visibility=None, max_attempts=None, backoff_base=None)
        record = queue.get_job(queue.enqueue(1, visibility=None, max_attempts=None))
        assert (record.visibility, record.max_attempts, record.backoff_base) == (300.0, 3, 5.0)

    def test_C6_none_is_the_default_of_what_is_not_none(self, store: Any, clock: ManualClock) -> None:
        """Also where the default is a number or a word: no priority, no wait, no delay, a page of the usual length."""
        queue, transport = store.queue("q"), store.transport("t", poison=None, new_groups=None)
        ids = [queue.enqueue(n, priority=None) for n in range(101)]
        queue.enqueue_many([Item("other", priority=None)])
        assert queue.get_job(ids[0]).priority == 0
        assert len(queue.jobs(limit=None)) == 100
        assert len(queue.peek(None)) == 10
        assert queue.claim_one("w", wait=None).id == ids[0]
        assert len(queue.claim_batch("w", 2, wait=None)) == 2
        transport.publish("g", 1, None)
        transport.publish_many([("g", 2, None), ("h", 3, None)])
        assert [group.priority for group in transport.groups(limit=None)] == [0, 0]
        assert len(transport.peek("g", None)) == 2
        lease = transport.claim("w", None, wait=None)
        assert transport.groups()[0].until == clock.now() + 30
        assert lease.nack(None)
        (lease,) = transport.claim_batch("w", 1, None, wait=None)
        assert lease.release(delay=None)
        lease = transport.claim("w")
        assert lease.fail()
        assert len(transport.dead_letters(limit=None)) == len(transport.redrive("all", position=None)) == 1

    @pytest.mark.parametrize("n", [0, -1, -(10**20)])
    def test_C6_n_of_zero_or_less_gives_nothing(self, store: Any, n: int) -> None:
        """n <= 0 in a batch gives an empty list and takes nothing."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("j")
        transport.publish("g", "m")
        assert queue.claim_batch("w", n) == []
        assert transport.claim_batch("w", n) == []
        assert queue.peek(n) == []
        assert queue.stats().pending == 1
        assert transport.stats().ready == 1

    def test_C6_n_beyond_the_backlog_gives_what_is_there(self, store: Any) -> None:
        """A huge n is no error and no short batch."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many([1, 2, 3])
        transport.publish_many([("a", 1), ("b", 2), ("b", 3)])
        assert len(queue.claim_batch("w", 10**6)) == 3
        assert len(transport.claim_batch("w", 10**30)) == 2

    def test_C6_empty_batches_do_nothing(self, store: Any) -> None:
        """Batch verbs accept nothing at all."""
        queue, transport = store.queue("q"), store.transport("t")
        assert queue.enqueue_many([]) == []
        assert transport.publish_many([]) == []
        assert queue.ack_batch([], "w") == 0
        assert transport.ack_batch([]) == 0
        assert queue.heartbeat_batch([]) == []
        assert transport.extend_batch([], 5) == []

    def test_C6_a_batch_of_any_size_works(self, store: Any) -> None:
        """50,000 items in one call: stored, claimed and acked."""
        queue = store.queue("q")
        ids = queue.enqueue_many(list(range(50_000)))
        assert len(set(ids)) == 50_000
        jobs = queue.claim_batch("w", 50_000)
        assert [job.payload for job in jobs[:3]] == [0, 1, 2]
        assert queue.ack_batch([job.id for job in jobs], "w") == 50_000
        assert queue.stats().processing == 0

    def test_C6_a_transport_batch_of_any_size_works(self, store: Any) -> None:
        """50,000 groups in one call: stored, leased and acked."""
        transport = store.transport("t")
        seqs = transport.publish_many([(f"g{number}", number) for number in range(50_000)])
        leases = transport.claim_batch("w", 50_000)
        assert [lease.seq for lease in leases] == seqs
        assert transport.ack_batch(leases) == 50_000
        assert transport.stats().messages == 0

    def test_C6_priorities_at_the_ends_of_their_domain(self, store: Any) -> None:
        """Both ends of the 32-bit range are priorities; any floor is legal."""
        queue, transport = store.queue("q"), store.transport("t")
        low, high = -(2**31), 2**31 - 1
        queue.enqueue("low", priority=low)
        queue.enqueue("high", priority=high)
        assert [job.payload for job in queue.claim_batch("w", 2)] == ["high", "low"]
        transport.publish("low", 1, low)
        transport.publish("high", 2, high)
        assert transport.claim("w", min_priority=high).group_id == "high"
        assert transport.claim("w", min_priority=2**40) is None
        assert transport.claim("w", min_priority=-(2**40)).group_id == "low"

    def test_C6_far_deadlines_do_not_overflow(self, store: Any, clock: ManualClock) -> None:
        """A delay of 10**12 seconds is far away, no error."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("far", delay=10**12)
        transport.publish("g", 1)
        assert queue.claim_one("w") is None
        assert transport.claim("w", 10**12).deadline == clock.now() + 10**12
        assert queue.enqueue("past", delay=-(10**12))
        assert queue.claim_one("w").payload == "past"

    # -- C8 ------------------------------------------------------------------------------------------------------------

    def test_C8_many_exhausted_jobs_never_make_a_batch_short(self, store: Any, clock: ManualClock) -> None:
        """Cleaning 2,500 exhausted jobs may take several claims, the good ones come back in the first."""
        queue = store.queue("q", max_attempts=1)
        queue.enqueue_many(list(range(2_500)))
        queue.claim_batch("w", 2_500, visibility=1)
        clock.advance(2)
        good = queue.enqueue_many(["a", "b", "c"])
        assert [job.id for job in queue.claim_batch("w", 3)] == good
        assert queue.claim_one("w") is None
        for _ in range(5):
            queue.claim_one("w")
        assert queue.stats().dead == 2_500
        assert queue.stats().processing == 3

    def test_C8_many_expired_jobs_never_make_a_batch_short(self, store: Any, clock: ManualClock) -> None:
        """2,500 expired jobs in front hide nothing behind them."""
        queue = store.queue("q")
        queue.enqueue_many(list(range(2_500)))
        other = store.queue("q")
        from rota import Item

        other.enqueue_many([Item(number, expires=1, priority=9) for number in range(2_500)])
        clock.advance(1)
        assert len(queue.claim_batch("w", 2_500)) == 2_500
        assert queue.claim_one("w") is None
        assert queue.sweep_expired() == 2_500

    def test_C8_many_lapsed_leases_never_make_a_batch_short(self, store: Any, clock: ManualClock) -> None:
        """2,500 lapsed leases, 2,500 parked groups: the next claim gets every one of them."""
        transport = store.transport("t")
        transport.publish_many([(f"g{number}", number) for number in range(5_000)])
        leases = transport.claim_batch("w", 5_000, 10)
        for lease in leases[::2]:
            assert lease.nack(10)
        clock.advance(10)
        assert transport.claim("w") is None
        clock.advance(0.000001)
        assert len(transport.claim_batch("w", 5_000)) == 5_000

    def test_C8_poisoned_heads_never_make_a_batch_short(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """1,500 groups whose only message is poison, then three good ones: all three come in one claim."""
        transport = opener(clock=clock).transport("t", max_deliveries=1)
        transport.publish_many([(f"bad{number}", number) for number in range(1_500)])
        transport.claim_batch("w", 1_500, 10)
        clock.advance(11)
        # Claimed groups go behind new ones, so the good ones take their turn first.
        transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
        for lease in transport.claim_batch("w", 3, 10):
            assert lease.release()
        assert [lease.event for lease in transport.claim_batch("w", 3)] == [1, 2, 3]
        assert transport.stats().dead == 1_500
