"""What a hot verb costs does not grow with the backlog (C8): counted in steps of SQLite's virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.engines.sqlite import SqliteEngine
from rota.records import NewJob, NewMessage
from rota.rules import CLEANING_LIMIT, DEFAULT_STAMP
from rota.sql.drive import Block

SECOND = 1_000_000
JOB = NewJob('"payload"', DEFAULT_STAMP)
SMALL, LARGE = 200, 20_000
# A deeper tree costs a few comparisons more, which are no steps of their own.
GROWTH = 1.1


def steps(engine: SqliteEngine, act: Callable[[], Any]) -> int:
    """How many steps SQLite takes for it."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    connections = [cursor.connection for cursor in (engine._writer, engine._reader) if cursor is not None]
    for connection in connections:
        connection.set_progress_handler(step, 1)
    act()
    for connection in connections:
        connection.set_progress_handler(None, 1)
    assert count > 0
    return count


def grow(queue, clock, how: str, number: int) -> None:
    """A backlog of a kind in front of, or around, one job that can be claimed."""
    if how == "ready":
        queue.enqueue_many([JOB] * number)
    elif how == "delayed":
        queue.enqueue_many([JOB._replace(delay=3_600 * SECOND, priority=9)] * number)
    elif how == "held":
        queue.enqueue_many([JOB] * number)
        assert len(queue.claim("w", number, 3_600 * SECOND)) == number
    elif how == "expired":
        queue.enqueue_many([JOB._replace(expires=0, priority=9)] * number)
    elif how == "lapsed":
        queue.enqueue_many([JOB] * number)
        assert len(queue.claim("w", number, SECOND)) == number
        clock.now += 2 * SECOND
    elif how == "exhausted":
        queue.enqueue_many([JOB._replace(stamp=DEFAULT_STAMP._replace(max_attempts=1), priority=9)] * number)
        assert len(queue.claim("w", number, SECOND)) == number
        clock.now += 2 * SECOND
    elif how == "keyed":
        queue.enqueue_many([JOB._replace(key=str(key)) for key in range(number)])
    queue.enqueue(JOB)


def cycle(queue) -> None:
    (claim,) = queue.claim("w", 1, None)
    assert queue.ack(claim, None)


@pytest.mark.parametrize("how", ["ready", "delayed", "held", "expired", "lapsed", "exhausted", "keyed"])
def test_claim_and_ack(engine, clock, how: str) -> None:
    costs = []
    for number in (SMALL, LARGE):
        queue = engine.queue(f"q{number}")
        grow(queue, clock, how, number)
        # What has lapsed or expired is cleaned in bounded rounds by the claims that meet it, once.
        for _ in range(number // CLEANING_LIMIT + 2):
            queue.enqueue(JOB)
            cycle(queue)
        costs.append(steps(engine, lambda queue=queue: cycle(queue)))
    assert costs[1] <= costs[0] * GROWTH


@pytest.mark.parametrize(
    "verb",
    [
        lambda queue, _: queue.enqueue(JOB),
        lambda queue, _: queue.enqueue(JOB._replace(key="k")),
        lambda queue, claims: queue.heartbeat(claims[:1], None),
        lambda queue, claims: queue.retry(claims[0], "no", SECOND),
        lambda queue, claims: queue.fail(claims[0], "no"),
        lambda queue, claims: queue.release(claims[0], None),
        lambda queue, claims: queue.ack_batch(claims, (), "w"),
        lambda queue, claims: queue.cancel(claims[0].id),
        lambda queue, _: queue.next_due(),
        lambda queue, claims: queue.get_job(claims[0].id),
        lambda queue, claims: queue.explain(claims[0].id),
    ],
)
def test_other_verbs_of_a_queue(engine, clock, verb) -> None:
    costs = []
    for number in (SMALL, LARGE):
        queue = engine.queue(f"q{number}")
        grow(queue, clock, "ready", number)
        grow(queue, clock, "delayed", number)
        claims = queue.claim("w", 10, None)
        queue.stats()
        costs.append(steps(engine, lambda queue=queue, claims=claims: verb(queue, claims)))
    assert costs[1] <= costs[0] * GROWTH


def test_a_claim_cleans_in_bounded_rounds(engine, clock) -> None:
    """Exhausted ones beyond a round are left to the next claim, unless the batch would come back short."""
    queue = engine.queue("q")
    grow(queue, clock, "exhausted", 3 * CLEANING_LIMIT)
    (claim,) = queue.claim("w", 1, None)
    assert claim.attempts == 1
    assert queue.stats().dead == CLEANING_LIMIT
    queue.claim("w", 1, None)
    assert queue.stats().dead == 3 * CLEANING_LIMIT
    assert len(queue.dead_letters(10_000, None)) == 3 * CLEANING_LIMIT


@pytest.mark.parametrize("how", ["one group", "groups", "leased", "parked", "below the floor", "suspended"])
def test_transport_claim_and_ack(engine, clock, how: str) -> None:
    costs = []
    for number in (SMALL, LARGE):
        transport = engine.transport(f"t{number}", {})
        floor = 1 if how == "below the floor" else None
        same = how == "one group"
        transport.publish_many([NewMessage("g" if same else f"g{each}", "1") for each in range(number)])
        if how in ("leased", "parked"):
            leases = transport.claim("w", number, 3_600 * SECOND, None)
            assert len(leases) == number
            if how == "parked":
                assert all(transport.nack(lease, 3_600 * SECOND, None) for lease in leases[:SMALL])
        if how == "suspended":
            engine.write(_suspend_all, transport.name)
        transport.publish_many([NewMessage("urgent", "1", 5)] * 5)

        def cycle(transport=transport, floor=floor) -> None:
            (lease,) = transport.claim("w", 1, SECOND, floor)
            assert transport.ack(lease)

        cycle()
        costs.append(steps(engine, cycle))
    assert costs[1] <= costs[0] * GROWTH


def _suspend_all(now, transport):
    insert = "INSERT INTO rota_suspensions SELECT transport, group_id, 0 FROM rota_groups WHERE transport = ?"
    yield Block("suspend", insert, False), (transport,)
    yield Block("flag", "UPDATE rota_groups SET suspended = 1 WHERE transport = ?", False), (transport,)


def test_an_idle_look_is_a_handful_of_probes(engine) -> None:
    queue, transport = engine.queue("q"), engine.transport("t", {})
    queue.enqueue_many([JOB._replace(delay=3_600 * SECOND)] * LARGE)
    transport.publish("g", "1", 0, None, None)
    assert transport.claim("w", 1, 3_600 * SECOND, None)
    assert steps(engine, lambda: queue.claim("w", 1, None)) < 200
    assert steps(engine, lambda: transport.claim("w", 1, SECOND, None)) < 200
