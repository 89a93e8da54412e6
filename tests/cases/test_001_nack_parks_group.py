"""A failed message stays at the head of its group and blocks it.

Seen in taskforcesh/bullmq 2774 and localstack/localstack 12457.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import MICROSECOND, events, step_past

DELAYED = {
    "nack": lambda lease: lease.nack(2),
    "retry": lambda lease: lease.retry("no", 2),
    "release": lambda lease: lease.release(delay=2),
}
AT_ONCE = {
    "nack": lambda lease: lease.nack(),
    "retry": lambda lease: lease.retry("no", 0),
    "release": lambda lease: lease.release(),
}


def claim_a(store: Any) -> tuple[Any, Any]:
    transport = store.transport("t")
    for group, event in (("g", "A"), ("g", "B"), ("g", "C"), ("h", "X")):
        transport.publish(group, event)
    lease = transport.claim("w1")
    assert lease.event == "A"
    return transport, lease


@pytest.mark.parametrize("worker", ["w1", "w2"])
@pytest.mark.parametrize("verb", DELAYED)
def test_parked_head_blocks_its_group_and_comes_back_first(
    store: Any, clock: ManualClock, verb: str, worker: str
) -> None:
    """While A is parked nothing of its group comes; then A, B, C in order, whoever claims."""
    transport, lease = claim_a(store)
    assert DELAYED[verb](lease)
    assert events(transport, worker) == ["X"]
    clock.advance(2)
    assert transport.claim(worker) is None, "the last instant of the delay still belongs to it"
    clock.advance(MICROSECOND)
    assert events(transport, worker) == ["A", "B", "C"]


@pytest.mark.parametrize("worker", ["w1", "w2"])
@pytest.mark.parametrize("verb", AT_ONCE)
def test_freed_head_is_the_next_of_its_group(store: Any, verb: str, worker: str) -> None:
    """Without a delay the group's next message is A again, not B."""
    transport, lease = claim_a(store)
    assert AT_ONCE[verb](lease)
    assert events(transport, worker) == ["X", "A", "B", "C"]


def test_lapsed_head_is_the_next_of_its_group(store: Any, clock: ManualClock) -> None:
    """A crash is no reason to overtake either."""
    transport, _ = claim_a(store)
    step_past(clock, 30)
    assert events(transport, "w2") == ["X", "A", "B", "C"]


def test_head_parked_again_and_again_is_never_overtaken(store: Any, clock: ManualClock) -> None:
    """The same through several parks, with messages published meanwhile."""
    transport, lease = claim_a(store)
    for round_ in range(5):
        assert lease.nack(1)
        transport.publish("g", f"late {round_}")
        assert transport.claim_batch("w2", 10) == [] or round_ == 0
        step_past(clock, 1)
        lease = next(one for one in transport.claim_batch("w1", 10) if one.group_id == "g")
        assert lease.event == "A"
        assert lease.deliveries == round_ + 2
    assert lease.ack()
    step_past(clock, 30)
    assert [event for event in events(transport) if event != "X"] == ["B", "C", *(f"late {n}" for n in range(5))]
