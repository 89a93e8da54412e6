"""Outboxes without I/O: what delivers, and the worker that calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.facade.on_demand import OnDemand
from rota.units import Duration

# It stands above the facade, and is imported by whoever asks for one.
_workers = OnDemand("rota.worker.worker")

DELIVERY_TIMEOUT = 30
"""Seconds one delivery may take unless said otherwise: one that hangs must not hold its job for ever."""


def checked(deliver: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """``TypeError`` for what cannot be called."""
    if deliver is not None and not callable(deliver):
        raise TypeError(f"deliver must be a function, sync or async, got {deliver!r}")
    return deliver


def worker(store: Any, outbox: Any, concurrency: int | None, timeout: Duration | None) -> Any:
    """A ``rota.Worker`` on this store for this outbox."""
    if outbox.deliver is None:
        raise TypeError(
            f"outbox {outbox.name!r} has nothing to deliver with: store.outbox({outbox.name!r}, deliver), or "
            f"@worker.outbox({outbox.name!r})"
        )
    made = _workers.Worker(store)
    made.outbox(outbox.name, concurrency=concurrency, timeout=timeout, codec=outbox._named_codec)(outbox.deliver)
    return made
