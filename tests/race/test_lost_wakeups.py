"""Waiting claims against publishers: nobody waits longer than a second for what is there (X7)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota

from .threads import switching_often, together

# A second is what is promised; the rest is for a machine that runs other tests beside this one.
LONGEST = 1.5


def waits(url: str, seed: str, seconds: float) -> list[float]:
    """How long each of many items was there before a waiting claim had it, four waiters against two publishers."""
    keeper = rota.open(url)
    stores = [rota.open(url) for _ in range(6)]
    until = time.monotonic() + seconds
    stop = threading.Event()
    spans: list[float] = []

    def wait(store: Any, kind: str) -> None:
        queue, transport = store.queue("q"), store.transport("t")
        while not stop.is_set() or store.queue("q").stats().pending or store.transport("t").stats().messages:
            held = queue.claim_one("w", wait=0.55) if kind == "job" else transport.claim("w", wait=0.55)
            if held is not None:
                begun = held.payload if kind == "job" else held.event
                spans.append(time.time() - begun)
                assert held.ack()

    def publish(store: Any, place: int) -> None:
        chance = random.Random(f"{seed}/{place}")
        queue, transport = store.queue("q"), store.transport("t")
        try:
            while time.monotonic() < until:
                if chance.random() < 0.5:
                    queue.enqueue(time.time())
                else:
                    transport.publish(f"g{chance.randrange(1_000)}", time.time())
                # Mostly just as a waiter goes to sleep, sometimes when all have long been asleep.
                time.sleep(chance.choice((0, 0.0002, 0.001, 0.01, 0.05)))
        finally:
            stop.set()

    with switching_often():
        together(
            *(lambda n=n: wait(stores[n], ("job", "message")[n % 2]) for n in range(4)),
            *(lambda n=n: publish(stores[n], n) for n in (4, 5)),
        )
    for store in (keeper, *stores):
        store.close()
    return spans


def test_no_waiter_sleeps_over_work(url: str, seed: str, span: Callable[[float], float]) -> None:
    """Threads, each with a store of its own."""
    spans = waits(url, seed, span(0.8))
    print(f"{len(spans)} items, the slowest after {max(spans) * 1e3:.0f} ms")
    assert len(spans) > 20
    assert max(spans) < LONGEST


def test_no_waiter_sleeps_over_work_whose_wakeup_was_lost(
    url: str, seed: str, span: Callable[[float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No wake-up arrives at all: polling makes it right."""
    from rota.wakeups import ThreadWaiter

    monkeypatch.setattr(ThreadWaiter, "wait", lambda waiter, seconds: time.sleep(seconds))
    spans = waits(url, seed, span(0.8))
    print(f"{len(spans)} items, the slowest after {max(spans) * 1e3:.0f} ms")
    assert len(spans) > 20
    assert max(spans) < LONGEST
