"""Batches in different orders do not deadlock (timgit/pg-boss 282, rails/solid_queue PR 164).

On SQLite and memory writers take turns, so the kind of fault that is left is a lock taken late: a read that becomes a
write while another one waits. ``tests/race/test_collisions.py`` runs the shuffled batches against sweeps, cancels and
claims; here are the orders that could wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota

MIXES: dict[str, Callable[[Any, Any], None]] = {
    "queue before transport": lambda queue, transport: (queue.enqueue(1), transport.publish("g", 1)),
    "transport before queue": lambda queue, transport: (transport.publish("g", 1), queue.enqueue(1)),
    "reading between": lambda queue, transport: (queue.stats(), queue.enqueue(1), transport.groups(), queue.jobs()),
    "claims": lambda queue, transport: (
        queue.ack_batch(queue.claim_batch("w", 20), "w"),
        transport.ack_batch(transport.claim_batch("w", 20)),
    ),
    "claims backwards": lambda queue, transport: (
        transport.ack_batch(transport.claim_batch("w", 20)[::-1]),
        queue.ack_batch(queue.claim_batch("w", 20)[::-1], "w"),
    ),
    "sweeps": lambda queue, transport: (queue.sweep_expired(), transport.sweep()),
}


@pytest.mark.parametrize("own_stores", [True, False], ids=["own stores", "one store"])
def test_no_order_of_verbs_waits_for_another(url: str, own_stores: bool) -> None:
    """Six threads, each with its own order: none gets an error, and the numbers add up."""
    keeper = rota.open(url)
    stores = [rota.open(url) if own_stores else keeper for _ in MIXES]
    errors: list[BaseException] = []

    def work(store: Any, mix: Callable[[Any, Any], None]) -> None:
        try:
            for _ in range(60):
                mix(store.queue("q"), store.transport("t"))
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(store, mix), daemon=True)
        for store, mix in zip(stores, MIXES.values(), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []
    queue, transport = keeper.queue("q"), keeper.transport("t")
    assert queue.enqueue(1) == 181
    while leases := transport.claim_batch("w", 100):
        assert transport.ack_batch(leases) == len(leases)
    assert queue.ack_batch(queue.claim_batch("w", 1_000), "w") > 0
    assert (queue.stats().pending, transport.stats().messages) == (0, 0)
    for store in {keeper, *stores}:
        store.close()
