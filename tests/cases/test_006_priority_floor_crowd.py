"""The one claimable item behind a crowd of others is found, at the cost of a small crowd (acasadom/harel PR 50)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .steps import events, step_past

CROWD = 5_000


def fastest(call: Callable[[], Any], times: int = 25) -> float:
    """The shortest time of several calls in seconds: what the work costs, not what the machine was busy with."""
    spans = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        spans.append(time.perf_counter() - begin)
    return min(spans)


def assert_cost_stays(small: Callable[[], Any], large: Callable[[], Any]) -> None:
    """A crowd 500 times as large may not cost more than a few times as much."""
    few, many = fastest(small), fastest(large)
    assert many <= 8 * few + 0.0005, f"{many * 1e6:.0f} µs behind a crowd, {few * 1e6:.0f} µs without"


def urgent_behind(transport: Any, size: int) -> None:
    transport.publish_many([(f"old-{n}", n) for n in range(size)])
    transport.publish("urgent", "now", 4)


def claim_and_release(transport: Any, floor: int) -> None:
    lease = transport.claim("w", min_priority=floor)
    assert lease.group_id == "urgent"
    assert lease.release()


def test_urgent_group_behind_thousands_below_the_floor(plain: Any) -> None:
    """Found whatever the number of older groups the floor hides; T4's cost too."""
    few, many = plain.transport("few"), plain.transport("many")
    urgent_behind(few, 10)
    urgent_behind(many, CROWD)
    assert_cost_stays(lambda: claim_and_release(few, 3), lambda: claim_and_release(many, 3))
    assert many.claim("w", min_priority=5) is None
    assert many.claim("w", min_priority=4).event == "now"
    assert many.claim("w", min_priority=3) is None
    assert many.claim("w", min_priority=0).event == 0


def hold_all(transport: Any, size: int) -> None:
    """Half of the crowd is leased, half is parked."""
    transport.publish_many([(f"held-{n}", n) for n in range(size)])
    leases = transport.claim_batch("w", size, visibility=1_000)
    assert len(leases) == size
    for lease in leases[: size // 2]:
        assert lease.nack(1_000)
    transport.publish("urgent", "free")


def test_free_group_behind_thousands_in_flight(plain: Any) -> None:
    """Leased and parked groups are not looked through."""
    few, many = plain.transport("few"), plain.transport("many")
    hold_all(few, 10)
    hold_all(many, CROWD)
    assert_cost_stays(lambda: claim_and_release(few, 0), lambda: claim_and_release(many, 0))
    assert many.claim("w", min_priority=0).event == "free"
    assert many.claim("w", min_priority=0) is None


def test_free_group_behind_thousands_suspended(plain: Any) -> None:
    """Nor suspended ones."""
    transport = plain.transport("t")
    transport.publish_many([(f"off-{n}", n) for n in range(1_500)])
    for n in range(1_500):
        assert transport.suspend(f"off-{n}")
    transport.publish("urgent", "free")
    assert transport.claim("w").event == "free"
    assert transport.claim("w") is None


def test_only_groups_below_the_floor(store: Any) -> None:
    """None, whatever the floor above them; a floor far outside the domain is a floor like any other."""
    transport = store.transport("t")
    transport.publish_many([(f"g{n}", n) for n in range(50)])
    for floor in (1, 3, 2**31 - 1, 2**31, 2**64):
        assert transport.claim("w", min_priority=floor) is None
    for floor in (0, -1, -(2**31), -(2**64)):
        assert transport.claim("w", min_priority=floor) is not None


def test_priority_is_fixed_by_the_publish_that_made_the_group(store: Any) -> None:
    """T5: the first message decides, whether the later one is more or less urgent; FIFO holds in both."""
    transport = store.transport("t")
    transport.publish_many([("low", "head", 0), ("low", "second", 4), ("high", "head", 4), ("high", "second", 0)])
    leases = [transport.claim("w", min_priority=3)]
    assert transport.claim("w", min_priority=3) is None
    assert (leases[0].group_id, leases[0].event, leases[0].priority) == ("high", "head", 4)
    assert leases[0].ack()
    assert transport.claim("w", min_priority=3).event == "second"
    assert transport.claim("w", min_priority=3) is None
    assert events(transport) == ["head", "second"]


HIDDEN: dict[str, Callable[[Any, ManualClock], None]] = {
    "delayed": lambda queue, clock: _crowd(queue, delay=3_600),
    "expired": lambda queue, clock: _crowd(queue, expires=-1),
    "held": lambda queue, clock: (_crowd(queue), queue.claim_batch("w", CROWD, visibility=1_000)),
    "exhausted": lambda queue, clock: (
        _crowd(queue, max_attempts=1),
        queue.claim_batch("w", CROWD, visibility=1),
        step_past(clock, 1),
    ),
}


def _crowd(queue: Any, **options: Any) -> None:
    queue.enqueue_many([rota.Item(n, priority=9, **options) for n in range(CROWD)])


@pytest.mark.parametrize("hidden", HIDDEN)
def test_claimable_job_behind_thousands_that_are_not(plain: Any, clock: ManualClock, hidden: str) -> None:
    """The same kind of fault in a queue: what stands in front of the order and cannot be claimed hides nothing."""
    queue = plain.queue("q")
    HIDDEN[hidden](queue, clock)
    wanted = queue.enqueue_many(["first", "second", "third"])
    assert [job.id for job in queue.claim_batch("w", 2)] == wanted[:2]
    assert queue.claim_one("w").id == wanted[2]
    assert queue.claim_one("w") is None
