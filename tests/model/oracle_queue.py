"""A naive queue: lists, sorts, and the words of the contract. Obviously right, never fast, knows no engine.

Times are whole microseconds. Numbers of the oracle (ids, tokens) grow like an engine's but are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Stamp:
    visibility: int = 300_000_000
    max_attempts: int = 3
    backoff_base: int = 5_000_000
    retention: int | None = None
    keep_done: int = 0
    key_ttl: int = 300_000_000


@dataclass
class Job:
    id: int
    payload: Any
    stamp: Stamp
    priority: int
    run_at: int
    enqueued_at: int
    expires_at: int | None
    key: str | None
    state: str = "pending"
    attempts: int = 0
    releases: int = 0
    worker: str | None = None
    token: int | None = None
    claimed_at: int | None = None
    deadline: int | None = None
    last_error: str | None = None
    previous_error: str | None = None
    result: Any = None
    done_at: int | None = None
    died_at: int | None = None


@dataclass
class Letter:
    number: int
    reason: str
    job: Job


@dataclass(frozen=True)
class Claim:
    """What was handed out: the job as it was then, and the visibility of this claim."""

    job: Job
    visibility: int

    @property
    def id(self) -> int:
        return self.job.id


@dataclass
class QueueOracle:
    now: int = 0
    counter: int = 0
    last_id: int = 0
    last_letter: int = 0
    jobs: list[Job] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    suspended: bool = False

    # -- Looking -------------------------------------------------------------------------------------------------------

    def find(self, id: int) -> Job | None:
        """The job, live, done or dead."""
        everybody = self.jobs + [letter.job for letter in self.letters]
        return next((job for job in everybody if job.id == id), None)

    def live(self) -> list[Job]:
        return [job for job in self.jobs if job.state in ("pending", "processing")]

    def expired(self, job: Job) -> bool:
        return job.expires_at is not None and job.expires_at <= self.now

    def lapsed(self, job: Job) -> bool:
        return job.state == "processing" and job.deadline is not None and job.deadline < self.now

    def claimable(self) -> list[Job]:
        """Q3, in the order of Q4."""
        found = [
            job
            for job in self.live()
            if not self.expired(job) and ((job.state == "pending" and job.run_at <= self.now) or self.lapsed(job))
        ]
        return sorted(found, key=lambda job: (-job.priority, job.run_at, job.id))

    def next_due(self) -> int | None:
        """The next instant after now at which a job becomes claimable by time alone."""
        if self.suspended:
            return None
        instants = []
        for job in self.live():
            due = job.run_at if job.state == "pending" else (job.deadline or 0) + 1
            used_up = job.attempts >= job.stamp.max_attempts
            if due > self.now and not used_up and (job.expires_at is None or due < job.expires_at):
                instants.append(due)
        return min(instants, default=None)

    # -- In ------------------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        payload: Any,
        stamp: Stamp,
        *,
        delay: int | None = None,
        run_at: int | None = None,
        priority: int = 0,
        expires: int | None = None,
        key: str | None = None,
    ) -> int:
        if key is not None and self._taken(key):
            return self.keys[key][0]
        self.last_id += 1
        ready = self.now + delay if delay is not None else (self.now if run_at is None else run_at)
        expires_at = None if expires is None else self.now + expires
        self.jobs.append(Job(self.last_id, payload, stamp, priority, ready, self.now, expires_at, key))
        if key is not None:
            self.keys[key] = (self.last_id, self.now + stamp.key_ttl)
        return self.last_id

    def _taken(self, key: str) -> bool:
        if key not in self.keys:
            return False
        id, until = self.keys[key]
        return any(job.id == id for job in self.live()) or self.now < until

    # -- Claim ---------------------------------------------------------------------------------------------------------

    def claim(self, worker: str, n: int, visibility: int | None) -> list[Claim]:
        if self.suspended or n <= 0:
            return []
        used_up = [job for job in self.claimable() if job.attempts >= job.stamp.max_attempts]
        for job in sorted(used_up, key=lambda job: (job.deadline or 0, job.token or 0)):
            self._bury(job, "max attempts exceeded", None)
        claims = []
        for job in self.claimable()[:n]:
            self.counter += 1
            lasting = visibility or job.stamp.visibility
            job.state, job.worker, job.token = "processing", worker, self.counter
            job.attempts += 1
            job.claimed_at, job.deadline = self.now, self.now + lasting
            claims.append(Claim(replace(job), lasting))
        return claims

    # -- The holder ----------------------------------------------------------------------------------------------------

    def _held(self, id: int, worker: str) -> Job | None:
        """Processing by this worker under a claim that has not lapsed."""
        job = next((job for job in self.live() if job.id == id), None)
        if job is None or job.state != "processing" or job.worker != worker or self.lapsed(job):
            return None
        return job

    def _valid(self, claim: Claim) -> Job | None:
        """Q6."""
        job = self._held(claim.id, claim.job.worker or "")
        return job if job is not None and job.token == claim.job.token else None

    def ack(self, claim: Claim, result: Any = None) -> bool:
        job = self._valid(claim)
        if job is not None:
            self._finish(job, result)
        return job is not None

    def ack_batch(self, claims: list[Claim], ids: list[int], worker: str) -> int:
        count = 0
        for claim in claims:
            count += claim.job.worker == worker and self.ack(claim)
        for id in ids:
            job = self._held(id, worker)
            if job is not None:
                self._finish(job, None)
                count += 1
        return count

    def _finish(self, job: Job, result: Any) -> None:
        if job.stamp.keep_done > 0:
            job.state, job.result, job.done_at, job.token = "done", result, self.now, None
        else:
            self.jobs.remove(job)

    def retry(self, claim: Claim, error: str | None, delay: int) -> bool:
        job = self._valid(claim)
        if job is None:
            return False
        if job.attempts >= job.stamp.max_attempts:
            self._bury(job, "max attempts exceeded", error)
            return True
        if error is not None:
            job.previous_error, job.last_error = job.last_error, error
        self._put_back(job, self.now + delay)
        return True

    def release(self, claim: Claim, delay: int | None) -> bool:
        job = self._valid(claim)
        if job is None:
            return False
        job.attempts -= 1
        job.releases += 1
        self._put_back(job, job.run_at if delay is None else self.now + delay)
        return True

    def _put_back(self, job: Job, run_at: int) -> None:
        job.state, job.run_at = "pending", run_at
        job.worker = job.token = job.claimed_at = job.deadline = None

    def fail(self, claim: Claim, error: str | None) -> bool:
        job = self._valid(claim)
        if job is not None:
            self._bury(job, "failed", error)
        return job is not None

    def heartbeat(self, claim: Claim, extend: int | None) -> bool:
        job = self._valid(claim)
        if job is not None:
            job.deadline = self.now + (extend or claim.visibility)
        return job is not None

    # -- Others --------------------------------------------------------------------------------------------------------

    def cancel(self, id: int) -> bool:
        job = next((job for job in self.live() if job.id == id), None)
        if job is not None:
            self.jobs.remove(job)
        return job is not None

    def purge(self, state: str) -> int:
        if state == "dead":
            return self.purge_dead(None, None)
        gone = [job for job in self.jobs if job.state == state]
        self.jobs = [job for job in self.jobs if job.state != state]
        return len(gone)

    def sweep_expired(self) -> int:
        over = sorted((job for job in self.live() if self.expired(job)), key=lambda job: (job.expires_at, job.id))
        for job in over:
            self._bury(job, "expired", None)
        self.letters = [letter for letter in self.letters if not self._retention_over(letter.job)]
        done = [job for job in self.jobs if job.done_at is not None and job.done_at + job.stamp.keep_done <= self.now]
        self.jobs = [job for job in self.jobs if job not in done]
        return len(over)

    def _retention_over(self, job: Job) -> bool:
        return job.stamp.retention is not None and (job.died_at or 0) + job.stamp.retention <= self.now

    def _bury(self, job: Job, reason: str, error: str | None) -> None:
        self.last_letter += 1
        self.jobs.remove(job)
        job.previous_error, job.last_error = job.last_error, error or reason
        job.state, job.died_at, job.token = "dead", self.now, None
        self.letters.append(Letter(self.last_letter, reason, job))

    def purge_dead(self, numbers: list[int] | None, older_than: int | None) -> int:
        before = len(self.letters)
        if older_than is not None:
            self.letters = [letter for letter in self.letters if (letter.job.died_at or 0) > self.now - older_than]
        else:
            self.letters = [letter for letter in self.letters if numbers is not None and letter.number not in numbers]
        return before - len(self.letters)

    def redrive(self, numbers: list[int] | None) -> list[int]:
        chosen = [letter for letter in self.letters if numbers is None or letter.number in numbers]
        for letter in sorted(chosen, key=lambda each: each.job.id):
            self.letters.remove(letter)
            job = letter.job
            if job.key is not None:
                id, _ = self.keys.get(job.key, (job.id, 0))
                if id != job.id and self._taken(job.key):
                    job.key = None
                else:
                    self.keys[job.key] = (job.id, job.enqueued_at + job.stamp.key_ttl)
            job.attempts, job.expires_at, job.died_at = 0, None, None
            self._put_back(job, self.now)
            self.jobs.append(job)
        return sorted(letter.job.id for letter in chosen)
