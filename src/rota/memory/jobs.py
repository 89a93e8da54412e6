"""One live job of a queue."""

from __future__ import annotations

from rota.memory.lanes import JobLane, Queued
from rota.memory.schedule import FREE
from rota.records import DeadJobRow, JobRow, JobState, NewJob


class Job(Queued):
    """A job while it is pending or processing. What it was enqueued with stays one shared ``spec``.

    ``deadline`` is its claim's end, ``FREE`` while pending: that is the state. A pending job is in its lane (due) or in
    the queue's ``delayed`` timers; a processing one in the ``deadlines``, or, once found lapsed, in its lane or in
    ``exhausted``. A job found expired is in ``expired`` instead, until it is swept.
    """

    __slots__ = (
        "attempts",
        "claimed_at",
        "enqueued_at",
        "expires_at",
        "id",
        "last_error",
        "previous_error",
        "releases",
        "run_at",
        "spec",
        "worker_id",
    )

    def __init__(self, number: int, spec: NewJob, lane: JobLane, run_at: int, enqueued_at: int) -> None:
        self.id = number
        self.spec = spec
        self.lane = lane
        self.run_at = run_at
        self.enqueued_at = enqueued_at
        self.expires_at: int | None = None
        self.attempts = 0
        self.releases = 0
        self.token = 0
        self.deadline = FREE
        self.timer = None
        self.queued = False
        self.worker_id: str | None = None
        self.claimed_at: int | None = None
        self.last_error: str | None = None
        self.previous_error: str | None = None

    @property
    def state(self) -> JobState:
        """Pending or processing; a lapsed claim still counts as processing."""
        return "pending" if self.deadline == FREE else "processing"

    def back_to_pending(self, run_at: int) -> None:
        """Spend the claim."""
        self.run_at = run_at
        self.deadline = FREE
        self.token = 0
        self.worker_id = None
        self.claimed_at = None

    def failed(self, error: str | None) -> None:
        """Note an error; None keeps the last one."""
        if error is not None:
            self.previous_error = self.last_error
            self.last_error = error

    def row(
        self,
        state: JobState,
        *,
        result: str | None = None,
        done_at: int | None = None,
        died_at: int | None = None,
    ) -> JobRow:
        """All of it, in its own state or in the one it ends in."""
        spec = self.spec
        return JobRow(
            self.id,
            state,
            spec.name,
            spec.payload,
            spec.headers,
            spec.priority,
            self.attempts,
            self.run_at,
            self.enqueued_at,
            self.expires_at,
            self.worker_id,
            self.claimed_at,
            None if self.deadline == FREE else self.deadline,
            self.releases,
            self.last_error,
            self.previous_error,
            spec.key,
            spec.stamp,
            result,
            done_at,
            died_at,
        )

    def letter(self, letter_id: int, reason: str, error: str | None, now: int) -> DeadJobRow:
        """The dead letter of a job that ends here (D1)."""
        self.previous_error = self.last_error
        self.last_error = reason if error is None else error
        return DeadJobRow(letter_id, reason, self.row("dead", died_at=now))


def revived(letter: DeadJobRow, lane: JobLane, key: str | None, now: int) -> Job:
    """A redriven job: its old self, attempts 0, ready now, expiry cleared (D3)."""
    row = letter.job
    spec = NewJob(row.payload, row.stamp, row.name, priority=row.priority, key=key, headers=row.headers)
    job = Job(row.id, spec, lane, now, row.enqueued_at)
    job.releases = row.releases
    job.last_error, job.previous_error = row.last_error, row.previous_error
    return job
