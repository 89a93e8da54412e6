"""A message that always fails neither locks its group for ever nor disturbs others.

Seen in localstack/localstack 3319 and graphile/worker 254.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import step_past

FAILURES = ("lapse", "nack", "park", "retry")


def go_wrong(lease: Any, how: str, clock: ManualClock) -> None:
    if how == "nack":
        assert lease.nack(error="no")
    elif how == "park":
        assert lease.nack(0.5)
    elif how == "retry":
        assert lease.retry("no")
    # Past every deadline, park and backoff of these rounds.
    step_past(clock, 600)


def published(transport: Any) -> Any:
    transport.publish_many([("g", "P"), ("g", "Q"), *(("h", f"R{n}") for n in range(1, 6))])
    return transport


def claim_of(transport: Any, group: str) -> Any:
    """The next lease of one group; those of other groups are given back."""
    leases = transport.claim_batch("w", 10, visibility=1)
    for lease in leases:
        assert lease.group_id == group or lease.release()
    return next((lease for lease in leases if lease.group_id == group), None)


@pytest.mark.parametrize("how", FAILURES)
def test_others_flow_and_the_next_one_follows_the_ack(store: Any, clock: ManualClock, how: str) -> None:
    """Five bad rounds with a rising count; once its consumer gives P up, Q is there at once."""
    transport = published(store.transport("t"))
    for round_ in range(1, 6):
        poison = transport.claim("w", visibility=1)
        assert (poison.event, poison.deliveries) == ("P", round_)
        other = transport.claim("w", visibility=1)
        assert other.event == f"R{round_}"
        assert other.ack()
        go_wrong(poison, how, clock)
    poison = transport.claim("w", visibility=1)
    assert (poison.event, poison.deliveries) == ("P", 6)
    assert poison.ack()
    assert [(group.group_id, group.state, group.until) for group in transport.groups()] == [("g", "ready", None)]
    follower = transport.claim("w")
    assert (follower.event, follower.deliveries) == ("Q", 1)
    assert follower.ack()
    assert transport.groups() == []


@pytest.mark.parametrize("how", FAILURES)
def test_dead_lettered_head_makes_room_in_the_same_claim(store: Any, clock: ManualClock, how: str) -> None:
    """With the transport's own limit Q comes from the very claim that finds P used up."""
    transport = published(store.transport("t", max_deliveries=5))
    for round_ in range(1, 6):
        poison = claim_of(transport, "g")
        assert (poison.event, poison.deliveries) == ("P", round_)
        go_wrong(poison, how, clock)
    assert claim_of(transport, "g").event == "Q"
    (letter,) = transport.dead_letters()
    assert (letter.event, letter.reason, letter.deliveries) == ("P", "max deliveries exceeded", 5)


def test_used_up_last_message_leaves_no_lock_behind(store: Any, clock: ManualClock) -> None:
    """The group is gone with it; a new message of that name is a new group, free at once."""
    transport = store.transport("t", max_deliveries=1)
    transport.publish("g", "P", 7)
    assert transport.claim("w", visibility=1).event == "P"
    step_past(clock, 1)
    assert transport.claim("w") is None
    assert transport.groups() == []
    transport.publish("g", "new", 1)
    lease = transport.claim("w")
    assert (lease.event, lease.priority, lease.deliveries) == ("new", 1, 1)


@pytest.mark.parametrize("ending", ["max deliveries", "fail"])
def test_hold_keeps_the_group_until_it_is_mended(store: Any, clock: ManualClock, ending: str) -> None:
    """poison="hold": later ones stay behind the bad one, others flow, and after the repair the order is the old one."""
    transport = published(store.transport("t", max_deliveries=1, poison="hold"))
    poison = transport.claim("w", visibility=1)
    if ending == "fail":
        assert poison.fail("bad")
    step_past(clock, 1)
    assert [transport.claim("w").event for _ in range(1)] == ["R1"]
    assert claim_of(transport, "g") is None
    assert [(group.group_id, group.state) for group in transport.groups(state="suspended")] == [("g", "suspended")]
    step_past(clock, 30)
    transport.redrive("all", position="original")
    assert claim_of(transport, "g") is None, "a redrive resumes nothing"
    assert transport.resume("g")
    first = claim_of(transport, "g")
    assert (first.event, first.deliveries) == ("P", 1)
    assert first.ack()
    assert claim_of(transport, "g").event == "Q"
