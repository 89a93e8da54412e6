"""``rota.contract.TransportEngine`` on SQLite: each verb is one operation in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rota import rules
from rota.contract import Position
from rota.engines.sqlite.calls import only_reads
from rota.engines.sqlite.queue import FORGOTTEN_AT_ONCE
from rota.records import (
    DeadMessageRow,
    ExplanationRow,
    GroupRow,
    GroupState,
    LeaseClaim,
    MessageRow,
    NewMessage,
    TransportOptions,
    TransportStatsRow,
)
from rota.sql import keys, transport, transport_inspect
from rota.sql.drive import Op

if TYPE_CHECKING:
    from rota.engines.sqlite.engine import SqliteEngine

T = TypeVar("T")


class SqliteTransport:
    """One transport of one database, with the options its handle names (T11)."""

    def __init__(self, engine: SqliteEngine, name: str, declared: dict[str, Any]) -> None:
        self.name = name
        self.place = f"sqlite:{engine.path}:transport:{name}"
        self._engine = engine
        self._declared = declared
        self._settled = False
        self._swept_keys: tuple[int, str] | None = None

    # -- Options -----------------------------------------------------------------------------------------------------

    def _write(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """A verb that may store something. Before this object's first one the options are merged, once."""
        if not self._settled:
            self._settled = self._engine.write(transport.declare, self.name, self._declared, True)
        return self._engine.write(op, self.name, *values)

    def _read(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """A verb that makes nothing: a transport that does not exist stays so, the options wait."""
        if not self._settled and self._declared and not self._engine.holders.here():
            self._settled = self._engine.write(transport.declare, self.name, self._declared, False)
        return self._engine.read(op, self.name, *values)

    @only_reads
    def options(self) -> TransportOptions:
        stored = self._read(transport.options)
        return stored if self._settled or not self._declared else rules.resolve_options(self._declared)

    def configure(self, changes: dict[str, Any]) -> TransportOptions:
        return self._write(transport.configure, changes)

    # -- Messages ----------------------------------------------------------------------------------------------------

    def publish(self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None) -> int:
        message = NewMessage(group_id, event, priority, key, headers)
        return self._write(transport.publish_many, (message,))[0]

    def publish_many(self, messages: Sequence[NewMessage]) -> list[int]:
        return self._write(transport.publish_many, messages)

    def claim(self, worker_id: str, n: int, visibility: int, min_priority: int | None) -> list[LeaseClaim]:
        if n <= 0:
            return []
        while True:
            claims = self._write(transport.claim, worker_id, n, visibility, min_priority)
            if claims is not None:
                return claims

    def ack(self, claim: LeaseClaim) -> bool:
        return self._write(transport.ack, claim)

    def ack_batch(self, claims: Sequence[LeaseClaim]) -> int:
        return self._write(transport.ack_batch, claims)

    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> bool:
        return self._write(transport.nack, claim, delay, error)

    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> list[int | None]:
        return self._write(transport.extend, claims, visibility)

    def release(self, claim: LeaseClaim, delay: int) -> bool:
        return self._write(transport.release, claim, delay)

    def release_batch(self, claims: Sequence[LeaseClaim]) -> int:
        return self._write(transport.release_batch, claims)

    def fail(self, claim: LeaseClaim, error: str | None) -> bool:
        return self._write(transport.fail, claim, error)

    # -- Control plane and inspection --------------------------------------------------------------------------------

    def suspend(self, group_id: str | None) -> bool:
        return self._write(transport.suspend, group_id)

    def resume(self, group_id: str | None) -> bool:
        return self._write(transport.resume, group_id)

    @only_reads
    def groups(self, state: GroupState | None, limit: int, after: str | None) -> list[GroupRow]:
        return self._read(transport_inspect.groups, state, limit, after)

    @only_reads
    def stats(self) -> TransportStatsRow:
        return self._read(transport_inspect.stats)

    @only_reads
    def peek(self, group_id: str, n: int) -> list[MessageRow]:
        return self._read(transport_inspect.peek, group_id, n)

    def purge(self, group_id: str) -> int:
        return self._write(transport_inspect.purge, group_id)

    @only_reads
    def explain(self, group_id: str) -> ExplanationRow:
        return self._read(transport_inspect.explain, group_id)

    @only_reads
    def next_due(self) -> int | None:
        return self._read(transport_inspect.next_due)

    # -- Dead letters ------------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """In rounds, each a transaction of its own: nobody waits long for the lock."""
        deleted = 0
        while True:
            count = self._write(transport.forget, FORGOTTEN_AT_ONCE)
            deleted += count
            if count < FORGOTTEN_AT_ONCE:
                break
        self._swept_keys = self._write(_sweep_keys, self._swept_keys)
        return deleted

    @only_reads
    def dead_letters(self, limit: int, after: int | None, group_id: str | None) -> list[DeadMessageRow]:
        return self._read(transport_inspect.dead_letters, limit, after, group_id)

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int:
        return self._write(transport_inspect.purge_dead, ids, older_than)

    def redrive(self, ids: Sequence[int] | None, position: Position) -> list[int]:
        return self._write(transport_inspect.redrive, ids, position)


def _sweep_keys(now: int, name: str, start: tuple[int, str] | None) -> Op[tuple[int, str] | None]:
    return keys.sweep(keys.of_transport(name), now, start)
