"""T6, T7 and the verbs of a lease: fencing, settling, parking, retrying, poison."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite, events, step

_SETTLING: dict[str, Callable[[Any], Any]] = {
    "ack": lambda lease: lease.ack(),
    "nack": lambda lease: lease.nack(),
    "park": lambda lease: lease.nack(5),
    "retry": lambda lease: lease.retry("again", 0),
    "release": lambda lease: lease.release(),
    "fail": lambda lease: lease.fail("no"),
}
settling = pytest.mark.parametrize("settle", _SETTLING.values(), ids=_SETTLING.keys())


class TransportLeases(Suite):
    """Leases (T6, T7)."""

    def test_T6_a_lease_shows_what_was_claimed(self, transport: Any, clock: ManualClock) -> None:
        """Every field of the lease."""
        published = clock.now()
        seq = transport.publish("g", {"n": 1}, 3, headers={"trace": "abc"})
        clock.advance(2)
        lease = transport.claim("w-1", 10)
        assert (lease.seq, lease.group_id, lease.event, lease.worker_id) == (seq, "g", {"n": 1}, "w-1")
        assert (lease.deliveries, lease.priority, lease.headers) == (1, 3, {"trace": "abc"})
        assert (lease.published_at, lease.deadline) == (published, clock.now() + 10)
        assert type(lease.token) is int

    def test_T6_without_a_worker_id_one_is_made(self, transport: Any) -> None:
        """worker_id=None becomes host-pid-random."""
        transport.publish("g", 1)
        assert transport.claim().worker_id.count("-") >= 2

    @settling
    def test_T6_settling_spends_the_token(self, transport: Any, settle: Any) -> None:
        """After any settlement every other one by the same lease changes nothing and returns False."""
        transport.publish_many([("g", 1), ("g", 2)])
        lease = transport.claim("w")
        assert settle(lease) is True
        before = (transport.stats(), transport.peek("g"))
        for again in _SETTLING.values():
            assert again(lease) is False
        assert lease.extend(60) is None
        assert (transport.stats(), transport.peek("g")) == before

    @settling
    def test_T6_a_lapsed_lease_nobody_took_may_be_settled(
        self, transport: Any, clock: ManualClock, settle: Any
    ) -> None:
        """Settling works after the deadline while the token is still the group's; extend does not."""
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        clock.advance(3_600)
        assert lease.extend(10) is None
        assert settle(lease) is True

    @settling
    def test_T6_a_lease_that_was_taken_over_settles_nothing(
        self, transport: Any, clock: ManualClock, settle: Any
    ) -> None:
        """Once the group was claimed anew the old token is dead, by the same worker id too (case 009)."""
        transport.publish("g", 1)
        old = transport.claim("pod-0", 1)
        step(clock, 1_000_001)
        new = transport.claim("pod-0", 60)
        assert new.token > old.token
        assert settle(old) is False
        assert old.extend(60) is None
        assert new.extend(60) is not None
        assert new.ack()

    def test_T6_extend_keeps_the_token_and_resets_the_deadline(self, transport: Any, clock: ManualClock) -> None:
        """deadline = now + visibility, longer or shorter; the old lease object stays good as well."""
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        clock.advance(4)
        longer = transport.extend(lease, 100)
        assert (longer.token, longer.deadline, longer.event) == (lease.token, clock.now() + 100, 1)
        shorter = longer.extend(1)
        assert shorter.deadline == clock.now() + 1
        step(clock, 1_000_000)
        assert transport.claim("v") is None
        step(clock, 1)
        assert transport.claim("v") is not None
        assert not longer.ack()

    def test_T6_extend_at_the_deadline_and_after(self, transport: Any, clock: ManualClock) -> None:
        """The deadline's own instant can still be renewed, the next microsecond cannot."""
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        step(clock, 10_000_000)
        lease = lease.extend(10)
        step(clock, 10_000_001)
        assert lease.extend(10) is None

    def test_T6_extend_batch_says_which_are_lost(self, transport: Any, clock: ManualClock) -> None:
        """One answer per lease, None for a lost one."""
        transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
        leases = transport.claim_batch("w", 3, 10)
        assert leases[1].ack()
        clock.advance(1)
        renewed = transport.extend_batch(leases, 10)
        assert [lease and lease.group_id for lease in renewed] == ["a", None, "c"]
        assert renewed[0].deadline == clock.now() + 10

    def test_T6_ack_batch_counts_what_was_valid(self, transport: Any) -> None:
        """Each lease once; spent and repeated ones are passed over."""
        transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
        leases = transport.claim_batch("w", 3)
        assert leases[0].ack()
        assert transport.ack_batch([*leases, leases[1]]) == 2
        assert transport.stats().messages == 0

    def test_T6_tokens_grow_over_all_groups(self, transport: Any) -> None:
        """One counter that never goes back."""
        tokens = []
        for number in range(10):
            transport.publish(f"g{number % 3}", number)
            lease = transport.claim("w")
            tokens.append(lease.token)
            assert lease.ack()
        assert tokens == sorted(set(tokens))

    def test_T6_a_new_group_of_the_same_name_does_not_know_old_tokens(self, transport: Any) -> None:
        """A lease of a purged group settles nothing in the group that came after it."""
        transport.publish("g", "old")
        old = transport.claim("w")
        assert transport.purge("g") == 1
        transport.publish("g", "new")
        assert not old.ack()
        assert old.extend(10) is None
        new = transport.claim("w")
        assert new.event == "new"
        assert not old.nack()
        assert new.ack()

    def test_T6_foreign_leases_settle_nothing(self, store: Any, clock: ManualClock) -> None:
        """A lease of another transport changes nothing here, whatever its seq and token."""
        one, two = store.transport("one"), store.transport("two")
        one.publish("g", 1)
        two.publish("g", 2)
        first, second = one.claim("w"), two.claim("w")
        assert not two.ack(first)
        assert not one.nack(second)
        assert not one.fail(second)
        assert not one.release(second)
        assert one.extend(second, 5) is None
        assert two.ack_batch([first]) == 0
        assert first.ack()
        assert second.ack()

    def test_T6_verbs_of_transport_and_lease_are_the_same(self, store: Any) -> None:
        """transport.verb(lease) is lease.verb(), through any handle of that transport."""
        transport, again = store.transport("t"), store.transport("t")
        for settle in (again.ack, again.fail, again.release, again.nack, again.retry):
            transport.publish("g", 1)
            lease = transport.claim("w")
            assert settle(lease) is True
            assert settle(lease) is False
            transport.purge("g")

    # -- The verbs -----------------------------------------------------------------------------------------------------

    def test_T6_release_does_not_count_the_delivery(self, transport: Any, clock: ManualClock) -> None:
        """A released delivery is given back; with a delay the group is parked."""
        transport.publish("g", 1)
        for _ in range(3):
            lease = transport.claim("w")
            assert lease.deliveries == 1
            assert lease.release()
        assert transport.claim("w").release(delay=5)
        assert transport.groups()[0].state == "parked"
        step(clock, 5_000_001)
        assert transport.claim("w").deliveries == 1

    def test_T6_errors_are_kept_on_the_message(self, transport: Any) -> None:
        """nack and retry with an error set it, without one keep the old one; the letter shows both."""
        transport.publish("g", 1)
        assert transport.claim("w").nack(error="first")
        assert transport.peek("g")[0].last_error == "first"
        assert transport.claim("w").nack()
        assert transport.peek("g")[0].last_error == "first"
        assert transport.claim("w").retry(ValueError("second"), 0)
        assert transport.peek("g")[0].last_error == "ValueError: second"
        assert transport.claim("w").fail("third")
        letter = transport.dead_letters()[0]
        assert (letter.last_error, letter.previous_error) == ("third", "ValueError: second")

    def test_T6_retry_follows_the_curve_over_deliveries(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """Without a delay retry parks for the backoff of Q8, with one for exactly that."""
        transport = opener(clock=clock, rng=random.Random(7)).transport("t", backoff_base=2)
        transport.publish("g", 1)
        for low, high in ((1, 2), (2, 4), (4, 8)):
            assert transport.claim("w").retry("again")
            until = transport.groups()[0].until
            assert low <= until - clock.now() <= high
            clock.advance(until - clock.now() + 1)
        assert transport.claim("w").retry(delay=42)
        assert transport.groups()[0].until == clock.now() + 42

    # -- T7 ------------------------------------------------------------------------------------------------------------

    def test_T7_deliveries_count_claims(self, transport: Any, clock: ManualClock) -> None:
        """Nacks and lapses count, releases do not; without a maximum there is no end (case 005)."""
        transport.publish_many([("g", "p"), ("g", "q")])
        for number in range(1, 6):
            lease = transport.claim("w", 1)
            assert lease.deliveries == number
            if number % 2:
                assert lease.nack()
            else:
                clock.advance(2)
        assert transport.claim("w").ack()
        lease = transport.claim("w")
        assert (lease.event, lease.deliveries) == ("q", 1)

    def test_T7_other_groups_flow_while_one_fails(self, transport: Any, clock: ManualClock) -> None:
        """A head that fails for ever blocks its own group alone (case 005)."""
        transport.publish_many([("g", "p"), *[("h", number) for number in range(5)]])
        flown = []
        for _ in range(5):
            for lease in transport.claim_batch("w", 2, 1):
                if lease.group_id == "h":
                    flown.append(lease.event)
                    assert lease.ack()
            clock.advance(2)
        assert flown == list(range(5))
        assert transport.claim("w").deliveries == 6

    def test_T7_poison_is_dead_lettered_and_the_group_goes_on(self, store: Any, clock: ManualClock) -> None:
        """A head delivered N times is dead-lettered by the next claim, which hands out the next message."""
        transport = store.transport("t", max_deliveries=2)
        transport.publish_many([("g", "bad"), ("g", "good")])
        assert transport.claim("w").nack(error="e1")
        assert transport.claim("w").nack(error="e2")
        assert transport.stats().dead == 0
        assert transport.claim("w").event == "good"
        letter = transport.dead_letters()[0]
        assert (letter.event, letter.deliveries, letter.previous_error) == ("bad", 2, "e2")
        assert letter.reason == letter.last_error == "max deliveries exceeded"
        assert letter.died_at == clock.now()

    def test_T7_poison_alone_in_its_group_gives_the_turn_to_the_next(self, store: Any) -> None:
        """The group is gone and the same claim goes on: a batch never comes back short."""
        transport = store.transport("t", max_deliveries=1)
        transport.publish_many([("a", "bad"), ("b", "good")])
        for lease in transport.claim_batch("w", 2):
            assert lease.nack() if lease.event == "bad" else lease.release()
        assert [lease.event for lease in transport.claim_batch("w", 1)] == ["good"]
        assert [group.group_id for group in transport.groups()] == ["b"]

    def test_T7_poison_after_a_lapse_spends_the_old_lease(self, store: Any, clock: ManualClock) -> None:
        """The holder of a lapsed last delivery cannot settle what was dead-lettered."""
        transport = store.transport("t", max_deliveries=1)
        transport.publish("g", 1)
        lease = transport.claim("w", 1)
        clock.advance(2)
        assert transport.claim("v") is None
        assert not lease.ack()
        assert transport.stats().dead == 1

    def test_T7_released_deliveries_do_not_poison(self, store: Any) -> None:
        """Only counted deliveries add up."""
        transport = store.transport("t", max_deliveries=1)
        transport.publish("g", 1)
        for _ in range(5):
            assert transport.claim("w").release()
        assert transport.claim("w").deliveries == 1

    def test_T7_hold_suspends_the_group_behind_the_poison(self, store: Any) -> None:
        """poison="hold": the group is suspended, later messages stay behind; other groups go on in that claim."""
        transport = store.transport("t", max_deliveries=1, poison="hold")
        transport.publish_many([("g", "bad"), ("g", "next"), ("h", "other")])
        assert transport.claim("w").nack()
        assert transport.claim("w").release()
        # Both were claimed; g's turn comes first and it is poisoned.
        assert [lease.event for lease in transport.claim_batch("w", 2)] == ["other"]
        states = {group.group_id: group.state for group in transport.groups()}
        assert states == {"g": "suspended", "h": "leased"}
        assert [message.event for message in transport.peek("g")] == ["next"]

    def test_T7_hold_counts_for_fail_too(self, store: Any) -> None:
        """poison="hold": fail suspends the group as well."""
        transport = store.transport("t", poison="hold")
        transport.publish_many([("g", "bad"), ("g", "next")])
        assert transport.claim("w").fail("broken")
        assert transport.claim("w") is None
        assert transport.explain("g").reason == "suspended"

    def test_T7_hold_continues_in_order_after_redrive_and_resume(self, store: Any) -> None:
        """redrive(position="original") and resume deliver the failed message first again."""
        transport = store.transport("t", poison="hold")
        transport.publish_many([("g", 1), ("g", 2), ("g", 3)])
        assert transport.claim("w").fail()
        transport.redrive("all", position="original")
        assert transport.claim("w") is None
        assert transport.resume("g") is True
        assert events(transport) == [1, 2, 3]

    def test_T7_letters_keep_the_groups_priority(self, store: Any) -> None:
        """A redriven message whose group is gone makes it anew with that priority."""
        transport = store.transport("t")
        transport.publish("g", 1, 6)
        assert transport.claim("w").fail()
        assert transport.dead_letters()[0].priority == 6
        transport.redrive("all")
        assert transport.claim("w", min_priority=6).priority == 6
