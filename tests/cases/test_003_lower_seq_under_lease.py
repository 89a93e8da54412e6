"""A message that sorts before the one being worked on appears (kamu-data/kamu-cli 1398, patchlevel/event-sourcing 615).

On these engines a publish cannot commit late, but a redrive to the original place has the same effect.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import events, step_past


@pytest.fixture
def under_lease(store: Any) -> tuple[Any, Any]:
    """B of g is leased, A (which sorts first) has come back behind the consumer's back, C waits."""
    transport = store.transport("t")
    transport.publish_many([("g", "A"), ("g", "B"), ("g", "C")])
    assert transport.claim("w1").fail("for now")
    lease = transport.claim("w1")
    assert lease.event == "B"
    assert transport.redrive("all", position="original") == [lease.seq - 1]
    return transport, lease


def test_nothing_else_of_the_group_while_the_lease_is_valid(under_lease: tuple[Any, Any], clock: ManualClock) -> None:
    """The test is 'no valid lease anywhere in the group', not 'the first row is free'."""
    transport, lease = under_lease
    assert transport.claim("w2") is None
    clock.set(lease.deadline)
    assert transport.claim("w2") is None
    assert [group.state for group in transport.groups()] == ["leased"]


def test_ack_removes_exactly_the_leased_one(under_lease: tuple[Any, Any]) -> None:
    """The lease settles its own message; A follows once, then C."""
    transport, lease = under_lease
    assert lease.ack()
    assert [message.event for message in transport.peek("g", 10)] == ["A", "C"]
    assert events(transport) == ["A", "C"]


@pytest.mark.parametrize("verb", ["nack", "release", "retry"])
def test_giving_back_makes_the_lower_one_the_head(under_lease: tuple[Any, Any], verb: str, clock: ManualClock) -> None:
    """B goes back to its own place, which is now the second."""
    transport, lease = under_lease
    assert lease.retry("no", 0) if verb == "retry" else getattr(lease, verb)()
    assert events(transport) == ["A", "B", "C"]


def test_parking_blocks_the_group_although_the_head_is_another(
    under_lease: tuple[Any, Any], clock: ManualClock
) -> None:
    """A park holds the whole group, the new head too."""
    transport, lease = under_lease
    assert lease.nack(5)
    assert transport.claim("w2") is None
    step_past(clock, 5)
    assert events(transport) == ["A", "B", "C"]


def test_fail_takes_out_the_leased_one(under_lease: tuple[Any, Any]) -> None:
    """Not the head."""
    transport, lease = under_lease
    assert lease.fail("B is bad")
    assert [letter.event for letter in transport.dead_letters()] == ["B"]
    assert events(transport) == ["A", "C"]


def test_renewal_keeps_the_lease_on_its_own_message(under_lease: tuple[Any, Any], clock: ManualClock) -> None:
    """Renewed under the same token, still for B."""
    transport, lease = under_lease
    clock.advance(20)
    renewed = lease.extend(30)
    assert (renewed.event, renewed.token) == ("B", lease.token)
    clock.advance(20)
    assert transport.claim("w2") is None
    assert renewed.ack()
    assert events(transport) == ["A", "C"]


def test_lapsed_lease_nobody_took_still_settles_its_own(under_lease: tuple[Any, Any], clock: ManualClock) -> None:
    """T6: late, but not overtaken."""
    transport, lease = under_lease
    step_past(clock, 30)
    assert lease.ack()
    assert events(transport) == ["A", "C"]


def test_lapsed_lease_is_fenced_once_the_new_head_was_taken(under_lease: tuple[Any, Any], clock: ManualClock) -> None:
    """The next claim gets A; the old lease on B then settles nothing, although B itself was not given out again."""
    transport, lease = under_lease
    step_past(clock, 30)
    newer = transport.claim("w2")
    assert newer.event == "A"
    assert not lease.ack()
    assert not lease.nack()
    assert lease.extend(5) is None
    assert newer.ack()
    assert events(transport) == ["B", "C"]
