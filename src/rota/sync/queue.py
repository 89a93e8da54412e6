"""``Queue`` and ``Job``, sync."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rota import rules, units
from rota.facade import ids as given
from rota.facade import waiting
from rota.facade.lost import lost_event
from rota.facade.on_demand import OnDemand
from rota.facade.queues import JobData, QueueBase, job_filter, listed_state
from rota.facade.settled import noted, noted_all
from rota.facade.transactions import Tx, lost
from rota.facade.transports import redrive_position
from rota.sync import within
from rota.telemetry import API, LOADED, active
from rota.units import Duration, Instant

if TYPE_CHECKING:
    from rota.contract import ListedState, Position
    from rota.facade import present
    from rota.public import DeadJob, DeadLetter, Explanation, JobRecord, QueueStats
    from rota.records import JobClaim
else:
    present = OnDemand("rota.facade.present")


class Job(JobData):
    """A claimed job with its verbs; each is the queue's verb of the same name (Q7)."""

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """Set by the worker that runs this handler: its claim is lost or its time is over.

        Outside of a worker nobody sets it.
        """
        return lost_event(self)

    def ack(self, result: Any = None, *, tx: Tx = None) -> bool:
        """Done: gone, or kept with ``result`` for the job's ``keep_done`` seconds. ``False``: the claim was lost."""
        return self._queue.ack(self, result, tx=tx)  # type: ignore[no-any-return]

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None) -> bool:
        """Try again after the backoff (Q8) or ``delay`` seconds; dead when no attempt is left."""
        return self._queue.retry(self, error, delay, tx=tx)  # type: ignore[no-any-return]

    def fail(self, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        """Dead-letter the job now."""
        return self._queue.fail(self, error, tx=tx)  # type: ignore[no-any-return]

    def heartbeat(self, extend: Duration | None = None, *, tx: Tx = None) -> bool:
        """Reset the claim's end to now + ``extend`` seconds, else this claim's visibility."""
        return self._queue.heartbeat(self, extend, tx=tx)  # type: ignore[no-any-return]

    def release(self, *, delay: Duration | None = None, tx: Tx = None) -> bool:
        """Give it back unworked, the attempt given back."""
        return self._queue.release(self, delay=delay, tx=tx)  # type: ignore[no-any-return]


class Queue(QueueBase[Job]):
    """A priority queue of jobs with attempts, retries and dead letters (contract Q).

    Handle operations return ``False`` where the claim is not valid (Q6). All verbs raise ``StoreClosed`` after the
    store was closed and the engine's errors of contract E; wrong arguments raise ``TypeError`` or ``ValueError`` before
    any effect.
    """

    _job_type = Job

    def enqueue(
        self,
        payload: Any,
        *,
        name: str | None = None,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        priority: int | None = 0,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        visibility: Duration | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tx: Tx = None,
    ) -> int:
        """Store a job and return its id (Q1, Q2). A taken ``key`` stores nothing and returns the existing id (Q15).

        ``delay``, ``expires`` and ``visibility`` are seconds, ``run_at`` POSIX seconds or an aware ``datetime``. Raises
        ``PayloadError`` or ``PayloadTooLarge`` for a payload that cannot be stored (P1, P2).
        """
        job = self._new(payload, name, delay, run_at, priority, expires, max_attempts, visibility, key, headers)
        if API in LOADED and (spans := active()) is not None:
            with spans.send(self.name) as send:
                job = send.job(job)
                if tx is not None:
                    return send.stored(within.within(self, tx, "enqueue", job))
                return self._woken(send.stored(self._engine.enqueue(job)))
        if tx is not None:
            return within.within(self, tx, "enqueue", job)  # type: ignore[no-any-return]
        return self._woken(self._engine.enqueue(job))

    def enqueue_many(self, items: Iterable[Any], *, tx: Tx = None) -> list[int]:
        """Store payloads or ``rota.Item``s, all or nothing; their ids in order."""
        jobs = self._new_many(items)
        if API in LOADED and (spans := active()) is not None:
            with spans.send(self.name, len(jobs)) as send:
                jobs = send.jobs(jobs)
                if tx is not None:
                    return within.within(self, tx, "enqueue_many", jobs)  # type: ignore[no-any-return]
                return self._woken(self._engine.enqueue_many(jobs))
        if tx is not None:
            return within.within(self, tx, "enqueue_many", jobs)  # type: ignore[no-any-return]
        return self._woken(self._engine.enqueue_many(jobs))

    def claim_batch(
        self, worker_id: str | None, n: int, *, visibility: Duration | None = None, wait: Duration | None = 0
    ) -> list[Job]:
        """Up to ``n`` jobs in the order priority, ready time, id (Q4), waiting up to ``wait`` real seconds (X7)."""
        return self._jobs(self._claim(worker_id, given.count(n), visibility, wait))

    def claim_one(
        self, worker_id: str | None = None, *, visibility: Duration | None = None, wait: Duration | None = 0
    ) -> Job | None:
        """The next job, or ``None`` when there is none within ``wait`` real seconds."""
        claims = self._claim(worker_id, 1, visibility, wait)
        return self._job(claims[0]) if claims else None

    def _claim(
        self, worker_id: str | None, n: int, visibility: Duration | None, wait: Duration | None
    ) -> list[JobClaim]:
        ask = self._ask(worker_id, n, visibility)
        if wait == 0 and type(wait) is int:
            return self._engine.claim(*ask) if n else self._none()
        pause = units.pause(wait, "wait")
        if not n:
            return self._none()
        engine = self._engine
        return waiting.drive(self._core, self._address, pause, partial(engine.claim, *ask), engine.next_due)

    def ack(self, job: Job, result: Any = None, *, tx: Tx = None) -> bool:
        """Done: gone, or kept with ``result`` for the job's ``keep_done`` seconds."""
        text = None if result is None else self._result(result)
        claim = self._own(job)
        if tx is not None:
            return within.settle(self, tx, job, "ack", claim, text)
        done = claim is not None and self._engine.ack(claim, text)
        return noted(job, done) if job.remembers else done

    def ack_batch(self, jobs_or_ids: Iterable[Job | int], worker_id: str, *, tx: Tx = None) -> int:
        """Ack each valid one, counted once; jobs bring their token, bare ids are judged without it (Q9)."""
        worker = self._worker_name(worker_id)
        held = list(jobs_or_ids)
        claims, ids = self._claims_and_ids(held)
        if tx is not None:
            return within.settle_all(self, tx, held, self._asked(held, claims, ids), claims, ids, worker)
        return noted_all(held, self._engine.ack_batch(claims, ids, worker))

    def retry(
        self, job: Job, error: str | BaseException | None = None, delay: Duration | None = None, *, tx: Tx = None
    ) -> bool:
        """Try again after the backoff (Q8) or ``delay`` seconds; dead when no attempt is left (Q7)."""
        text, claim = rules.clean_error(error), self._own(job)
        if tx is not None:
            return within.settle(self, tx, job, "retry", claim, text, 0 if claim is None else self._curve(claim, delay))
        return noted(job, claim is not None and self._woken(self._engine.retry(claim, text, self._curve(claim, delay))))

    def fail(self, job: Job, error: str | BaseException | None = None, *, tx: Tx = None) -> bool:
        """Dead-letter the job now: ``error``, or ``"failed"``."""
        text, claim = rules.clean_error(error), self._own(job)
        if tx is not None:
            return within.settle(self, tx, job, "fail", claim, text)
        return noted(job, claim is not None and self._engine.fail(claim, text))

    def heartbeat(self, job: Job, extend: Duration | None = None, *, tx: Tx = None) -> bool:
        """Reset the claim's end to now + ``extend`` seconds, else this claim's visibility (Q7)."""
        seconds, claim = self._beat(extend), self._own(job)
        if tx is not None:
            renewed = [None] if claim is None else within.within(self, tx, "heartbeat", [claim], seconds)
            if not self._beaten(job, renewed[0]):
                raise lost([job])
            return True
        return claim is not None and self._beaten(job, self._engine.heartbeat([claim], seconds)[0])

    def heartbeat_batch(self, jobs: Iterable[Job], extend: Duration | None = None, *, tx: Tx = None) -> list[Job]:
        """``heartbeat`` for several; returns the jobs whose claim is lost."""
        asked, claims, seconds = self._to_beat(jobs, extend)
        if tx is not None:
            return self._lost(asked, within.within(self, tx, "heartbeat", claims, seconds))
        return self._lost(asked, self._engine.heartbeat(claims, seconds))

    def release(self, job: Job, *, delay: Duration | None = None, tx: Tx = None) -> bool:
        """Give it back unworked, the attempt given back: pending at its old ready time, or now + ``delay`` seconds."""
        pause, claim = self._pause(delay), self._own(job)
        if tx is not None:
            return within.settle(self, tx, job, "release", claim, pause)
        return noted(job, claim is not None and self._woken(self._engine.release(claim, pause)))

    def cancel(self, id: int) -> bool:
        """Delete a pending or processing job, whoever holds it (Q10)."""
        number = given.known(id)
        return number is not None and self._engine.cancel(number)

    def get_job(self, id: int) -> JobRecord | None:
        """The job in whatever state, or ``None`` (Q11)."""
        number = given.known(id)
        row = None if number is None else self._engine.get_job(number)
        return None if row is None else self._record(row)

    def sweep_expired(self) -> int:
        """Bury every expired job of this queue, delete what retention is over for (Q12); how many were buried."""
        return self._engine.sweep_expired()

    def peek(self, n: int | None = 10) -> list[JobRecord]:
        """What ``claim_batch`` would hand out now, in its order, without claiming."""
        return [self._record(row) for row in self._engine.peek(given.shown(n))]

    def jobs(
        self, state: ListedState | None = None, limit: int | None = 100, after: int | None = None
    ) -> list[JobRecord]:
        """Jobs by id, those greater than ``after``; all states, or one of pending, processing, done, dead."""
        return [self._record(row) for row in self._engine.jobs(*job_filter(state, limit, after))]

    def purge(self, state: ListedState) -> int:
        """Delete every job in a state, processing ones too (their holders' operations then return ``False``)."""
        return self._engine.purge(listed_state(state))

    def explain(self, id: int) -> Explanation:
        """Why a job is not claimable now, and since when."""
        return present.explanation(self._engine.explain(given.known_or_none_such(id)))

    def stats(self) -> QueueStats:
        """Counts by state, exact up to 10,000 and marked when capped; oldest ready age; next due time (Q14)."""
        return present.queue_stats(self._engine.stats())

    def suspend(self) -> bool:
        """Hand out nothing until ``resume``, over restarts (Q14). Whether that changed anything."""
        return self._engine.suspend()

    def resume(self) -> bool:
        """Lift the suspension. Whether that changed anything."""
        return self._woken(self._engine.resume())

    def dead_letters(self, limit: int | None = 100, after: int | None = None) -> list[DeadJob]:
        """Dead letters by ``letter_id``, those greater than ``after`` (D2)."""
        rows = self._engine.dead_letters(given.limit(limit), given.after(after))
        return [present.dead_job(row, self.name, self._codec) for row in rows]

    def purge_dead(
        self, ids: Iterable[int | DeadLetter] | Literal["all"] | None = None, *, older_than: Duration | None = None
    ) -> int:
        """Delete dead letters by letter id, all, or those at least ``older_than`` seconds old (D2). How many."""
        return self._engine.purge_dead(*given.purge(ids, older_than))

    def redrive(
        self, ids: Iterable[int | DeadLetter] | Literal["all"], *, position: Position | None = "tail"
    ) -> list[int]:
        """Make dead letters live again under their old ids (D3); ``position`` makes no difference to jobs."""
        redrive_position(position)
        return self._woken(self._engine.redrive(given.letters(ids)))
