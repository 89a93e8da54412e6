"""What an engine's queue does: the clauses Q."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from rota.records import (
    DeadJobRow,
    ExplanationRow,
    JobClaim,
    JobRow,
    NewJob,
    QueueStatsRow,
)

ListedState = Literal["pending", "processing", "done", "dead"]


class QueueEngine(Protocol):
    r"""One queue of one engine (Q, D). Making it does no I/O.

    ## Q. Queue

    A queue is a priority queue of **jobs** with attempts, retries and dead letters. Job ids increase and are unique in
    the store.

    - **Q1 stamping.** The handle's options, overridden by the call's, are stamped on the job when it is enqueued and
      rule that job's life, whichever handle claims it. Without options the stamp is 300 s visibility, 3 attempts, 5 s
      backoff base, dead letters kept for ever.
    - **Q2 ready time.** `delay` given: now + delay (it wins over `run_at`); else `run_at`: that instant, literally;
      else now. A negative delay or a past `run_at` is legal: ready at once, ordered by that earlier instant. `expires`
      is relative to now; zero or less is legal: born expired.
    - **Q3 claimable:** not expired (`expires_at` none or `> now`) and (pending with `run_at <= now`, or processing with
      `claim_expires_at < now`).
    - **Q4 claim.** `claim_batch` and `claim_one` first dead-letter the claimable jobs of the queue whose attempts are
      used up (`max attempts exceeded`), then hand out up to n claimable jobs, each to exactly one caller, ordered
      **priority descending, ready time ascending, id ascending** (the returned list too). Each becomes `processing`:
      `attempts += 1`, `worker_id`, `claimed_at = now`, `claim_expires_at = now + (visibility or the stamped one)`.
      Exhausted jobs in front never make a batch come back short. An explicit empty `worker_id` is a `ValueError` before
      any effect.
    - **Q5 reclaim.** Claiming a lapsed job is a claim like any other: it consumes an attempt. `max_attempts=m` means
      exactly m deliveries, whether they end by retry, by crash or by a mix.
    - **Q6 valid claim:** the job is processing, by this `worker_id`, *under this claim's token* (it grows with every
      claim and is never reused, not even after a release), and `claim_expires_at >= now`. One predicate for every
      handle operation. At `claim_expires_at == now` the holder is valid and nobody can reclaim; one microsecond later
      it is the other way round. Not valid: the operation changes nothing and returns `False`; it does not raise (but
      X3).
    - **Q7 handle operations** (on the `Job`, also as `queue.ack(job)` …). `ack(result=None)`: gone, or kept as `done`
      with the result for `keep_done` seconds. `retry(error=None, delay=None)`: attempts left: pending,
      `run_at = now + delay`, `last_error` set (an omitted error keeps the old one); none left: dead with `error` or
      `max attempts exceeded`; `True` in both cases. `fail(error=None)`: dead now, `error` or `failed`.
      `heartbeat(extend=None)`: `claim_expires_at = now + (extend, else this claim's visibility)`, an absolute reset,
      repeatable, may shorten; `claimed_at` and `attempts` are untouched; `heartbeat_batch(jobs)` says which are lost.
      `release(*, delay=None)`: pending with its old `run_at` (or now + delay), the attempt given back,
      `releases += 1`. After a terminal operation the handle is spent. `error` is `str | BaseException`.
    - **Q8 backoff** (equal jitter): `full = min(backoff_base * 2**(attempts - 1), 3600)`, the delay uniform in
      `[full/2, full]`; total for any attempts (no overflow) and any base of 0 or more. Base 2: attempts 1, 2, 3 wait
      [1,2], [2,4], [4,8]. A given delay is taken verbatim; 0 is ready now, negative is ready by that earlier instant.
      The random source is the store's (`rng=`), so it can be seeded.
    - **Q9 batch ack.** `ack_batch(jobs_or_ids, worker_id) -> int` acks each that is valid (bare ids: without the
      token), counts them once each, and silently passes over the rest, jobs of other workers included.
    - **Q10 cancel.** `cancel(id) -> bool` deletes a pending or processing job, whoever holds it; dead, done or unknown:
      `False`. It interrupts no running handler; the holder's next operation returns `False`.
    - **Q11 look-up.** `get_job(id) -> JobRecord | None`: pending, processing, dead or done, all values resolved; dead
      ones with `last_error` and `died_at`.
    - **Q12 sweep.** `sweep_expired() -> int` moves **every** job of this queue with `expires_at <= now`, in whatever
      live state (a validly held one too: its holder's ack then returns `False`), to dead (`expired`); then deletes dead
      letters of this queue whose retention is over (`died_at + retention <= now`), and done records and keys whose time
      is over. Returns how many it moved to dead. Other queues are untouched. An expired job is never handed out, swept
      or not: claims skip it, only the sweep buries it.
    - **Q13 exactly-once hand-out.** However many threads or processes race, a claimable job goes to one of them. Honest
      dual execution: a worker past its deadline may finish its work, but its ack does not land. The order of Q4 is
      exact for claims that overlap no other transaction; overlapping ones may pass over locked jobs or come back empty
      (`wait=` looks again), and a job that appears behind the frontier may be passed over for up to a second.
    - **Q14 looking.** `peek(n)`, `jobs(state, limit, after)`, `purge(state)`, `explain(id)`, `stats()` (counts by
      state, exact up to 10,000 and marked when capped; oldest ready age; next due time). `suspend()` and `resume()` the
      whole queue, over restarts.
    - **Q15 keys** (also on `publish`). A key is taken while its job is pending or processing, and while
      `now < enqueued_at + key_ttl`. Enqueueing with a taken key stores nothing and returns the existing id. Keys are
      unique per queue or transport by constraint, inside transactions too, so a call that ended in `OutcomeUnknown`
      can be repeated with its key.
    """

    name: str
    place: str

    def enqueue(self, job: NewJob) -> int: ...

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]: ...

    def claim(self, worker_id: str, n: int, visibility: int | None) -> list[JobClaim]: ...

    def ack(self, claim: JobClaim, result: str | None) -> bool: ...

    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> int:
        """Q9: claims are fenced by token and worker, bare ids by worker and deadline only."""

    def retry(self, claim: JobClaim, error: str | None, delay: int) -> bool: ...

    def fail(self, claim: JobClaim, error: str | None) -> bool: ...

    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> list[int | None]:
        """Reset each claim's deadline to now + (extend, else that claim's visibility); None where it is lost."""

    def release(self, claim: JobClaim, delay: int | None) -> bool: ...

    def release_batch(self, claims: Sequence[JobClaim]) -> int:
        """``release`` without a delay for each, in one transaction; how many were valid."""

    def cancel(self, job_id: int) -> bool: ...

    def get_job(self, job_id: int) -> JobRow | None: ...

    def sweep_expired(self) -> int: ...

    def peek(self, n: int) -> list[JobRow]:
        """What a claim of n would hand out now, in its order, without claiming. A suspended queue still shows it."""

    def jobs(self, state: ListedState | None, limit: int, after: int | None) -> list[JobRow]:
        """Jobs by ascending id, those greater than ``after``; None means every state."""

    def purge(self, state: ListedState) -> int: ...

    def explain(self, job_id: int) -> ExplanationRow: ...

    def stats(self) -> QueueStatsRow: ...

    def suspend(self) -> bool: ...

    def resume(self) -> bool: ...

    def dead_letters(self, limit: int, after: int | None) -> list[DeadJobRow]: ...

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int: ...

    def redrive(self, ids: Sequence[int] | None) -> list[int]: ...

    def next_due(self) -> int | None: ...
