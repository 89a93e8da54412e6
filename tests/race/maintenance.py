"""What comes by while a job is being worked on: sweeps and claims, as a function and as a program of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import rota

VISIBILITY = 0.008


def maintain(queue: Any, over: Callable[[], bool]) -> int:
    """Sweep and reclaim until over; how many jobs it was given although their only attempt was used up."""
    extra = 0
    while not over():
        queue.sweep_expired()
        if (job := queue.claim_one("B", visibility=60)) is not None:
            # A newborn one: given back, as if nobody had seen it.
            extra += job.attempts > 1
            assert job.release()
    return extra


def main(url: str) -> None:
    """Until standard input ends; then print the number."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with rota.open(url) as store:
        print("ready", flush=True)
        print(maintain(store.queue("q", max_attempts=1), stop.is_set))


if __name__ == "__main__":
    main(*sys.argv[1:])
