"""One queue's hot verbs: enqueue, claim, settle (Q1-Q10).

The caller holds the lock, but ``enqueue``, ``claim`` and ``ack`` take it themselves, in the cheapest way there is, and
``claim`` spells out what it could call. Where jobs are stands in ``queue_places``, dead letters in ``queue_letters``,
inspection in ``queue_inspect``; ``queue`` is the engine's face.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush

from rota import rules
from rota.memory.jobs import Job
from rota.memory.pins import Pin
from rota.memory.queue_places import JobPlaces
from rota.memory.schedule import FREE
from rota.records import JobClaim, NewJob

# A named tuple's own constructor costs twice as much.
_new_row = tuple.__new__


class QueueState(JobPlaces):
    """One queue."""

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

    def _bury_exhausted(self, now: int) -> None:
        """Q4: the claimable jobs whose attempts are used up die, by deadline, then token."""
        exhausted, self.exhausted = self.exhausted, {}
        for job in sorted(exhausted.values(), key=lambda job: (job.deadline, job.token)):
            if not rules.lapsed(job.deadline, now):
                self.place(job, now)
            elif job.expires_at is not None and job.expires_at <= now:
                self.hide(job, job.expires_at)
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
            job = self.elsewhere(job)
            job.deadline = deadline
            self.place(job, now)

    # -- Pins (X2) -----------------------------------------------------------------------------------------------------

    def pin(self, job_id: int, owner: object) -> Pin:
        """Take a processing job out of reach."""
        job = self.elsewhere(self.jobs[job_id])
        pin = self.pinned[job_id] = Pin(owner, job.token, job.deadline)
        job.token = 0
        return pin

    def unpin(self, job_id: int) -> None:
        """Back to where it belongs by now; quiet if it was not pinned after all."""
        pin = self.pinned.pop(job_id, None)
        if pin is None:
            return
        job = self.jobs[job_id]
        job.token = pin.token
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
        job = self.elsewhere(job)
        job.back_to_pending(run_at)
        self.place(job, now)
