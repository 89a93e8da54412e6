"""Recurring work neither drifts, doubles, floods nor skips (voiio/dramatiq-crontab 97, FoundatioFx/Foundatio 317).

The job enqueues its successor under a key that names the slot, *before* its ack. Without a transaction around both a
lapsed handler may enqueue it and then not ack, so the key, not the ack, is what keeps a slot single here. With both in
one transaction no key is needed: see the end.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .steps import step_past

START = 1_700_000_000.123456
PERIOD = 60


def slot(number: int) -> float:
    return round(START + PERIOD * number, 6)


@pytest.fixture
def queue(plain: Any) -> Any:
    """A queue whose keys are taken for as long as a late handler may come."""
    queue = plain.queue("ticks", visibility=30, max_attempts=5, key_ttl=86_400)
    queue.enqueue(0, run_at=START, key="tick-0")
    return queue


def successor(queue: Any, job: Any) -> int:
    number = job.payload + 1
    job_id: int = queue.enqueue(number, run_at=job.run_at + PERIOD, key=f"tick-{number}")
    return job_id


@pytest.mark.parametrize("rounds", [1_000])
def test_the_kth_run_is_exactly_k_periods_after_the_start(queue: Any, clock: ManualClock, rounds: int) -> None:
    """Two workers, up to 5 s late, every tenth claim lapses after the successor was made: one run each, no drift."""
    chance = random.Random(45)
    acked = 0
    while acked < rounds:
        number = acked
        clock.set(slot(number) + chance.uniform(0, 5))
        job = queue.claim_one(chance.choice(("w1", "w2")))
        assert (job.payload, job.run_at) == (number, slot(number))
        assert queue.claim_one("w1") is None
        made = successor(queue, job)
        if number % 10 == 9:
            step_past(clock, 30)
            assert job.ack() is False
            again = queue.claim_one(chance.choice(("w1", "w2")))
            assert (again.payload, again.attempts) == (number, 2)
            assert successor(queue, again) == made
            job = again
        assert job.ack()
        acked += 1
        assert queue.stats().pending == 1


def test_lapsed_handler_after_the_next_one_makes_no_second_successor(queue: Any, clock: ManualClock) -> None:
    """The slow one comes back when its successor was already worked off."""
    clock.set(slot(0))
    slow = queue.claim_one("slow")
    step_past(clock, 30)
    job = queue.claim_one("w")
    successor(queue, job)
    assert job.ack()
    clock.set(slot(1))
    job = queue.claim_one("w")
    successor(queue, job)
    assert job.ack()
    assert slow.heartbeat() is False
    successor(queue, slow)
    assert slow.ack() is False
    assert [one.payload for one in queue.jobs("pending")] == [2]


def test_after_an_outage_the_overdue_job_comes_once(queue: Any, clock: ManualClock) -> None:
    """Three hours without workers: one delivery of the one job there is; nothing piled up."""
    clock.set(slot(0) + 3 * 3_600)
    job = queue.claim_one("w")
    assert (job.payload, job.run_at, job.attempts) == (0, slot(0), 1)
    assert queue.claim_one("w") is None
    # What a handler does about the slots it missed is its own rule: here it skips to the next one.
    missed = int((clock.now() - job.run_at) // PERIOD)
    queue.enqueue(missed + 1, run_at=slot(missed + 1), key=f"tick-{missed + 1}")
    assert job.ack()
    assert queue.claim_one("w") is None
    clock.set(slot(missed + 1))
    assert queue.claim_one("w").run_at == slot(missed + 1)


def test_retries_keep_the_slot_in_the_payload_not_the_clock(queue: Any, clock: ManualClock) -> None:
    """A retry moves ``run_at``; the slot's number does not move with it."""
    clock.set(slot(0))
    assert queue.claim_one("w").retry("database down", 7)
    clock.advance(7)
    job = queue.claim_one("w")
    assert (job.payload, job.run_at) == (0, slot(0) + 7)
    queue.enqueue(1, run_at=slot(job.payload + 1), key="tick-1")
    assert job.ack()
    assert queue.peek(5) == []
    clock.set(slot(1))
    assert queue.claim_one("w").run_at == slot(1)


# -- In one transaction with the ack -----------------------------------------------------------------------------------


def acked_with_successor(store: Any, queue: Any, job: Any) -> bool:
    """The handler: the next run and the ack are committed together, or neither is."""
    try:
        with store.transaction() as tx:
            queue.enqueue(job.payload + 1, run_at=job.run_at + PERIOD, tx=tx)
            job.ack(tx=tx)
    except rota.LeaseLost:
        return False
    return True


@pytest.mark.parametrize("rounds", [1_000])
def test_the_kth_run_without_keys(plain: Any, clock: ManualClock, rounds: int) -> None:
    """Two workers, up to 5 s late; in every tenth round the lease lapses before the ack: never two for one slot."""
    queue = plain.queue("ticks", visibility=30, max_attempts=5)
    queue.enqueue(0, run_at=START)
    chance = random.Random(45)
    for number in range(rounds):
        clock.set(slot(number) + chance.uniform(0, 5))
        job = queue.claim_one(chance.choice(("w1", "w2")))
        assert (job.payload, job.run_at) == (number, slot(number))
        if number % 10 == 9:
            step_past(clock, 30)
            again = queue.claim_one(chance.choice(("w1", "w2")))
            assert again.attempts == 2
            assert not acked_with_successor(plain, queue, job)
            assert queue.stats().pending == 0
            job = again
        assert acked_with_successor(plain, queue, job)
        assert not acked_with_successor(plain, queue, job)
        assert (queue.stats().pending, queue.stats().processing) == (1, 0)
