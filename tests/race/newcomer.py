"""A process that opens a new file at a given instant and stores something at once."""

from __future__ import annotations

import json
import sys
import time

import rota


def main(url: str, start: str) -> None:
    """Print what ids it was given."""
    while (rest := int(start) / 1_000_000 - time.time()) > 0:
        time.sleep(max(rest - 0.001, 0))
    with rota.open(url) as store:
        jobs = [store.queue("q").enqueue(n) for n in range(5)] + store.queue("q").enqueue_many(range(5))
        transport = store.transport("t", max_deliveries=3)
        seqs = [transport.publish(f"g{start}-{job}", job) for job in jobs]
    print(json.dumps({"jobs": jobs, "seqs": seqs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
