"""A handle's queue on the memory engine: takes the lock and hands on.

Nothing is made by making it: the data comes into being with the first verb that has something to store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.contract import ListedState
from rota.memory import queue_inspect, queue_letters
from rota.memory.queue_state import QueueState
from rota.records import DeadJobRow, ExplanationRow, JobClaim, JobRow, NewJob, QueueStatsRow

if TYPE_CHECKING:
    from rota.memory.engine import MemoryEngine


class MemoryQueue:
    """``rota.contract.QueueEngine`` on memory."""

    def __init__(self, engine: MemoryEngine, name: str) -> None:
        self.name = name
        self.place = f"memory:{engine.shared.serial}:queue:{name}"
        self._engine = engine
        self._shared = engine.shared
        self._state: QueueState | None = None

    def writing(self) -> QueueState:
        """The data, made if need be."""
        states = self._engine.queue_states
        state = self._state = states.get(self.name) or states.setdefault(self.name, QueueState(self._shared, self.name))
        # From here on the hot verbs go straight to the data, which takes the lock itself.
        self.__dict__["enqueue"] = state.enqueue
        self.__dict__["claim"] = state.claim
        self.__dict__["ack"] = state.ack
        return state

    def reading(self) -> QueueState:
        """The data; of a queue that does not exist an empty one, which is not kept."""
        return self.writing() if self.name in self._engine.queue_states else QueueState(self._shared, self.name)

    # -- Jobs --------------------------------------------------------------------------------------------------------

    def enqueue(self, job: NewJob) -> int:
        with self._shared.lock:
            return (self._state or self.writing()).enqueue(job)

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]:
        with self._shared.lock:
            # Storing nothing makes no queue.
            return (self._state or self.writing()).enqueue_many(jobs) if jobs else []

    def claim(self, worker_id: str, n: int, visibility: int | None) -> list[JobClaim]:
        with self._shared.lock:
            return (self._state or self.reading()).claim(worker_id, n, visibility)

    def ack(self, claim: JobClaim, result: str | None) -> bool:
        with self._shared.lock:
            return (self._state or self.reading()).ack(claim, result)

    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> int:
        with self._shared.lock:
            return (self._state or self.reading()).ack_batch(claims, ids, worker_id)

    def retry(self, claim: JobClaim, error: str | None, delay: int) -> bool:
        with self._shared.lock:
            return (self._state or self.reading()).retry(claim, error, delay)

    def fail(self, claim: JobClaim, error: str | None) -> bool:
        with self._shared.lock:
            return (self._state or self.reading()).fail(claim, error)

    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> list[int | None]:
        with self._shared.lock:
            return (self._state or self.reading()).heartbeat(claims, extend)

    def release(self, claim: JobClaim, delay: int | None) -> bool:
        with self._shared.lock:
            return (self._state or self.reading()).release(claim, delay)

    def release_batch(self, claims: Sequence[JobClaim]) -> int:
        with self._shared.lock:
            state = self._state or self.reading()
            return sum(state.release(claim, None) for claim in claims)

    def cancel(self, job_id: int) -> bool:
        with self._shared.lock:
            return (self._state or self.reading()).cancel(job_id)

    # -- Control plane and inspection --------------------------------------------------------------------------------

    def suspend(self) -> bool:
        with self._shared.lock:
            return queue_inspect.suspend(self._state or self.writing())

    def resume(self) -> bool:
        with self._shared.lock:
            return queue_inspect.resume(self._state or self.reading())

    def get_job(self, job_id: int) -> JobRow | None:
        with self._shared.reading:
            return queue_inspect.get_job(self._state or self.reading(), job_id)

    def jobs(self, state: ListedState | None, limit: int, after: int | None) -> list[JobRow]:
        with self._shared.reading:
            return queue_inspect.jobs(self._state or self.reading(), state, limit, after)

    def peek(self, n: int) -> list[JobRow]:
        with self._shared.reading:
            return queue_inspect.peek(self._state or self.reading(), n)

    def purge(self, state: ListedState) -> int:
        with self._shared.lock:
            return queue_inspect.purge(self._state or self.reading(), state)

    def explain(self, job_id: int) -> ExplanationRow:
        with self._shared.reading:
            return queue_inspect.explain(self._state or self.reading(), job_id)

    def stats(self) -> QueueStatsRow:
        with self._shared.reading:
            return queue_inspect.stats(self._state or self.reading())

    def next_due(self) -> int | None:
        with self._shared.reading:
            return queue_inspect.next_due(self._state or self.reading())

    # -- Dead letters ------------------------------------------------------------------------------------------------

    def sweep_expired(self) -> int:
        with self._shared.lock:
            return queue_letters.sweep_expired(self._state or self.reading())

    def dead_letters(self, limit: int, after: int | None) -> list[DeadJobRow]:
        with self._shared.reading:
            return queue_letters.dead_letters(self._state or self.reading(), limit, after)

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int:
        with self._shared.lock:
            return queue_letters.purge_dead(self._state or self.reading(), ids, older_than)

    def redrive(self, ids: Sequence[int] | None) -> list[int]:
        with self._shared.lock:
            return queue_letters.redrive(self._state or self.reading(), ids)
