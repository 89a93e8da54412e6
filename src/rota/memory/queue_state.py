"""One queue's data and its hot verbs: enqueue, claim, settle (Q1-Q10).

The caller holds the lock, but ``enqueue``, ``claim`` and ``ack`` take it themselves, in the cheapest way there is, and
``claim`` spells out what it could call.
Dead letters stand in ``queue_letters``, inspection in ``queue_inspect``; ``queue`` is the engine's face.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush

from rota import rules
from rota.memory.jobs import Job
from rota.memory.keys import Keys
from rota.memory.lanes import JobLane, Lanes
from rota.memory.pins import Pin, Pins
from rota.memory.schedule import FREE, Agenda, DeadlineTimers, Timers
from rota.memory.shared import Shared
from rota.records import DeadJobRow, JobClaim, JobRow, NewJob

# A named tuple's own constructor costs twice as much.
_new_row = tuple.__new__


class QueueState:
    """One queue."""

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

    # -- Enqueue -----------------------------------------------------------------------------------------------------

    def enqueue(self, new: NewJob) -> int:
        shared = self.shared
        lock = shared.lock
        try:
            lock.acquire()
            now = shared.now()
            if new.key is not None:
                holder = self.keys.holder(new.key, now)
                if holder is not None:
                    return holder
            if shared.max_items is not None:
                shared.make_room(1)
            return self.append(new, now, shared.next_id())
        finally:
            try:
                lock.release()
            except RuntimeError:
                pass  # Interrupted while it waited for the lock.

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]:
        now = self.shared.now()
        self.make_room(jobs, now)
        ids = []
        for new in jobs:
            holder = None if new.key is None else self.keys.holder(new.key, now)
            ids.append(self.append(new, now, self.shared.next_id()) if holder is None else holder)
        return ids

    def make_room(self, jobs: Sequence[NewJob], now: int, owner: object = None) -> None:
        """Before any effect: is there room for those whose key is not taken, and is no key in doubt (X1)?"""
        if self.shared.max_items is None and not self.keys.reserved:
            return
        keys = {new.key for new in jobs if new.key is not None}
        free = sum(1 for key in keys if self.keys.holder(key, now, owner) is None)
        if self.shared.max_items is not None:
            self.shared.make_room(free + sum(1 for new in jobs if new.key is None))

    def append(self, new: NewJob, now: int, number: int) -> int:
        """A new job; ``now`` is when it was asked for."""
        shared = self.shared
        _, stamp, _, delay, run_at, priority, expires, key, _ = new
        lane = self.lanes.by_priority.get(priority)
        if lane is None:
            lane = self.lanes.open(priority)
        lane.living += 1
        shared.items += 1
        ready_at = now if delay is None and run_at is None else rules.ready_time(now, delay, run_at)
        job = self.jobs[number] = Job(number, new, lane, ready_at, now)
        if expires is not None:
            job.expires_at = until = now + expires
            self.expiries.put(until, number, len(self.jobs))
        if key is not None:
            self.keys.bind(key, number, now + stamp.key_ttl, now)
        if ready_at > now:
            self.delayed.add(job, ready_at, number)
        else:
            if now > self.latest:
                self.latest = now
            lane.push(job)
        return number

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

    # -- Claim -------------------------------------------------------------------------------------------------------

    def claim(self, worker_id: str, n: int, visibility: int | None) -> list[JobClaim]:
        shared = self.shared
        lock = shared.lock
        try:
            lock.acquire()
            now = shared.now()
            claims: list[JobClaim] = []
            if self.suspended_at is not None:
                return claims
            if self.delayed.live or self.expired or self.deadlines.due(now):
                self.advance(now)
            if self.exhausted:
                self._bury_exhausted(now)
            deadlines = self.deadlines
            fifo = deadlines.fifo
            for lane in self.lanes.ordered:
                while len(claims) < n:
                    job = self.next_ready(lane, now)
                    if job is None:
                        break
                    if job.deadline == FREE:
                        self.processing += 1
                    else:
                        del self.lapsed[job.id]
                    spec = job.spec
                    stamp = spec.stamp
                    seconds = stamp.visibility if visibility is None else visibility
                    job.attempts = attempts = job.attempts + 1
                    job.worker_id = worker_id
                    job.claimed_at = now
                    job.token = token = shared.next_token()
                    job.deadline = deadline = now + seconds
                    # ``deadlines.add``, spelled out.
                    deadlines.live += 1
                    job.timer = entry = (deadline, token, job)
                    if not fifo or fifo[-1] < entry:
                        fifo.append(entry)
                    else:
                        heappush(deadlines.heap, entry)
                    claims.append(
                        _new_row(
                            JobClaim,
                            (
                                job.id,
                                spec.name,
                                spec.payload,
                                spec.headers,
                                spec.priority,
                                attempts,
                                stamp.max_attempts,
                                job.run_at,
                                job.enqueued_at,
                                job.expires_at,
                                worker_id,
                                token,
                                now,
                                deadline,
                                job.releases,
                                job.last_error,
                                seconds,
                                stamp.backoff_base,
                            ),
                        )
                    )
                if len(claims) >= n:
                    break
            return claims
        finally:
            try:
                lock.release()
            except RuntimeError:
                pass  # Interrupted while it waited for the lock.

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
                self._hide(job, job.expires_at)
            else:
                return job

    def _hide(self, job: Job, expires_at: int) -> None:
        self.expired[job.id] = job
        self.expired_until = max(self.expired_until, expires_at)

    def _bury_exhausted(self, now: int) -> None:
        """Q4: the claimable jobs whose attempts are used up die, by deadline, then token."""
        exhausted, self.exhausted = self.exhausted, {}
        for job in sorted(exhausted.values(), key=lambda job: (job.deadline, job.token)):
            if not rules.lapsed(job.deadline, now):
                self.place(job, now)
            elif job.expires_at is not None and job.expires_at <= now:
                self._hide(job, job.expires_at)
            else:
                self.bury(job, rules.MAX_ATTEMPTS, None, now)

    # -- Settle ------------------------------------------------------------------------------------------------------

    def ack(self, claim: JobClaim, result: str | None) -> bool:
        shared = self.shared
        lock = shared.lock
        try:
            lock.acquire()
            now = shared.now()
            # ``valid``, spelled out.
            job = self.jobs.get(claim[0])
            if job is None or job.token != claim[11] or job.deadline < now or job.worker_id != claim[10]:
                self.pinned.check(claim[0])
                return False
            self._ack(job, result, now)
            return True
        finally:
            try:
                lock.release()
            except RuntimeError:
                pass  # Interrupted while it waited for the lock.

    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> int:
        now = self.shared.now()
        count = 0
        for number in (*(claim.id for claim in claims), *ids) if self.pinned else ():
            self.pinned.check(number)
        for claim in claims:
            job = self.valid(claim, now)
            if job is not None and job.worker_id == worker_id:
                self._ack(job, None, now)
                count += 1
        for number in ids:
            job = self.jobs.get(number)
            if job is not None and job.worker_id == worker_id and job.deadline >= now:
                self._ack(job, None, now)
                count += 1
        return count

    def _ack(self, job: Job, result: str | None, now: int) -> None:
        keep_done = job.spec.stamp.keep_done
        if keep_done > 0:
            self.done[job.id] = job.row("done", result=result, done_at=now)
            self.done_by_end.put(now + keep_done, job.id, len(self.done))
        else:
            self.shared.items -= 1
        self.remove(job)

    def retry(self, claim: JobClaim, error: str | None, delay: int) -> bool:
        now = self.shared.now()
        job = self.valid(claim, now)
        if job is None:
            return False
        self.end_retried(job.id, error, delay, now)
        return True

    def fail(self, claim: JobClaim, error: str | None) -> bool:
        now = self.shared.now()
        job = self.valid(claim, now)
        if job is None:
            return False
        self.end_failed(job.id, error, now)
        return True

    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> list[int | None]:
        now = self.shared.now()
        results: list[int | None] = []
        for claim in claims:
            job = self.valid(claim, now)
            if job is None:
                results.append(None)
                continue
            deadline = now + (claim.visibility if extend is None else extend)
            self.renew(job.id, deadline, now)
            results.append(deadline)
        return results

    def release(self, claim: JobClaim, delay: int | None) -> bool:
        now = self.shared.now()
        job = self.valid(claim, now)
        if job is None:
            return False
        self.end_released(job.id, delay, now)
        return True

    def cancel(self, job_id: int) -> bool:
        job = self.jobs.get(job_id)
        if job is None:
            return False
        self.pinned.check(job_id)
        self.shared.items -= 1
        self.remove(job)
        return True

    def valid(self, claim: JobClaim, now: int) -> Job | None:
        """Q6: processing, by this worker, under this claim's token, until its deadline's own instant."""
        job = self.jobs.get(claim[0])
        if job is None or job.token != claim[11] or job.deadline < now or job.worker_id != claim[10]:
            self.pinned.check(claim[0])
            return None
        return job

    # -- What settling does, once it is found valid --------------------------------------------------------------------

    def end_acked(self, job_id: int, result: str | None, now: int) -> None:
        self._ack(self.jobs[job_id], result, now)

    def end_retried(self, job_id: int, error: str | None, delay: int, now: int) -> None:
        job = self.jobs[job_id]
        if rules.exhausted(job.attempts, job.spec.stamp.max_attempts):
            self.bury(job, rules.MAX_ATTEMPTS, error, now)
            return
        job.failed(error)
        self._to_pending(job, now + delay, now)

    def end_failed(self, job_id: int, error: str | None, now: int) -> None:
        self.bury(self.jobs[job_id], rules.FAILED, error, now)

    def end_released(self, job_id: int, delay: int | None, now: int) -> None:
        job = self.jobs[job_id]
        job.attempts -= 1
        job.releases += 1
        self._to_pending(job, job.run_at if delay is None else now + delay, now)

    def renew(self, job_id: int, deadline: int, now: int) -> None:
        """Another deadline for a claim."""
        job = self.jobs[job_id]
        if job.timer is not None:
            self.deadlines.renew(job, deadline)
        else:
            # It was found lapsed, then the clock went back.
            job = self._elsewhere(job)
            job.deadline = deadline
            self.place(job, now)

    # -- Pins (X2) -----------------------------------------------------------------------------------------------------

    def pin(self, job_id: int, owner: object) -> Pin:
        """Take a processing job out of reach."""
        job = self._elsewhere(self.jobs[job_id])
        pin = self.pinned[job_id] = Pin(owner, job.token, job.deadline)
        job.token = 0
        return pin

    def unpin(self, job_id: int) -> None:
        """Back to where it belongs by now."""
        job = self.jobs[job_id]
        job.token = self.pinned.pop(job_id).token
        self.place(job, self.shared.now())

    def bare_claim(self, job_id: int, worker_id: str) -> JobClaim | None:
        """Q9: a claim for a bare id, as far as settling in a transaction needs one."""
        job = self.jobs.get(job_id)
        if job is None or job.worker_id != worker_id:
            return None
        pin = self.pinned.get(job_id)
        token = job.token if pin is None else pin.token
        row = (job_id, None, "", None, 0, 0, 0, 0, 0, None, worker_id, token, 0, job.deadline, 0, None, 0, 0)
        claim: JobClaim = _new_row(JobClaim, row)
        return claim

    def _to_pending(self, job: Job, run_at: int, now: int) -> None:
        self.processing -= 1
        job = self._elsewhere(job)
        job.back_to_pending(run_at)
        self.place(job, now)

    def _elsewhere(self, job: Job) -> Job:
        """Take a job that lives on out of where it is; what it is from here on, for it may have to be a copy."""
        if job.queued:
            self.lapsed.pop(job.id, None)
            alive: Job = job.lane.replaced(job)
            self.jobs[job.id] = alive
            return alive
        self._take_out(job)
        return job

    # -- Ends --------------------------------------------------------------------------------------------------------

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
