"""A group that ran empty returns to the rota in its fair place (localstack/localstack 10107)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

SETTINGS = ("first", "last")


def turns(transport: Any, times: int, before: Any = None, after: Any = None) -> list[str]:
    """The groups of so many claims, each acked at once."""
    found = []
    for number in range(times):
        if before is not None:
            before(number)
        lease = transport.claim("w")
        found.append(lease.group_id)
        assert lease.ack()
        if after is not None:
            after(lease)
    return found


@pytest.mark.parametrize("new_groups", SETTINGS)
def test_refilled_group_is_delivered_by_the_next_claim(store: Any, new_groups: Any) -> None:
    """Drained groups are not forgotten for ever, whichever way they ended."""
    transport = store.transport("t", new_groups=new_groups)
    transport.publish_many([("a", 1), ("b", 1), ("c", 1), ("d", 1)])
    assert turns(transport, 2) == ["a", "b"]
    assert transport.claim("w").fail("moved aside")
    assert transport.purge("d") == 1
    assert transport.claim("w") is None
    for group in ("a", "b", "c", "d"):
        transport.publish(group, 2)
        assert transport.claim("w").group_id == group
        transport.purge(group)


def refill(transport: Any) -> Any:
    return lambda lease: lease.group_id == "small" and transport.publish("small", "again")


def test_emptied_group_does_not_jump_the_line_with_last(store: Any) -> None:
    """Two ready groups alternate although one of them is new each time."""
    transport = store.transport("t", new_groups="last")
    transport.publish_many([("busy", n) for n in range(100)] + [("small", 0)])
    assert turns(transport, 100, after=refill(transport)) == ["busy", "small"] * 50


def test_emptied_group_goes_first_by_rule_with_first(store: Any) -> None:
    """The default favours new groups: one that is emptied and refilled each time comes before the busy one."""
    transport = store.transport("t")
    transport.publish_many([("busy", n) for n in range(100)] + [("small", 0)])
    assert turns(transport, 100, after=refill(transport)) == ["busy"] + ["small"] * 99


@pytest.mark.parametrize("new_groups", SETTINGS)
def test_group_that_never_runs_empty_alternates(store: Any, new_groups: Any) -> None:
    """Refilled before its last ack the group is no new one: both settings take turns."""
    transport = store.transport("t", new_groups=new_groups)
    transport.publish_many([("busy", n) for n in range(100)] + [("small", 0), ("small", 1)])
    assert turns(transport, 60, after=refill(transport)) == ["busy", "small"] * 30


@pytest.mark.parametrize("new_groups", SETTINGS)
def test_each_of_k_ready_groups_within_k_claims(store: Any, new_groups: Any) -> None:
    """Acks, nacks and releases alike keep the turn."""
    transport = store.transport("t", new_groups=new_groups)
    names = [f"g{n}" for n in range(7)]
    transport.publish_many([(name, n) for n in range(12) for name in names])
    found = []
    for number in range(70):
        lease = transport.claim("w")
        found.append(lease.group_id)
        assert (lease.ack, lease.nack, lease.release)[number % 3]()
    assert found == names * 10


def new_group(transport: Any) -> Any:
    return lambda number: transport.publish(f"new-{number}", 0)


def test_stream_of_new_groups_does_not_starve_an_old_one_with_last(store: Any) -> None:
    """It is served again within as many claims as there are ready groups."""
    transport = store.transport("t", new_groups="last")
    transport.publish_many([("old", n) for n in range(100)])
    ready_at: list[int] = []

    def publish(number: int) -> None:
        transport.publish(f"new-{number}", 0)
        ready_at.append(transport.stats().ready)

    found = turns(transport, 200, before=publish)
    served = [place for place, group in enumerate(found) if group == "old"]
    assert len(served) > 10
    for earlier, later in pairwise(served):
        assert later - earlier <= ready_at[earlier], f"old waited from claim {earlier} to {later}"


def test_stream_of_new_groups_starves_an_old_one_by_rule_with_first(store: Any) -> None:
    """The default: only the first claim is old's, every later one meets a group never claimed."""
    transport = store.transport("t")
    transport.publish_many([("old", n) for n in range(100)])
    assert turns(transport, 200, before=new_group(transport)) == ["old", *(f"new-{n}" for n in range(199))]
    assert turns(transport, 3) == ["new-199", "old", "old"]


@pytest.mark.parametrize("new_groups", SETTINGS)
def test_same_sequence_on_every_engine(tmp_path: Any, new_groups: Any) -> None:
    """One script of refills, parks and lapses gives one sequence, whatever the engine."""
    sequences = []
    for url in ("memory://?codec=json", f"sqlite:///{tmp_path / 'turns.db'}?durability=normal"):
        clock = ManualClock()
        with rota.open(url, clock=clock) as store:
            sequences.append(_script(store.transport("t", new_groups=new_groups), clock))
    assert sequences[0] == sequences[1]
    assert len(sequences[0]) > 100


def _script(transport: Any, clock: ManualClock) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for number in range(150):
        transport.publish(f"g{number * 7 % 11}", number)
        if number % 3 == 0:
            transport.publish(f"once-{number}", number)
        lease = transport.claim("w", visibility=5)
        if lease is None:
            clock.advance(1)
            continue
        found.append((lease.group_id, lease.event))
        if number % 5 == 0:
            assert lease.nack(2)
        elif number % 7:
            assert lease.ack()
        clock.advance(0.5)
    return found
