"""Sweeping expired jobs and old dead letters, by one worker at a time, with nothing but a transport of our own.

``rota.housekeeping`` holds one message for each queue and transport, in a group of its name; where that is too long, in
one of its digest. Whoever leases it sweeps that source and parks the group until the next sweep is due.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota import names
from rota.codecs import JsonCodec
from rota.errors import EngineBusy, EngineUnavailable, OutcomeUnknown, RotaError, StoreClosed
from rota.names import HOUSEKEEPING
from rota.worker import plan
from rota.worker.logs import DEBUG, WARNING, tell
from rota.worker.sources import Source

if TYPE_CHECKING:
    from rota.sync.store import Store
    from rota.sync.transport import Lease

_VISIBILITY = 120
_FIRST_LOOK = 0.5


class Housekeeping:
    """The thread of one worker."""

    def __init__(self, store: Store, sources: Sequence[Source], worker_id: str) -> None:
        self._store = store
        self._sources = {source.label: source for source in sources}
        self._missing = list(self._sources)
        self._worker_id = worker_id
        self._closed = threading.Event()
        self._chance = store._core.rng.random
        self._thread = threading.Thread(target=self._run, name="rota-housekeeping", daemon=True)
        self.start = self._thread.start

    def stop(self) -> None:
        """Begin no more sweeps."""
        self._closed.set()

    def join(self, patience: float) -> None:
        """Wait for the one under way."""
        self._thread.join(patience)

    def _run(self) -> None:
        pause = _FIRST_LOOK * self._chance()
        while not self._closed.wait(pause):
            pause = plan.sweep_look_pause(self._chance())
            try:
                self.look()
            except StoreClosed:
                return
            except (EngineBusy, EngineUnavailable, OutcomeUnknown) as error:
                # Of a store that fails others tell.
                tell(DEBUG, "sweep_failed", error=f"{type(error).__name__}: {error}")
            except Exception as error:
                tell(WARNING, "sweep_failed", error=f"{type(error).__name__}: {error}")

    def look(self) -> int:
        """Sweep what is due; how many sources."""
        # Whatever the store's own codec is for.
        transport = self._store.transport(HOUSEKEEPING, codec=JsonCodec())
        while self._missing:
            label = self._missing[-1]
            group = _group(label)
            # The key is taken while the message lives, so there is one for each source however many workers there are.
            transport.publish(group, None if group == label else label, key=group)
            self._missing.pop()
        swept = 0
        while not self._closed.is_set():
            lease = transport.claim(self._worker_id, _VISIBILITY)
            if lease is None:
                break
            self._sweep(lease)
            swept += 1
        return swept

    def _sweep(self, lease: Lease) -> None:
        """Any worker can sweep any source of the store, its own or not."""
        began = time.monotonic()
        label = lease.group_id if lease.event is None else lease.event
        kind, _, name = label.partition(":")
        try:
            source = self._sources.get(label)
            if source is not None:
                source.sweep()
            elif kind == "queue":
                self._store.queue(name).sweep_expired()
            else:
                self._store.transport(name).sweep()
        except RotaError as error:
            tell(WARNING, "sweep_failed", source=label, error=f"{type(error).__name__}: {error}")
        else:
            tell(DEBUG, "swept", source=label, seconds=round(time.monotonic() - began, 6))
        lease.nack(plan.sweep_pause(self._chance()))


def _group(label: str) -> str:
    """The group of a source. With the kind before it the longest names would be too long for one."""
    if len(label) <= names.MAX_NAME:
        return label
    return f"{label.partition(':')[0]}:{hashlib.sha256(label.encode()).hexdigest()}"
