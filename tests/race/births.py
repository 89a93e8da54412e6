"""Groups that are born and end all the time: an actor, as a function and as a program of its own."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import rota


def put_and_take(transport: Any, seed: str, over: Callable[[], bool]) -> tuple[int, int]:
    """Publish into two groups and ack what comes, until over; how many were put and taken."""
    chance = random.Random(seed)
    put = taken = 0
    while not over():
        if chance.random() < 0.5:
            transport.publish(f"g{chance.randrange(2)}", put)
            put += 1
        elif (lease := transport.claim("w")) is not None:
            assert lease.ack()
            taken += 1
    return put, taken


def main(url: str, seed: str) -> None:
    """Until standard input ends; then print the numbers."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with rota.open(url) as store:
        print(json.dumps(put_and_take(store.transport("t"), seed, stop.is_set)))


if __name__ == "__main__":
    main(*sys.argv[1:])
