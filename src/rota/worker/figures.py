"""What the store says of the worker's queues and transports, asked at most once a second however often we are asked.

The store is asked on a thread of its own, so that one that does not answer keeps nobody waiting for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rota.public import QueueStats, TransportStats
    from rota.sync.store import Store
    from rota.worker.signature import SourceKind

_monotonic = time.monotonic
# Between the end of one round and the beginning of the next.
INTERVAL = 1.0
# An answer older than this says nothing of whether the store answers now.
_STALE = 5.0
WORST_GROUPS = 10
# So many groups of a transport are looked at in each round, the next ones in the next.
_PAGE = 1_000


class GroupLag(NamedTuple):
    """A group that waits: since when its oldest message has been there, in POSIX seconds."""

    group_id: str
    oldest_at: float


class SourceFigures(NamedTuple):
    """What the store says of one queue or transport."""

    kind: SourceKind
    name: str
    stats: QueueStats | TransportStats
    worst: list[GroupLag]


class Figures(NamedTuple):
    """One round. ``error`` says why it is not complete, None when it is."""

    sources: list[SourceFigures]
    now: float
    """The store's clock, POSIX seconds; 0 when it did not tell."""
    at: float
    """When it ended, on the monotonic clock."""
    error: str | None


class Worst:
    """The groups of one transport that lag most, found page by page.

    Up to ``_PAGE`` groups that is exact in every round; of more, a lap over all of them takes several rounds, and what
    the last lap found stands until its place is passed again.
    """

    def __init__(self) -> None:
        self._after: str | None = None
        self._before: list[GroupLag] = []
        self._found: list[GroupLag] = []

    def look(self, store: Store, name: str) -> list[GroupLag]:
        """Look at the next page; the worst ones known."""
        page = store.transport(name).groups(limit=_PAGE, after=self._after)
        self._found = _most(self._found, (GroupLag(group.group_id, group.oldest_at) for group in page))
        if len(page) < _PAGE:
            found, self._before, self._found, self._after = self._found, self._found, [], None
            return found
        self._after = page[-1].group_id
        # Ids are ordered as Python orders text.
        ahead = [lag for lag in self._before if lag.group_id > self._after]
        return _most(self._found, ahead)


def _most(one: Iterable[GroupLag], other: Iterable[GroupLag]) -> list[GroupLag]:
    return nlargest(WORST_GROUPS, (*one, *other), key=lambda lag: -lag.oldest_at)


class Asker:
    """The thread that asks, and its latest answer."""

    def __init__(self, sources: Iterable[tuple[SourceKind, str]]) -> None:
        self._sources = list(sources)
        self._worst = {name: Worst() for kind, name in self._sources if kind == "transport"}
        self._store: Store | None = None
        self._changed = threading.Condition()
        self._rounds = 0
        self._asked = self._closed = False
        self._last: Figures | None = None
        self._thread = threading.Thread(target=self._run, name="rota-figures", daemon=True)
        self.start = self._thread.start

    def bind(self, store: Store | None) -> None:
        """From now on ask this store; None: there is none."""
        with self._changed:
            self._store, self._last = store, None

    def latest(self, patience: float) -> Figures | None:
        """Figures of the last second, waited for that many seconds; else what was there shortly before; else None."""
        with self._changed:
            last = self._last
            if self._store is None or (last is not None and _monotonic() - last.at < INTERVAL):
                return last
            begun = self._rounds
            self._asked = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._rounds != begun or self._closed, patience)
            last = self._last
            return None if last is None or _monotonic() - last.at > _STALE else last

    def close(self) -> None:
        """End the thread; one that waits for the store is left behind."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(1)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._closed)
                if self._closed:
                    return
                self._asked = False
                store = self._store
            if store is None:
                continue
            figures = self._round(store)
            with self._changed:
                if self._store is store:
                    self._last = figures
                self._rounds += 1
                self._changed.notify_all()

    def _round(self, store: Store) -> Figures:
        sources: list[SourceFigures] = []
        now = 0.0
        error: str | None = None
        try:
            now = store.now()
        except Exception as failure:
            error = type(failure).__name__
        for kind, name in self._sources:
            try:
                sources.append(self._of(store, kind, name))
            except Exception as failure:
                # Whatever it is: who asks for figures is told, and nobody else is to suffer from it.
                error = type(failure).__name__
        return Figures(sources, now, _monotonic(), error)

    def _of(self, store: Store, kind: SourceKind, name: str) -> SourceFigures:
        if kind == "queue":
            return SourceFigures(kind, name, store.queue(name).stats(), [])
        return SourceFigures(kind, name, store.transport(name).stats(), self._worst[name].look(store, name))
