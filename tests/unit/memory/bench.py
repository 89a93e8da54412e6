from __future__ import annotations

from rota.memory import MemoryEngine
from rota.memory.queue import MemoryQueue
from rota.memory.transport import MemoryTransport
from rota.records import LeaseClaim, NewJob, Stamp
from rota.rules import DEFAULT_STAMP


class Bench:
    """One memory engine whose clock is the attribute ``now`` (microseconds)."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.engine = MemoryEngine("memory://", now=lambda: self.now)

    def transport(self, name: str = "t", **options: object) -> MemoryTransport:
        return self.engine.transport(name, options)

    def queue(self, name: str = "q") -> MemoryQueue:
        return self.engine.queue(name)


def publish(transport: MemoryTransport, group_id: str, *events: object, priority: int = 0) -> list[int]:
    return [transport.publish(group_id, event, priority, None, None) for event in events]


def take(transport: MemoryTransport, visibility: int = 10, floor: int | None = None) -> LeaseClaim | None:
    claims = transport.claim("w", 1, visibility, floor)
    return claims[0] if claims else None


def job(payload: str = "{}", stamp: Stamp = DEFAULT_STAMP, **options: object) -> NewJob:
    return NewJob(payload, stamp, **options)  # type: ignore[arg-type]


def stamp(**changes: int | None) -> Stamp:
    return DEFAULT_STAMP._replace(**changes)  # type: ignore[arg-type]
