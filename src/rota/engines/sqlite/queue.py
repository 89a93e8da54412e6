"""``rota.contract.QueueEngine`` on SQLite: each verb is one operation in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.contract import ListedState
from rota.engines.sqlite.calls import only_reads
from rota.records import DeadJobRow, ExplanationRow, JobClaim, JobRow, NewJob, QueueStatsRow
from rota.rules import CLEANING_LIMIT
from rota.sql import keys, queue, queue_inspect
from rota.sql.drive import Op

if TYPE_CHECKING:
    from rota.engines.sqlite.engine import SqliteEngine

# How many letters or done records one transaction of a sweep deletes.
FORGOTTEN_AT_ONCE = 10_000


class SqliteQueue:
    """One queue of one database."""

    def __init__(self, engine: SqliteEngine, name: str) -> None:
        self.name = name
        self.place = f"sqlite:{engine.path}:queue:{name}"
        self._engine = engine
        self._swept_keys: tuple[int, str] | None = None

    def enqueue(self, job: NewJob) -> int:
        engine, name = self._engine, self.name
        job_id = engine.write(queue.enqueue, name, job, name in engine.known_queues)
        engine.known_queues.add(name)
        return job_id

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]:
        engine, name = self._engine, self.name
        ids = engine.write(queue.enqueue_many, name, jobs, name in engine.known_queues)
        if ids:
            engine.known_queues.add(name)
        return ids

    def claim(self, worker_id: str, n: int, visibility: int | None) -> list[JobClaim]:
        if n <= 0:
            return []
        return self._engine.write_until(queue.claim, self.name, worker_id, n, visibility)

    def ack(self, claim: JobClaim, result: str | None) -> bool:
        return self._engine.write(queue.ack, self.name, claim, result)

    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> int:
        return self._engine.write(queue.ack_batch, self.name, claims, ids, worker_id)

    def retry(self, claim: JobClaim, error: str | None, delay: int) -> bool:
        return self._engine.write(queue.retry, self.name, claim, error, delay)

    def fail(self, claim: JobClaim, error: str | None) -> bool:
        return self._engine.write(queue.fail, self.name, claim, error)

    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> list[int | None]:
        return self._engine.write(queue.heartbeat, self.name, claims, extend)

    def release(self, claim: JobClaim, delay: int | None) -> bool:
        return self._engine.write(queue.release, self.name, claim, delay)

    def release_batch(self, claims: Sequence[JobClaim]) -> int:
        return self._engine.write(queue.release_batch, self.name, claims)

    def cancel(self, job_id: int) -> bool:
        return self._engine.write(queue.cancel, self.name, job_id)

    @only_reads
    def get_job(self, job_id: int) -> JobRow | None:
        return self._engine.read(queue_inspect.get_job, self.name, job_id)

    def sweep_expired(self) -> int:
        """In rounds, each a transaction of its own: D1 holds for each job, and nobody waits long for the lock."""
        engine, name = self._engine, self.name
        moved = engine.write_rounds(queue.sweep_expired, name, limit=CLEANING_LIMIT)
        engine.write_rounds(queue.forget, name, limit=FORGOTTEN_AT_ONCE)
        self._swept_keys = engine.write(_sweep_keys, name, self._swept_keys)
        return moved

    @only_reads
    def peek(self, n: int) -> list[JobRow]:
        return self._engine.read(queue_inspect.peek, self.name, n)

    @only_reads
    def jobs(self, state: ListedState | None, limit: int, after: int | None) -> list[JobRow]:
        return self._engine.read(queue_inspect.jobs, self.name, state, limit, after)

    def purge(self, state: ListedState) -> int:
        return self._engine.write(queue_inspect.purge, self.name, state)

    @only_reads
    def explain(self, job_id: int) -> ExplanationRow:
        return self._engine.read(queue_inspect.explain, self.name, job_id)

    @only_reads
    def stats(self) -> QueueStatsRow:
        return self._engine.read(queue_inspect.stats, self.name)

    def suspend(self) -> bool:
        return self._engine.write(queue_inspect.suspend, self.name)

    def resume(self) -> bool:
        return self._engine.write(queue_inspect.resume, self.name)

    @only_reads
    def dead_letters(self, limit: int, after: int | None) -> list[DeadJobRow]:
        return self._engine.read(queue_inspect.dead_letters, self.name, limit, after)

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int:
        return self._engine.write(queue_inspect.purge_dead, self.name, ids, older_than)

    def redrive(self, ids: Sequence[int] | None) -> list[int]:
        return self._engine.write(queue_inspect.redrive, self.name, ids)

    @only_reads
    def next_due(self) -> int | None:
        return self._engine.read(queue_inspect.next_due, self.name)


def _sweep_keys(now: int, name: str, start: tuple[int, str] | None) -> Op[tuple[int, str] | None]:
    return keys.sweep(keys.of_queue(name), now, start)
