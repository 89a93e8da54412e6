"""C1-C5, C7-C9: the clock, exact instants, nothing in the background, and a clock that goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rota.testing.clock import ManualClock
from rota.testing.tck.base import MICROSECOND, Started, Suite, events, payloads, step


class ClockClauses(Suite):
    """The clock (C)."""

    # -- C1 ------------------------------------------------------------------------------------------------------------

    def test_C1_fractions_are_rounded_to_whole_microseconds(self, queue: Any, clock: ManualClock) -> None:
        """Every number of seconds is rounded to whole microseconds where it enters."""
        job = queue.get_job(queue.enqueue(1, delay=0.1 + 0.2, visibility=1.0000004))
        assert job.run_at == round(clock.now() * 1_000_000 + 300_000) / 1_000_000
        assert job.visibility == 1.0

    def test_C1_domains_are_checked_after_rounding(self, queue: Any, transport: Any) -> None:
        """A visibility that rounds to nothing is no visibility."""
        for tiny in (0.0000004, 1e-12, 5e-324):
            with pytest.raises(ValueError, match="visibility"):
                queue.enqueue(1, visibility=tiny)
            with pytest.raises(ValueError, match="visibility"):
                transport.claim("w", tiny)
        assert queue.stats().pending == 0

    def test_C1_a_delay_ends_at_its_very_microsecond(self, queue: Any, clock: ManualClock) -> None:
        """A delayed job is claimable at its ready time, not one microsecond before."""
        queue.enqueue("later", delay=0.1)
        step(clock, 99_999)
        assert queue.claim_one("w") is None
        step(clock, 1)
        assert queue.claim_one("w").payload == "later"

    def test_C1_instants_are_exact_far_from_now(self, queue: Any) -> None:
        """Instants before 1970 and thousands of years ahead are kept to the microsecond."""
        for moment in (
            datetime(1931, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ):
            job = queue.get_job(queue.enqueue(1, run_at=moment))
            exact = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND
            assert job.run_at == exact / 1_000_000

    # -- C2 ------------------------------------------------------------------------------------------------------------

    def test_C2_durations_are_numbers_or_timedeltas(self, queue: Any, clock: ManualClock) -> None:
        """int, float and timedelta mean the same duration."""
        for delay in (90, 90.0, timedelta(seconds=90)):
            assert queue.get_job(queue.enqueue(1, delay=delay)).run_at == clock.now() + 90

    def test_C2_instants_are_posix_seconds_or_aware_datetimes(self, queue: Any) -> None:
        """One instant in any zone, or as POSIX seconds, is stored equal."""
        utc = datetime(2024, 7, 1, 12, 0, tzinfo=UTC)
        sydney = utc.astimezone(timezone(timedelta(hours=10)))
        for moment in (utc, sydney, utc.timestamp(), int(utc.timestamp())):
            record = queue.get_job(queue.enqueue(1, run_at=moment))
            assert record.run_at == utc.timestamp()
            assert type(record.run_at) is float

    def test_C2_naive_datetimes_are_refused(self, queue: Any) -> None:
        """A naive datetime is refused and the message says how to make it aware."""
        with pytest.raises(ValueError, match=r"aware"):
            queue.enqueue(1, run_at=datetime(2024, 7, 1, 12, 0))
        assert queue.stats().pending == 0

    @pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
    def test_C2_nan_and_infinities_are_refused(self, queue: Any, transport: Any, odd: float) -> None:
        """NaN and infinities are no durations and no instants."""
        for option in ("delay", "run_at", "expires", "visibility"):
            with pytest.raises(ValueError, match=option):
                queue.enqueue(1, **{option: odd})
        with pytest.raises(ValueError, match="visibility"):
            transport.claim("w", odd)
        assert queue.stats().pending == 0

    def test_C2_bool_is_no_number(self, queue: Any, transport: Any) -> None:
        """True is refused where a number is wanted."""
        for option in ("delay", "run_at", "expires", "visibility", "priority", "max_attempts"):
            with pytest.raises(TypeError, match=option):
                queue.enqueue(1, **{option: True})
        with pytest.raises(TypeError, match="priority"):
            transport.publish("g", 1, True)
        with pytest.raises(TypeError):
            queue.claim_batch("w", True)
        assert queue.stats().pending == 0
        assert transport.stats().messages == 0

    # -- C3, C4 --------------------------------------------------------------------------------------------------------

    def test_C3_the_stores_clock_decides(self, store: Any, clock: ManualClock) -> None:
        """An injected clock stamps and judges everything."""
        queue, transport = store.queue("q"), store.transport("t")
        clock.set(5_000)
        record = queue.get_job(queue.enqueue(1))
        assert record.enqueued_at == record.run_at == 5_000.0
        transport.publish("g", 1)
        assert transport.claim("w", 30).deadline == 5_030.0

    def test_C3_the_default_is_the_real_clock(self, opener: Callable[..., Any]) -> None:
        """Without an injected clock instants are those of time.time()."""
        queue = opener().queue("q")
        before = time.time()
        record = queue.get_job(queue.enqueue(1))
        assert before - 5 <= record.enqueued_at <= time.time() + 5

    def test_C3_any_object_with_now_is_a_clock(self, opener: Callable[..., Any]) -> None:
        """A clock is anything that tells POSIX seconds."""

        class Fixed:
            def now(self) -> float:
                return 1234.5

        queue = opener(clock=Fixed()).queue("q")
        assert queue.get_job(queue.enqueue(1)).enqueued_at == 1234.5

    def test_C4_advancing_wakes_who_waits(self, store: Any, clock: ManualClock) -> None:
        """A waiting claim sees at once that the clock was moved to its item's ready time."""
        queue = store.queue("q")
        queue.enqueue("later", delay=3_600)
        waiting = Started(queue.claim_one, "w", wait=30)
        time.sleep(0.05)
        assert waiting.running
        clock.advance(3_600)
        assert waiting.result(2).payload == "later"

    def test_C4_wait_is_real_time_under_a_standing_clock(self, queue: Any) -> None:
        """wait= counts real seconds, whatever the clock."""
        begun = time.monotonic()
        assert queue.claim_one("w", wait=0.2) is None
        assert 0.19 <= time.monotonic() - begun < 2

    def test_C4_autojump_moves_to_what_is_due(self, opener: Callable[..., Any]) -> None:
        """With autojump a wait takes no real time: the clock jumps to the next item that is due."""
        clock = ManualClock(autojump=True)
        store = opener(clock=clock)
        queue, start = store.queue("q"), clock.now()
        queue.enqueue("tomorrow", delay=86_400)
        begun = time.monotonic()
        assert queue.claim_one("w", wait=100_000).payload == "tomorrow"
        assert clock.now() == start + 86_400
        assert time.monotonic() - begun < 5

    def test_C4_autojump_counts_a_deadline_plus_one_microsecond(self, opener: Callable[..., Any]) -> None:
        """A lapsed lease or claim becomes claimable one microsecond after its deadline."""
        clock = ManualClock(autojump=True)
        store = opener(clock=clock)
        transport, queue, start = store.transport("t"), store.queue("q"), clock.now()
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        assert transport.claim("v", 50, wait=60).seq == lease.seq
        assert clock.now() == start + 10.000001
        queue.enqueue(1)
        queue.claim_one("w", visibility=5)
        assert queue.claim_one("v", wait=60).attempts == 2
        assert clock.now() == start + 15.000002

    def test_C4_autojump_ends_with_the_wait(self, opener: Callable[..., Any]) -> None:
        """When nothing becomes claimable the clock stops at the end of the wait."""
        clock = ManualClock(autojump=True)
        queue, start = opener(clock=clock).queue("q"), clock.now()
        queue.enqueue(1, delay=100)
        assert queue.claim_one("w", wait=60) is None
        assert clock.now() == start + 60

    # -- C5, C7 --------------------------------------------------------------------------------------------------------

    def test_C5_expiry_needs_no_sweeper(self, store: Any, clock: ManualClock) -> None:
        """Lapsed leases and claims are found by the claims themselves, long after, with nobody sweeping."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("j")
        transport.publish("g", "m")
        queue.claim_one("w")
        transport.claim("w")
        clock.advance(10**6)
        assert queue.claim_one("v").attempts == 2
        assert transport.claim("v").deliveries == 2

    def test_C7_one_verb_is_one_instant(self, store: Any) -> None:
        """All of one batch is stamped with the same now."""

        class Ticking:
            def __init__(self) -> None:
                self.time = 1_000.0

            def now(self) -> float:
                self.time += 1
                return self.time

        del store
        ticking = Ticking()
        other = self.open(clock=ticking)
        try:
            queue, transport = other.queue("ticking"), other.transport("ticking")
            ids = queue.enqueue_many([1, 2, 3])
            assert len({queue.get_job(id).enqueued_at for id in ids}) == 1
            assert len({job.claimed_at for job in queue.claim_batch("w", 3)}) == 1
            transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
            leases = transport.claim_batch("w", 3, 30)
            assert len({lease.published_at for lease in leases}) == 1
            assert len({lease.deadline for lease in leases}) == 1
        finally:
            other.close()

    # -- C9 ------------------------------------------------------------------------------------------------------------

    def test_C9_a_clock_that_goes_back_loses_nothing(self, store: Any, clock: ManualClock) -> None:
        """After a step back everything stored is still delivered once its time has come again."""
        queue, transport = store.queue("q"), store.transport("t")
        for number in range(5):
            queue.enqueue(number)
            transport.publish("g", number)
        held, lease = queue.claim_one("w"), transport.claim("w")
        clock.advance(-3_600)
        queue.enqueue(5)
        transport.publish("g", 5)
        assert held.ack()
        assert lease.ack()
        clock.advance(7_200)
        assert sorted(payloads(queue)) == [1, 2, 3, 4, 5]
        assert events(transport) == [1, 2, 3, 4, 5]

    def test_C9_no_two_valid_claims_after_a_step_back(self, store: Any, clock: ManualClock) -> None:
        """A claim that was treated as lapsed stays lost when the clock goes back into its time."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("j")
        transport.publish("g", "m")
        old_job, old_lease = queue.claim_one("w", visibility=10), transport.claim("w", 10)
        clock.advance(11)
        new_job, new_lease = queue.claim_one("w", visibility=10), transport.claim("w", 10)
        clock.advance(-8)
        assert not old_job.heartbeat()
        assert not old_job.ack()
        assert old_lease.extend(10) is None
        assert not old_lease.ack()
        assert new_job.heartbeat()
        assert new_lease.extend(10) is not None
        assert new_job.ack()
        assert new_lease.ack()

    def test_C9_tokens_grow_through_steps_back(self, store: Any, clock: ManualClock) -> None:
        """No token is ever reused, whatever the clock does."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("j")
        transport.publish("g", "m")
        jobs, leases = [], []
        for move in (5, -100, 50, -1_000, 0):
            clock.advance(move)
            job, lease = queue.claim_one("w"), transport.claim("w")
            if job is not None:
                jobs.append(job.token)
                assert job.release()
            if lease is not None:
                leases.append(lease.token)
                assert lease.release()
        assert leases == sorted(set(leases))
        assert len(leases) == 5
        assert jobs == sorted(set(jobs))
        assert jobs

    def test_C7_racing_claims_hand_out_each_item_once(self, store: Any) -> None:
        """Eight threads claim from one queue and one transport: each item goes to exactly one of them."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many(list(range(200)))
        transport.publish_many([(f"g{number % 20}", number) for number in range(200)])
        seen_jobs: list[int] = []
        seen_events: list[int] = []
        lock = threading.Lock()

        def work(name: str) -> None:
            while (job := queue.claim_one(name)) is not None:
                with lock:
                    seen_jobs.append(job.payload)
                assert job.ack()
            while transport.stats().messages:
                lease = transport.claim(name)
                if lease is not None:
                    with lock:
                        seen_events.append(lease.event)
                    assert lease.ack()

        for worker in [Started(work, f"w{number}") for number in range(8)]:
            worker.result(60)
        assert sorted(seen_jobs) == list(range(200))
        assert sorted(seen_events) == list(range(200))
