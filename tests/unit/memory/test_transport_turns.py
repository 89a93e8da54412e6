"""Turns, floors and leases of the memory transport (T1-T6)."""

from __future__ import annotations

import pytest

from .bench import Bench, publish, take


def drain(transport, n: int) -> list[str]:
    order = []
    for _ in range(n):
        claim = take(transport)
        if claim is None:
            break
        order.append(claim.group_id)
        assert transport.ack(claim)
    return order


def test_t3_fresh_groups_first_by_head_then_least_recently_claimed(bench: Bench) -> None:
    t = bench.transport()
    for group in "abc":
        publish(t, group, 1, 2, 3)
    assert drain(t, 2) == ["a", "b"]
    publish(t, "d", 1)
    # c was never claimed, d is newer than it; then a and b in the order of their claims.
    assert drain(t, 20) == ["c", "d", "a", "b", "c", "a", "b", "c"]


def test_t3_new_groups_last_enter_at_the_back(bench: Bench) -> None:
    t = bench.transport(new_groups="last")
    publish(t, "old", *range(4))
    order = []
    for i in range(6):
        publish(t, f"new{i}", 1)
        order += drain(t, 1)
    assert order == ["old", "new0", "old", "new1", "new2", "old"]


def test_t3_settling_out_of_order_keeps_the_order_of_claims(bench: Bench) -> None:
    t = bench.transport()
    for group in "abcd":
        publish(t, group, 1, 2)
    claims = t.claim("w", 4, 10, None)
    for claim in (claims[2], claims[0], claims[3], claims[1]):
        assert t.ack(claim)
    assert drain(t, 4) == ["a", "b", "c", "d"]


def test_t4_floor_hides_lower_groups_and_is_no_order(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "low", 1, priority=0)
    publish(t, "high", 1, priority=4)
    publish(t, "mid", 1, priority=2)
    assert [claim.group_id for claim in t.claim("w", 9, 10, 1)] == ["high", "mid"]
    assert take(t, floor=1) is None
    assert [claim.group_id for claim in t.claim("w", 9, 10, None)] == ["low"]


def test_t1_t6_the_deadline_belongs_to_the_holder_and_a_lapsed_lease_may_still_settle(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1, 2)
    claim = take(t, visibility=10)
    assert claim is not None
    bench.now += 9
    assert take(t) is None
    bench.now += 1
    assert take(t) is None
    assert t.extend([claim], 10) == [bench.now + 10]
    bench.now += 11
    assert t.extend([claim], 10) == [None]
    assert t.ack(claim)
    second = take(t, visibility=10)
    assert second is not None
    assert second.event == 2
    bench.now += 11
    third = take(t)
    assert third is not None
    assert third.deliveries == 2
    assert third.token > second.token
    assert not t.ack(second)
    assert not t.nack(second, 0, None)
    assert t.extend([second], 5) == [None]
    assert t.ack(third)


def test_lapsed_lease_settled_after_the_group_went_back_to_its_lane(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1, 2)
    publish(t, "h", 1, 2)
    claim = take(t, visibility=10)
    assert claim is not None
    assert claim.group_id == "g"
    bench.now += 11
    other = take(t)
    # g is free again and back in its lane when its late holder parks it.
    assert other is not None
    assert other.group_id == "h"
    assert t.nack(claim, 100, "late")
    assert take(t) is None
    assert t.next_due() == other.deadline + 1
    assert t.ack(other)
    bench.now += 100
    assert drain(t, 1) == ["h"]
    assert take(t) is None
    bench.now += 1
    again = take(t)
    assert again is not None
    assert (again.group_id, again.event, again.deliveries) == ("g", 1, 2)
    assert t.peek("g", 1)[0].last_error == "late"


def test_extend_may_shorten_and_next_due_is_exact(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1)
    claim = take(t, visibility=100)
    assert claim is not None
    assert t.extend([claim], 500) == [bench.now + 500]
    assert t.next_due() == bench.now + 501
    assert t.extend([claim], 7) == [bench.now + 7]
    assert t.next_due() == bench.now + 8
    bench.now += 7
    assert take(t) is None
    bench.now += 1
    assert take(t) is not None


def test_c9_a_clock_that_goes_back_gives_no_second_valid_lease(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1, 2)
    publish(t, "h", 1)
    claim = take(t, visibility=10)
    assert claim is not None
    bench.now += 50
    assert take(t).group_id == "h"
    bench.now -= 50
    # g went back to its lane, but its lease is valid again by this clock.
    assert take(t) is None
    assert t.next_due() == bench.now + 11
    assert t.extend([claim], 20) == [bench.now + 20]
    bench.now += 20
    assert take(t) is None
    assert t.ack(claim)
    again = take(t)
    assert again is not None
    assert again.event == 2


def test_t9_suspension_lives_apart_from_group_park_and_transport(bench: Bench) -> None:
    t = bench.transport()
    assert t.suspend("g")
    assert not t.suspend("g")
    publish(t, "g", 1)
    publish(t, "h", 1)
    assert drain(t, 5) == ["h"]
    assert t.groups(None, 9, None)[0].state == "suspended"
    assert t.suspend(None)
    assert not t.suspend(None)
    assert t.resume("g")
    assert not t.resume("g")
    assert take(t) is None
    assert t.next_due() is None
    assert t.explain("g").reason == "transport suspended"
    assert t.resume(None)
    assert not t.resume(None)
    held = take(t)
    assert held is not None
    t.suspend("g")
    assert t.nack(held, 50, None)
    t.resume("g")
    assert take(t) is None
    assert t.explain("g").reason == "parked"
    bench.now += 51
    assert take(t) is not None


def test_t5_t6_an_emptied_group_is_new_and_refuses_old_tokens(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1, priority=3)
    claim = take(t)
    assert claim is not None
    assert claim.priority == 3
    assert t.purge("g") == 1
    publish(t, "g", 2, priority=5)
    assert not t.ack(claim)
    assert not t.release(claim, 0)
    again = take(t)
    assert again is not None
    assert (again.priority, again.event) == (5, 2)


def test_release_gives_the_delivery_back_and_parks(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1)
    claim = take(t)
    assert claim is not None
    assert t.release(claim, 5)
    assert not t.release(claim, 5)
    assert t.groups("parked", 9, None)[0].until == bench.now + 5
    bench.now += 5
    assert take(t) is None
    bench.now += 1
    assert take(t).deliveries == 1


def test_t8_the_very_object_comes_out(bench: Bench) -> None:
    t = bench.transport()
    event = object()
    publish(t, "g", event)
    assert take(t).event is event


def test_t11_options_are_stored_at_the_first_writing_verb(bench: Bench) -> None:
    first, other = bench.transport(max_deliveries=2), bench.transport(max_deliveries=3)
    assert bench.transport().options().max_deliveries is None
    assert first.stats().groups == 0
    assert bench.engine.transports() == []
    publish(first, "g", 1)
    assert bench.engine.transports() == ["t"]
    with pytest.raises(ValueError, match=r"max_deliveries=2.*max_deliveries=3"):
        other.claim("w", 1, 10, None)
    first.configure({"max_deliveries": 9})
    assert take(first) is not None
    assert bench.transport().options().max_deliveries == 9


def test_many_linked_messages_are_purged_without_recursion(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", *range(300_000))
    assert t.purge("g") == 300_000
    assert t.stats().messages == 0
