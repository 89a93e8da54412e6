"""The libraries as the rounds on PostgreSQL drive them: through their public API, at their best documented settings."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar, NamedTuple, Protocol

Payload = dict[str, Any]


class Library(Protocol):
    """One library on one database. Encoding the payloads and making job objects is part of what is timed."""

    left: ClassVar[str]  # SQL: how many jobs are stored and not done yet.

    async def open(self, url: str) -> None:
        """Install the schema in an empty database and connect."""

    async def single(self, payloads: list[Payload]) -> None:
        """Enqueue one by one on one connection, each durable before the next."""

    async def bulk(self, payloads: list[Payload], batch: int) -> None:
        """Enqueue in the library's bulk form, ``batch`` at a time, each batch durable before the next."""

    async def work(self, url: str, handled: Countdown) -> None:
        """Run a worker whose async handler does nothing but count, until ``handled.over``, then stop it."""

    async def close(self) -> None: ...


class Countdown:
    """Counts handled jobs; handlers call it."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.over = asyncio.Event()
        self.start = time.perf_counter()

    def __call__(self) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()


class Side(NamedTuple):
    """A library's API that is measured by itself."""

    peer: str  # Names the environment.
    module: str
    name: str  # The class in the module.
    kind: str  # "sync" or "async".
    works: bool = False  # Whether its worker is measured: a class that has none raises NotImplementedError.


SIDES = {
    "rota sync": Side("rota", "rota_engine", "Sync", "sync"),
    "rota async": Side("rota", "rota_engine", "Async", "async", works=True),
    "rota sync, prepare=False": Side("rota", "rota_engine", "Unprepared", "sync"),
    "pgqueuer async": Side("pgqueuer", "pgqueuer_jobs", "Async", "async", works=True),
    "pgqueuer sync": Side("pgqueuer", "pgqueuer_jobs", "Sync", "sync"),
    "procrastinate async": Side("procrastinate", "procrastinate_jobs", "Async", "async", works=True),
    "procrastinate sync": Side("procrastinate", "procrastinate_jobs", "Sync", "sync"),
    "oban async": Side("oban", "oban_jobs", "Async", "async", works=True),
    "chancy async": Side("chancy", "chancy_jobs", "Async", "async", works=True),
    "chancy sync": Side("chancy", "chancy_jobs", "Sync", "sync"),
}
PEERS = ("pgqueuer", "procrastinate", "oban", "chancy")


def batches(payloads: list[Payload], batch: int) -> list[list[Payload]]:
    return [payloads[at : at + batch] for at in range(0, len(payloads), batch)]
