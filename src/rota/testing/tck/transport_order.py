"""T1-T5: one consumer per group, FIFO, turns, the priority floor, and how long a group exists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite, events, step


class TransportOrder(Suite):
    """Order in and between groups (T1-T5)."""

    # -- T1 ------------------------------------------------------------------------------------------------------------

    def test_T1_deadline_instant_belongs_to_the_holder(self, transport: Any, clock: ManualClock) -> None:
        """At the deadline's own instant the message is still in flight."""
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        for microseconds in (9_999_999, 1):
            step(clock, microseconds)
            assert transport.claim("v") is None
        assert clock.now() == lease.deadline
        assert lease.extend(10) is not None

    def test_T1_strictly_after_the_deadline_it_is_free(self, transport: Any, clock: ManualClock) -> None:
        """One microsecond after the deadline anyone may claim it."""
        transport.publish("g", 1)
        lease = transport.claim("w", 10)
        step(clock, 10_000_001)
        assert lease.extend(10) is None
        assert transport.claim("v").deliveries == 2

    def test_T1_a_park_ends_like_a_lease(self, transport: Any, clock: ManualClock) -> None:
        """A parked group is claimable strictly after its delay."""
        transport.publish("g", 1)
        assert transport.claim("w").nack(5)
        step(clock, 5_000_000)
        assert transport.claim("w") is None
        step(clock, 1)
        assert transport.claim("w").deliveries == 2

    def test_T1_one_message_in_flight_per_group(self, transport: Any) -> None:
        """While one message of a group is leased no other of it is handed out."""
        transport.publish_many([("g", 1), ("g", 2), ("h", 3)])
        assert [lease.event for lease in transport.claim_batch("w", 10)] == [1, 3]
        assert transport.claim("v") is None

    def test_T1_a_redriven_lower_message_waits_for_the_lease(self, transport: Any) -> None:
        """The test is 'no valid lease anywhere in the group', also when a lower seq appears meanwhile."""
        transport.publish_many([("g", "a"), ("g", "b"), ("g", "c")])
        assert transport.claim("w").fail()
        lease = transport.claim("w")
        assert lease.event == "b"
        transport.redrive("all", position="original")
        assert transport.claim("v") is None
        assert lease.ack()
        assert events(transport) == ["a", "c"]

    # -- T2 ------------------------------------------------------------------------------------------------------------

    def test_T2_messages_of_a_group_come_in_publish_order(self, transport: Any) -> None:
        """Publishes that do not overlap are delivered in publish order, and seq grows."""
        seqs = [transport.publish("g", number) for number in range(20)]
        seqs += transport.publish_many([("g", number) for number in range(20, 40)])
        assert seqs == sorted(set(seqs))
        assert events(transport) == list(range(40))

    def test_T2_nack_keeps_the_head(self, transport: Any) -> None:
        """A nacked message stays the head of its group."""
        transport.publish_many([("g", "a"), ("g", "b"), ("g", "c")])
        assert transport.claim("w").nack()
        assert events(transport) == ["a", "b", "c"]

    def test_T2_park_keeps_the_head_and_blocks_the_group(self, transport: Any, clock: ManualClock) -> None:
        """During a park nothing of the group comes; then the same message, whoever claims (case 001)."""
        transport.publish_many([("g", "a"), ("g", "b"), ("g", "c"), ("h", "x")])
        lease = transport.claim("w")
        assert lease.event == "a"
        assert lease.nack(2)
        assert events(transport) == ["x"]
        step(clock, 2_000_001)
        assert transport.claim("other").event == "a"
        clock.advance(31)
        assert events(transport) == ["a", "b", "c"]

    def test_T2_release_and_lapse_keep_the_head(self, transport: Any, clock: ManualClock) -> None:
        """A released or lapsed message stays the head."""
        transport.publish_many([("g", "a"), ("g", "b")])
        assert transport.claim("w").release()
        assert transport.claim("w", 1).event == "a"
        step(clock, 1_000_001)
        assert transport.claim("w").event == "a"

    def test_T2_ack_of_a_lapsed_lease_removes_its_own_seq(self, transport: Any, clock: ManualClock) -> None:
        """A lease settles the message it was given, though a lower one became the head."""
        transport.publish_many([("g", "a"), ("g", "b")])
        assert transport.claim("w").fail()
        lease = transport.claim("w", 1)
        transport.redrive("all", position="original")
        clock.advance(5)
        assert lease.ack()
        assert events(transport) == ["a"]

    # -- T3 ------------------------------------------------------------------------------------------------------------

    def test_T3_new_groups_first_in_order_of_their_heads(self, transport: Any) -> None:
        """Groups never claimed go before all claimed ones, lowest head seq first."""
        transport.publish_many([("old", 1), ("old", 2)])
        assert transport.claim("w").ack()
        transport.publish_many([("z", 3), ("a", 4), ("m", 5)])
        assert [transport.claim("w").group_id for _ in range(4)] == ["z", "a", "m", "old"]

    def test_T3_the_least_recently_claimed_group_goes_first(self, transport: Any) -> None:
        """Among groups already claimed the order is that of the claims."""
        transport.publish_many([(group, number) for number in range(4) for group in "abc"])
        order = []
        for _ in range(12):
            lease = transport.claim("w")
            order.append(lease.group_id)
            assert lease.ack()
        assert order == list("abc" * 4)

    def test_T3_settling_does_not_move_a_group(self, transport: Any, clock: ManualClock) -> None:
        """Only claims move a group to the back: not ack, nack, park, lapse, release, fail or extend."""
        transport.publish_many([(group, number) for group in "abcdefg" for number in range(3)])
        leases = {lease.group_id: lease for lease in transport.claim_batch("w", 7, 10)}
        # Settled in another order than claimed.
        assert leases["g"].ack()
        assert leases["f"].nack()
        assert leases["e"].release()
        assert leases["d"].nack(5)
        assert leases["c"].fail()
        assert leases["b"].extend(11) is not None
        clock.advance(12)
        assert [lease.group_id for lease in transport.claim_batch("w", 7)] == list("abcdefg")

    def test_T3_order_holds_under_a_standing_and_a_backward_clock(self, transport: Any, clock: ManualClock) -> None:
        """'Recently' is a counter, not a time."""
        transport.publish_many([(group, number) for number in range(6) for group in "abc"])
        order = []
        for number in range(18):
            if number % 4 == 3:
                clock.advance(-10)
            lease = transport.claim("w")
            order.append(lease.group_id)
            assert lease.ack()
        assert order == list("abc" * 6)

    def test_T3_a_batch_takes_groups_in_turn(self, transport: Any) -> None:
        """claim_batch hands out one message of each group, in the order of their turns."""
        transport.publish_many([(group, group) for group in "abcd"])
        first = transport.claim_batch("w", 2)
        assert [lease.group_id for lease in first] == ["a", "b"]
        for lease in first:
            assert lease.nack()
        assert [lease.group_id for lease in transport.claim_batch("w", 4)] == ["c", "d", "a", "b"]

    def test_T3_busy_and_small_alternate(self, transport: Any) -> None:
        """A group that is refilled before it runs empty alternates with a busy one (case 004)."""
        transport.publish_many([("busy", number) for number in range(100)] + [("small", 0), ("small", 1)])
        order = []
        for number in range(100):
            lease = transport.claim("w")
            order.append(lease.group_id)
            if lease.group_id == "small":
                transport.publish("small", number)
            assert lease.ack()
        assert order == ["busy", "small"] * 50

    def test_T3_first_lets_a_refilled_group_go_before_claimed_ones(self, transport: Any) -> None:
        """new_groups="first": a group that ran empty comes back as new, before those already claimed."""
        transport.publish_many([("busy", number) for number in range(10)] + [("small", 0)])
        order = []
        for number in range(6):
            lease = transport.claim("w")
            order.append(lease.group_id)
            assert lease.ack()
            if lease.group_id == "small":
                transport.publish("small", number)
        assert order == ["busy", "small", "small", "small", "small", "small"]

    def test_T3_last_does_not_let_new_groups_starve_old_ones(self, store: Any) -> None:
        """new_groups="last": a group is passed over at most once by each other, however many new ones arrive."""
        transport = store.transport("t", new_groups="last")
        transport.publish_many([("old", number) for number in range(100)])
        order = []
        for number in range(60):
            transport.publish(f"new{number}", number)
            lease = transport.claim("w")
            order.append(lease.group_id)
            assert lease.ack()
        served = [place for place, group in enumerate(order) if group == "old"]
        assert order[:3] == ["old", "new0", "old"]
        # As many claims as there are groups ready in between: the backlog of new ones, each once.
        newcomers = [group for group in order if group != "old"]
        assert newcomers == [f"new{number}" for number in range(len(newcomers))]
        assert len(served) >= 5
        for left, right in pairwise(served):
            between = order[left + 1 : right]
            assert len(between) == len(set(between))

    def test_T3_last_serves_every_group_within_one_round(self, store: Any) -> None:
        """new_groups="last": with k ready groups each one is claimed within any k claims in a row (case 004)."""
        transport = store.transport("t", new_groups="last")
        groups = [f"g{number}" for number in range(7)]
        transport.publish_many([(group, number) for number in range(5) for group in groups])
        order = []
        for _ in range(35):
            lease = transport.claim("w")
            order.append(lease.group_id)
            assert lease.ack()
        assert all(set(order[start : start + 7]) == set(groups) for start in range(0, 28, 7))

    def test_T3_last_enters_as_if_just_claimed(self, store: Any) -> None:
        """new_groups="last": a new group stands behind every group that is there, claimed or not."""
        transport = store.transport("t", new_groups="last")
        transport.publish_many([("a", 1), ("a", 2), ("b", 3)])
        assert transport.claim("w").ack()
        transport.publish("c", 4)
        assert [transport.claim("w").group_id for _ in range(3)] == ["b", "a", "c"]

    # -- T4 ------------------------------------------------------------------------------------------------------------

    def test_T4_priority_is_a_floor_not_an_order(self, transport: Any) -> None:
        """Among the groups above the floor the turn alone decides."""
        transport.publish("low", 1, 0)
        transport.publish("mid", 2, 5)
        transport.publish("high", 3, 9)
        assert transport.claim("w", 30, 5).group_id == "mid"
        assert transport.claim("w").group_id == "low"
        assert transport.claim("w", min_priority=9).group_id == "high"

    def test_T4_the_floor_itself_is_admitted(self, transport: Any) -> None:
        """A group exactly at the floor is claimable, one below is hidden."""
        transport.publish("g", 1, 3)
        assert transport.claim("w", min_priority=4) is None
        assert transport.claim("w", min_priority=3).priority == 3

    def test_T4_the_floor_holds_in_batches(self, transport: Any) -> None:
        """claim_batch obeys the floor for every lease."""
        transport.publish_many([(f"g{number}", number, number % 3) for number in range(9)])
        assert [lease.event for lease in transport.claim_batch("w", 9, 30, 2)] == [2, 5, 8]

    def test_T4_negative_priorities_are_below_a_floor_of_zero(self, transport: Any) -> None:
        """None is no floor; 0 is one."""
        transport.publish("g", 1, -1)
        assert transport.claim("w", min_priority=0) is None
        assert transport.claim("w", min_priority=None).event == 1

    def test_T4_an_urgent_group_behind_thousands_is_found(self, transport: Any) -> None:
        """The one group above the floor is found behind 5,000 below it (case 006)."""
        transport.publish_many([(f"g{number}", number) for number in range(5_000)])
        transport.publish("urgent", "!", 4)
        assert transport.claim("w", min_priority=3).event == "!"
        assert transport.claim("w", min_priority=1) is None

    def test_T4_a_free_group_behind_thousands_in_flight_is_found(self, transport: Any) -> None:
        """The one free group is found behind 5,000 leased and parked ones (case 006)."""
        transport.publish_many([(f"g{number}", number) for number in range(5_000)])
        for lease in transport.claim_batch("w", 5_000)[:50]:
            assert lease.nack(60)
        transport.publish("free", "!")
        assert transport.claim("w", min_priority=0).event == "!"
        assert transport.claim("w") is None

    # -- T5 ------------------------------------------------------------------------------------------------------------

    def test_T5_the_creating_publish_fixes_the_priority(self, transport: Any) -> None:
        """Later publishes cannot change a group's priority (case 006)."""
        transport.publish("g", 1, 0)
        transport.publish("g", 2, 4)
        assert transport.claim("w", min_priority=3) is None
        lease = transport.claim("w")
        assert (lease.event, lease.priority) == (1, 0)
        assert lease.ack()
        assert transport.claim("w").priority == 0

    def test_T5_an_emptied_group_forgets_priority_and_turn(self, transport: Any) -> None:
        """When the last message goes the group is gone; the next publish makes a new one."""
        transport.publish_many([("g", 1, 0), ("h", 2), ("h", 3)])
        for _ in range(2):
            assert transport.claim("w").ack()
        transport.publish("g", 4, 7)
        lease = transport.claim("w")
        assert (lease.group_id, lease.priority, lease.deliveries) == ("g", 7, 1)

    def test_T5_purge_and_fail_empty_a_group_too(self, transport: Any) -> None:
        """It does not matter how the last message went."""
        ways: list[Callable[[], Any]] = [lambda: transport.purge("g"), lambda: transport.claim("w").fail()]
        for empty in ways:
            transport.publish("g", 1, 1)
            empty()
            assert transport.groups() == []
            transport.publish("g", 2, 2)
            assert transport.groups()[0].priority == 2
            transport.purge("g")

    def test_T5_an_emptied_group_comes_back(self, transport: Any) -> None:
        """A drained group is delivered again on the next claim after a publish (case 004)."""
        transport.publish_many([("a", 1), ("b", 2), ("c", 3)])
        assert events(transport) == [1, 2, 3]
        transport.publish("a", 4)
        assert transport.claim("w").event == 4
