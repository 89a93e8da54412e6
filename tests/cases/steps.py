"""What the cases do often, in one word."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.testing import ManualClock

MICROSECOND = timedelta(microseconds=1)


def step_past(clock: ManualClock, seconds: float) -> None:
    """Move the clock by ``seconds`` and one microsecond: a deadline so far ahead is now over."""
    clock.advance(timedelta(seconds=seconds) + MICROSECOND)


def events(transport: Any, worker: str = "w", ack: bool = True) -> list[Any]:
    """Claim (and ack) until nothing is claimable."""
    found: list[Any] = []
    while (lease := transport.claim(worker)) is not None:
        found.append(lease.event)
        if ack:
            assert lease.ack()
    return found


def payloads(queue: Any, worker: str = "w") -> list[Any]:
    """Claim and ack until nothing is claimable."""
    found: list[Any] = []
    while (job := queue.claim_one(worker)) is not None:
        found.append(job.payload)
        assert job.ack()
    return found


def tokens(held: list[Any]) -> list[int]:
    """Tells claims apart, in both colours."""
    return [one.token for one in held]
