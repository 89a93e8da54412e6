"""Where the jobs of one queue are: in which lane, under which deadline, hidden, or gone (Q3, Q4, Q12).

The caller holds the lock. What the verbs decide stands in ``queue_state``.
"""

from __future__ import annotations

from rota import rules
from rota.memory.jobs import Job
from rota.memory.keys import Keys
from rota.memory.lanes import JobLane, Lanes
from rota.memory.pins import Pins
from rota.memory.schedule import FREE, Agenda, DeadlineTimers, Timers
from rota.memory.shared import Shared
from rota.records import DeadJobRow, JobRow


class JobPlaces:
    """One queue's jobs and letters, and what finds them."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.shared = shared
        self.name = name
        self.suspended_at: int | None = None
        self.jobs: dict[int, Job] = {}
        self.lanes: Lanes[JobLane] = Lanes(JobLane)
        self.delayed = Timers()
        self.deadlines = DeadlineTimers()
        self.processing = 0
        self.lapsed: dict[int, Job] = {}
        """Processing jobs back in their lanes, for their claim lapsed."""
        self.exhausted: dict[int, Job] = {}
        """Processing jobs whose last claim lapsed: the next claim buries them (Q4)."""
        self.expired: dict[int, Job] = {}
        """Jobs out of their lanes, for they expired: only the sweep buries them (Q12)."""
        self.expired_until = FREE
        """The latest expiry among them."""
        self.latest = FREE
        """The latest instant that ever counted as past for a job here; a clock behind it has gone back (C9)."""
        self.expiries = Agenda(self._expires_at)
        self.keys = Keys()
        self.pinned = Pins()
        self.letters: dict[int, DeadJobRow] = {}
        self.letter_of: dict[int, int] = {}
        self.letters_by_end = Agenda(lambda until, letter_id: letter_id in self.letters)
        self.done: dict[int, JobRow] = {}
        self.done_by_end = Agenda(lambda until, job_id: job_id in self.done)

    def _expires_at(self, when: int, job_id: int) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.expires_at == when

    # -- Where they belong ---------------------------------------------------------------------------------------------

    def place(self, job: Job, now: int) -> None:
        """Put a live job that is nowhere where it belongs."""
        if job.deadline != FREE:
            if not rules.lapsed(job.deadline, now):
                self.deadlines.add(job, job.deadline, job.token)
            elif rules.exhausted(job.attempts, job.spec.stamp.max_attempts):
                self.exhausted[job.id] = job
            else:
                self.lapsed[job.id] = job
                job.lane.push(job)
        elif job.run_at > now:
            self.delayed.add(job, job.run_at, job.id)
        else:
            if now > self.latest:
                self.latest = now
            job.lane.push(job)

    def advance(self, now: int) -> None:
        """Move jobs to where they belong by now. Nothing of it shows from outside."""
        if self.delayed.live and self.delayed.due(now + 1):
            while (job := self.delayed.take(now + 1)) is not None:
                assert isinstance(job, Job)
                self.place(job, now)
        if self.deadlines.live and self.deadlines.due(now):
            for job in self.deadlines.lapsed(now):
                assert isinstance(job, Job)
                self.place(job, now)
            self.latest = max(self.latest, now)
        if now < self.expired_until:
            # The clock has gone back: some may not be expired any more (C9).
            hidden, self.expired, self.expired_until = self.expired, {}, FREE
            for job in hidden.values():
                self.place(job, now)

    def next_ready(self, lane: JobLane, now: int) -> Job | None:
        """Take the first claimable job of the lane. What is in it was due once; everything is checked again."""
        while True:
            job: Job | None = lane.pop()
            if job is None:
                return None
            deadline = job.deadline
            if deadline >= now or (deadline == FREE and job.run_at > now):
                # The clock has gone back (C9): its holder is valid again, or it is not due yet.
                self.lapsed.pop(job.id, None)
                self.place(job, now)
            elif job.expires_at is not None and job.expires_at <= now:
                self.lapsed.pop(job.id, None)
                self.hide(job, job.expires_at)
            else:
                return job

    def hide(self, job: Job, expires_at: int) -> None:
        self.expired[job.id] = job
        self.expired_until = max(self.expired_until, expires_at)

    def elsewhere(self, job: Job) -> Job:
        """Take a job that lives on out of where it is; what it is from here on, for it may have to be a copy."""
        if job.queued:
            self.lapsed.pop(job.id, None)
            alive: Job = job.lane.replaced(job)
            self.jobs[job.id] = alive
            return alive
        self._take_out(job)
        return job

    # -- Ends ----------------------------------------------------------------------------------------------------------

    def bury(self, job: Job, reason: str, error: str | None, now: int) -> None:
        """Make a live job a dead letter (D1)."""
        letter_id = self.shared.next_letter()
        self.letters[letter_id] = job.letter(letter_id, reason, error, now)
        self.letter_of[job.id] = letter_id
        until = rules.retained_until(now, job.spec.stamp.dead_letter_retention)
        if until is not None:
            self.letters_by_end.put(until, letter_id, len(self.letters))
        self.remove(job)

    def remove(self, job: Job) -> None:
        """A job is no longer live."""
        del self.jobs[job.id]
        if job.deadline == FREE:
            self._take_out(job)
        else:
            self.processing -= 1
            if job.timer is not None:
                self.deadlines.drop(job)
            else:
                self._take_out(job)
        lane = job.lane
        lane.living -= 1
        if not lane.living:
            self.lanes.unused(lane)
        key = job.spec.key
        if key is not None:
            self.keys.ended(key, job.id)

    def _take_out(self, job: Job) -> None:
        if job.timer is not None:
            if job.deadline == FREE:
                self.delayed.drop(job)
            else:
                self.deadlines.drop(job)
        elif job.queued:
            self.lapsed.pop(job.id, None)
            job.lane.discard(job)
        else:
            self.expired.pop(job.id, None)
            self.exhausted.pop(job.id, None)
