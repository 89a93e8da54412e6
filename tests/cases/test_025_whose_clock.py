"""A clock that steps gives no second holder (Krzysztof318/MailFathom 1989, johanhaleby/occurrent 659).

On memory and SQLite the store's clock is the host's. It may step; then a lease may end early or late, but a handle that
was overtaken settles nothing and two valid holders never exist.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .steps import step_past

HOUR = 3_600
STEPS = [(-HOUR, HOUR), (HOUR, -HOUR), (-HOUR, 2 * HOUR), (HOUR, -2 * HOUR), (-0.5, 0.5), (31, -31)]


@pytest.mark.parametrize("steps", STEPS)
def test_steps_during_a_lease_leave_one_holder(store: Any, clock: ManualClock, steps: tuple[float, float]) -> None:
    """After every step others try; of all handles of one item exactly one can settle it."""
    queue, transport = store.queue("q", max_attempts=100), store.transport("t")
    queue.enqueue("work")
    transport.publish_many([("g", "A"), ("g", "B")])
    jobs, leases = [queue.claim_one("w", visibility=30)], [transport.claim("w", visibility=30)]
    for step in (*steps, 1, *steps):
        clock.advance(step)
        if (job := queue.claim_one("other", visibility=30)) is not None:
            jobs.append(job)
        if (lease := transport.claim("other", visibility=30)) is not None:
            assert lease.event == "A"
            leases.append(lease)
        assert not any(job.heartbeat() for job in jobs[:-1])
        assert [lease.extend(30) for lease in leases[:-1]] == [None] * (len(leases) - 1)
    assert [job.attempts for job in jobs] == list(range(1, len(jobs) + 1))
    assert [lease.ack() for lease in leases] == [False] * (len(leases) - 1) + [True]
    assert not any(job.ack() for job in jobs[:-1])
    assert transport.claim("w").event == "B"
    assert queue.stats().dead == 0


def test_step_back_delays_and_forward_lapses(store: Any, clock: ManualClock) -> None:
    """What the documentation says of it: back, and the lease lasts longer; forward, and it is over."""
    queue = store.queue("q")
    queue.enqueue("work")
    job = queue.claim_one("w", visibility=60)
    clock.advance(-HOUR)
    clock.advance(HOUR)
    assert queue.claim_one("other") is None
    assert job.heartbeat()
    clock.advance(-HOUR)
    clock.advance(100)
    assert queue.claim_one("other") is None
    clock.advance(2 * HOUR)
    assert queue.claim_one("other").attempts == 2
    assert not job.ack()


def test_tokens_and_turns_do_not_hang_on_the_clock(store: Any, clock: ManualClock) -> None:
    """Turns go on and tokens grow under a clock that stands still or runs backwards."""
    transport = store.transport("t")
    transport.publish_many([(f"g{n}", k) for k in range(8) for n in range(4)])
    found, tokens = [], []
    for number in range(32):
        lease = transport.claim("w")
        found.append(lease.group_id)
        tokens.append(lease.token)
        assert lease.ack()
        clock.advance((-HOUR, 0, 1, 0)[number % 4])
    assert found == [f"g{n}" for n in range(4)] * 8
    assert tokens == sorted(set(tokens))


def trace(url: str, seed: int) -> None:
    """Random claims, settlements and clock steps on one job and one group, with every old handle tried on and on."""
    chance = random.Random(seed)
    clock = ManualClock()
    with rota.open(url, clock=clock) as store:
        queue, transport = store.queue(f"q{seed}", max_attempts=10_000), store.transport(f"t{seed}")
        queue.enqueue("work")
        transport.publish(f"g{seed}", "A")
        handles: list[list[Any]] = [[], []]
        for _ in range(40):
            clock.advance(chance.choice((0, 0.5, 1, 2, 5, -1, -5, HOUR, -HOUR)))
            for mine, claimed in ((handles[0], queue.claim_one("w", visibility=2)), (handles[1], _lease(transport))):
                if claimed is not None:
                    assert not mine or claimed.token > mine[-1].token, f"seed {seed}"
                    mine.append(claimed)
            verb = chance.choice(("beat", "release", "nack", "none"))
            for old in (*handles[0][:-1], *handles[1][:-1]):
                assert not _settle(old, verb), f"seed {seed}: token {old.token} was accepted after a newer claim"
            for current in (handles[0][-1:], handles[1][-1:]):
                _settle(*current, verb) if current else None
        # Whatever happened, nothing is lost: once all leases are over both are there.
        step_past(clock, 2 * HOUR * 41)
        assert (queue.claim_one("w") or handles[0][-1]).payload == "work", f"seed {seed}"
        assert queue.stats().processing == 1
        assert transport.claim("w").event == "A", f"seed {seed}"


def _lease(transport: Any) -> Any:
    return transport.claim("w", visibility=2)


def _settle(held: Any, verb: str) -> bool:
    if verb == "none":
        return False
    if verb == "release":
        return bool(held.release())
    if hasattr(held, "attempts"):
        return bool(held.heartbeat(2) if verb == "beat" else held.retry("x", 0))
    return held.extend(2) is not None if verb == "beat" else bool(held.nack())


def test_random_steps_never_make_a_second_holder(url: str, engine: str) -> None:
    """Fixed seeds, named by a failure."""
    for seed in range(200 if engine == "memory" else 25):
        trace(url, seed)
