"""What ``rota top`` shows, gathered from the store: a bounded number of questions each time, however much is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from rota.cli.addresses import Address, every
from rota.cli.output import record
from rota.worker.figures import Worst

if TYPE_CHECKING:
    from rota import QueueStats, Store, TransportStats

# So many queues and transports are asked, the first by name; others have to be named.
MOST_SOURCES = 100
WORST_GROUPS = 10
# So many claims of each are looked at to tell who holds what. Jobs come with their payloads.
_JOBS, _LEASES = 200, 1_000


@dataclass(slots=True)
class GroupRow:
    """A group whose oldest message has waited long."""

    transport: str
    group_id: str
    lag: float
    """Seconds."""
    reason: str
    """As ``explain`` says it."""
    until: float | None
    worker_id: str | None


@dataclass(slots=True)
class WorkerRow:
    """Whoever holds claims now."""

    worker_id: str
    jobs: int = 0
    groups: int = 0
    lapsed: int = 0
    """Claims of it that are over, which others may take."""
    longest: float = 0.0
    """Seconds since the oldest of its claims was made."""


@dataclass(slots=True)
class Figures:
    """The store at one moment."""

    at: float
    """The store's clock, POSIX seconds."""
    queues: list[tuple[str, QueueStats]]
    transports: list[tuple[str, TransportStats]]
    groups: list[GroupRow]
    workers: list[WorkerRow]
    more_sources: int
    """Queues and transports that were not looked at."""
    partial: bool
    """Not every claim was looked at, so ``workers`` may lack some."""

    def document(self) -> dict[str, Any]:
        """As one JSON document."""
        return {
            "at": self.at,
            "queues": [{"name": name, **record(stats)} for name, stats in self.queues],
            "transports": [{"name": name, **record(stats)} for name, stats in self.transports],
            "groups": [record(row) for row in self.groups],
            "workers": [record(row) for row in self.workers],
            "more_sources": self.more_sources,
            "workers_partial": self.partial,
        }


class Gatherer:
    """Asks one store again and again."""

    def __init__(self, store: Store, addresses: Sequence[Address]) -> None:
        self._store = store
        self._addresses = list(addresses)
        self._worst: dict[str, Worst] = {}

    def gather(self) -> Figures:
        """Ask now."""
        store = self._store
        addresses = self._addresses or every(store)
        chosen = addresses[:MOST_SOURCES]
        now = store.now()
        queues = [(name, store.queue(name).stats()) for kind, name in chosen if kind == "queue"]
        transports = [(name, store.transport(name).stats()) for kind, name in chosen if kind == "transport"]
        workers = _Workers(now)
        for name, jobs in queues:
            if jobs.processing:
                workers.add_jobs(store, name)
        for name, messages in transports:
            if messages.leased:
                workers.add_leases(store, name)
        return Figures(
            at=now,
            queues=queues,
            transports=transports,
            groups=self._worst_groups(transports, now),
            workers=workers.rows(),
            more_sources=len(addresses) - len(chosen),
            partial=workers.partial,
        )

    def _worst_groups(self, transports: list[tuple[str, TransportStats]], now: float) -> list[GroupRow]:
        waiting = [
            (lag.oldest_at, name, lag.group_id)
            for name, stats in transports
            if stats.messages
            for lag in self._worst.setdefault(name, Worst()).look(self._store, name)
        ]
        rows: list[GroupRow] = []
        for oldest_at, name, group_id in nlargest(WORST_GROUPS, waiting, key=lambda one: -one[0]):
            why = self._store.transport(name).explain(group_id)
            if why.reason != "unknown":
                rows.append(GroupRow(name, group_id, max(0.0, now - oldest_at), why.reason, why.until, why.worker_id))
        return rows


class _Workers:
    """Who holds what, added up from the claims."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._rows: dict[str, WorkerRow] = {}
        self.partial = False

    def add_jobs(self, store: Store, queue: str) -> None:
        jobs = store.queue(queue).jobs("processing", _JOBS)
        self.partial = self.partial or len(jobs) == _JOBS
        for job in jobs:
            row = self._row(job.worker_id, job.claimed_at, job.claim_expires_at)
            if row is not None:
                row.jobs += 1

    def add_leases(self, store: Store, transport: str) -> None:
        groups = store.transport(transport).groups("leased", _LEASES)
        self.partial = self.partial or len(groups) == _LEASES
        for group in groups:
            row = self._row(group.worker_id, group.last_claimed_at, group.until)
            if row is not None:
                row.groups += 1

    def rows(self) -> list[WorkerRow]:
        """Those whose claims are oldest come first."""
        return sorted(self._rows.values(), key=lambda row: (-row.longest, row.worker_id))

    def _row(self, worker_id: str | None, since: float | None, until: float | None) -> WorkerRow | None:
        if worker_id is None:
            return None
        row = self._rows.setdefault(worker_id, WorkerRow(worker_id))
        row.longest = max(row.longest, self._now - since if since is not None else 0.0)
        row.lapsed += until is not None and until < self._now
        return row
