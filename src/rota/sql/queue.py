"""The hot verbs of queues (Q). ``now`` is read by the caller once it holds the write lock (C7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from rota import rules
from rota.records import JobClaim, NewJob
from rota.rules import CLEANING_LIMIT
from rota.sql import keys
from rota.sql.blocks import Blocks, repeated
from rota.sql.drive import Op
from rota.sql.keys import STORE
from rota.sql.rows import headers_of, headers_text

SQL = Blocks("rota.sql", "statements/queue.sql")

HELD, OPEN, HIDDEN = 0, 1, 2

# Rows in one INSERT: 1, 5, 20, 50 cost 4.7, 3.0, 2.1, 2.0 µs per row where only the payloads differ.
_ROWS = 20
_INSERT_ALIKE = repeated(SQL.insert_alike, _ROWS)
_INSERT_JOBS = repeated(SQL.insert_job, _ROWS)
# A named tuple's own constructor costs twice as much.
_new_row = tuple.__new__

# -- Enqueue (Q1, Q2, Q15) -------------------------------------------------------------------------------------------


def enqueue(now: int, queue: str, job: NewJob, known: bool) -> Op[int]:
    """Store one job; with a taken key, the id of the job that has it."""
    if job.key is not None:
        return (yield from enqueue_many(now, queue, [job], known))[0]
    if not known:
        yield SQL.note_queue, (queue,)
    ((job_id,),) = yield STORE.advance, (1, "job")
    yield SQL.insert_job, _new_rows(now, queue, job_id, (job,))[0]
    number: int = job_id
    return number


def enqueue_many(now: int, queue: str, jobs: Sequence[NewJob], known: bool) -> Op[list[int]]:
    """Store jobs, all or nothing; where a key is taken, the id of the job that has it."""
    if not jobs:
        return []
    if not known:
        yield SQL.note_queue, (queue,)
    if any(job.key is not None for job in jobs):
        return (yield from _enqueue_keyed(now, queue, jobs))
    last = yield from keys.advance("job", len(jobs))
    first = last - len(jobs) + 1
    yield from _insert(now, queue, first, jobs)
    return list(range(first, last + 1))


def _enqueue_keyed(now: int, queue: str, jobs: Sequence[NewJob]) -> Op[list[int]]:
    space = keys.of_queue(queue)
    holders: dict[str, int | None] = {}
    fresh: list[NewJob] = []
    for job in jobs:
        if job.key is None:
            fresh.append(job)
        elif job.key not in holders:
            holders[job.key] = yield from keys.holder(space, job.key, now)
            if holders[job.key] is None:
                fresh.append(job)
    next_id = (yield from keys.advance("job", len(fresh))) - len(fresh) + 1
    yield from _insert(now, queue, next_id, fresh)
    ids: list[int] = []
    bindings: list[tuple[str, int, int]] = []
    for job in jobs:
        taken = None if job.key is None else holders[job.key]
        if taken is None:
            taken = next_id
            next_id += 1
            if job.key is not None:
                # A second item with this key gets the first one's id.
                holders[job.key] = taken
                bindings.append((job.key, taken, now + job.stamp.key_ttl))
        ids.append(taken)
    yield from keys.bind(space, bindings)
    return ids


def _insert(now: int, queue: str, first: int, jobs: Sequence[NewJob]) -> Op[None]:
    """Store jobs under ids from ``first``, many in one statement."""
    if len(jobs) < _ROWS:
        yield SQL.insert_job, _new_rows(now, queue, first, jobs)
        return
    whole = len(jobs) - len(jobs) % _ROWS
    payloads, stamps, names, delays, instants, priorities, expiries, keys_, headers = zip(*jobs[:whole], strict=True)
    alike = all(map(_same, (stamps, names, delays, instants, priorities, expiries, keys_, headers)))
    if alike and keys_[0] is None is headers[0]:
        run_at = rules.ready_time(now, delays[0], instants[0])
        shared = (queue, now, *stamps[0], priorities[0], run_at, rules.expiry_time(now, expiries[0]), names[0])
        batches = [(first + at, *shared, *payloads[at : at + _ROWS]) for at in range(0, whole, _ROWS)]
        yield _INSERT_ALIKE, batches
    else:
        rows = _new_rows(now, queue, first, jobs[:whole])
        batches = [tuple(chain.from_iterable(rows[at : at + _ROWS])) for at in range(0, whole, _ROWS)]
        yield _INSERT_JOBS, batches
    yield SQL.insert_job, _new_rows(now, queue, first + whole, jobs[whole:])


def _same(values: tuple[Any, ...]) -> bool:
    return values.count(values[0]) == len(values)


def _new_rows(now: int, queue: str, first: int, jobs: Iterable[NewJob]) -> list[tuple[Any, ...]]:
    # fmt: off
    return [
        (job_id, queue, priority, now if delay is None is run_at else rules.ready_time(now, delay, run_at),
         None if expires is None else rules.expiry_time(now, expires), now, name, key,
         None if headers is None else headers_text(headers), payload, *stamp)
        for job_id, (payload, stamp, name, delay, run_at, priority, expires, key, headers) in enumerate(jobs, first)
    ]
    # fmt: on


# -- Claim (Q4, Q5) --------------------------------------------------------------------------------------------------


def claim(now: int, queue: str, worker_id: str, n: int, visibility: int | None) -> Op[list[JobClaim] | None]:
    """Hand out up to n claimable jobs. None: a full round was cleaned away (C8); commit it and claim again."""
    ((suspended_at, lapsed, expired, priority),) = yield SQL.look, (queue, queue, now, queue, now, queue)
    if suspended_at is not None:
        return []
    unfinished = False
    if lapsed or expired:
        unfinished = yield from _clean(now, queue)
        priority = yield from next_priority(now, queue, 2**31)
    found: list[tuple[Any, ...]] = []
    while priority is not None:
        rows = yield SQL.candidates, (queue, priority, now, n - len(found))
        if not all(_is_claimable(now, row) for row in rows):
            yield SQL.hold_again, (queue, now, CLEANING_LIMIT)
            return None
        found += rows
        if len(found) == n:
            break
        priority = yield from next_priority(now, queue, priority)
    if unfinished and len(found) < n:
        return None
    if not found:
        return []
    token = (yield from keys.advance("token", len(found))) - len(found)
    claims: list[JobClaim] = []
    tokens: list[tuple[int, int]] = []
    # fmt: off
    for (job_id, name, payload, headers, priority, attempts, max_attempts, run_at, enqueued_at, expires_at, releases,
         last_error, stamped, backoff_base, _, _) in found:
        token += 1
        lasting = visibility or stamped
        deadline = now + lasting
        tokens.append((job_id, token))
        claims.append(_new_row(JobClaim, (
            job_id, name, payload, None if headers is None else headers_of(headers), priority, attempts + 1,
            max_attempts, run_at, enqueued_at, expires_at, worker_id, token, now, deadline, releases, last_error,
            lasting, backoff_base,
        )))
    # fmt: on
    yield SQL.claim, [(offset, worker_id, now, now, visibility, *ids) for offset, ids in _runs(tokens)]
    return claims


def _runs(tokens: Iterable[tuple[int, int]]) -> list[tuple[int, tuple[int, int]]]:
    """Pairs of id and token in runs of consecutive ids with consecutive tokens: (token - id, (first id, last id)).

    A batch taken from the front of a queue is one run and costs one statement instead of one for each job.
    """
    runs: list[tuple[int, tuple[int, int]]] = []
    first = last = offset = -1
    for job_id, token in tokens:
        if job_id == last + 1 and token - job_id == offset:
            last = job_id
            continue
        if last >= 0:
            runs.append((offset, (first, last)))
        first = last = job_id
        offset = token - job_id
    if last >= 0:
        runs.append((offset, (first, last)))
    return runs


def next_priority(now: int, queue: str, below: int) -> Op[int | None]:
    """The next lower priority that has a job due; delayed jobs in front are not walked."""
    while True:
        rows = yield SQL.next_priority, (queue, below)
        if not rows:
            return None
        ((below, run_at),) = rows
        if run_at <= now:
            return below


def _clean(now: int, queue: str) -> Op[bool]:
    """One round: lapsed claims into the claim lane (exhausted ones to the dead), expired jobs out of it. More left?"""
    rows = yield SQL.lapsed, (queue, now, CLEANING_LIMIT)
    lanes: list[tuple[int, int]] = []
    dead: list[int] = []
    for job_id, attempts, max_attempts, expires_at in rows:
        if rules.expired(expires_at, now):
            lanes.append((HIDDEN, job_id))
        elif rules.exhausted(attempts, max_attempts):
            dead.append(job_id)
        else:
            lanes.append((OPEN, job_id))
    more = len(rows) == CLEANING_LIMIT
    rows = yield SQL.expired_in_lane, (queue, OPEN, now, CLEANING_LIMIT)
    lanes += [(HIDDEN, job_id) for (job_id,) in rows]
    yield SQL.set_lane, lanes
    yield from bury(now, dead, rules.MAX_ATTEMPTS, None)
    return more or len(rows) == CLEANING_LIMIT


def _is_claimable(now: int, row: tuple[Any, ...]) -> bool:
    """Whether a row of the claim lane is: not if it expired and was not cleaned yet, or if the clock has gone back."""
    run_at, expires_at, state, claim_expires_at = row[7], row[9], row[14], row[15]
    if not state and expires_at is None:
        return True
    return rules.claimable("processing" if state else "pending", run_at, claim_expires_at, expires_at, now)


# -- Settling (Q6, Q7, Q9) -------------------------------------------------------------------------------------------


def ack(now: int, queue: str, claim: JobClaim, result: str | None) -> Op[bool]:
    """Done: the job is gone, or kept as done with its result."""
    fence = _fence(now, queue, claim)
    if (yield SQL.ack, fence):
        return True
    if not (yield SQL.valid, fence):
        return False
    yield from _keep(now, [claim.id], result)
    return True


def ack_batch(now: int, queue: str, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> Op[int]:
    """Ack what is valid, each once."""
    pairs = sorted({(claim.id, claim.token) for claim in claims})
    count: int = yield SQL.ack_run, [(*ids, queue, offset, worker_id, now) for offset, ids in _runs(pairs)]
    if count < len(pairs):
        fences = [(job_id, queue, token, worker_id, now) for job_id, token in pairs]
        count += yield from _keep_valid(now, SQL.valid, fences)
    if ids:
        bare = [(job_id, queue, worker_id, now) for job_id in dict.fromkeys(ids)]
        acked: int = yield SQL.ack_bare, bare
        if acked < len(bare):
            acked += yield from _keep_valid(now, SQL.valid_bare, bare)
        count += acked
    return count


def _keep_valid(now: int, valid: Any, fences: list[tuple[Any, ...]]) -> Op[int]:
    kept: list[int] = []
    for fence in fences:
        if (yield valid, fence):
            kept.append(fence[0])
    yield from _keep(now, kept, None)
    return len(kept)


def _keep(now: int, ids: list[int], result: str | None) -> Op[None]:
    yield SQL.keep, [(now, now, result, job_id) for job_id in ids]
    yield SQL.drop_job, [(job_id,) for job_id in ids]


def retry(now: int, queue: str, claim: JobClaim, error: str | None, delay: int) -> Op[bool]:
    """Pending again after the delay, or dead when no attempt is left."""
    rows = yield SQL.valid, _fence(now, queue, claim)
    if not rows:
        return False
    ((attempts, max_attempts, _),) = rows
    if rules.exhausted(attempts, max_attempts):
        yield from bury(now, [claim.id], rules.MAX_ATTEMPTS, error)
    else:
        yield SQL.retry, (rules.ready_time(now, delay, None), error, error, claim.id)
    return True


def fail(now: int, queue: str, claim: JobClaim, error: str | None) -> Op[bool]:
    """Dead now."""
    if not (yield SQL.valid, _fence(now, queue, claim)):
        return False
    yield from bury(now, [claim.id], rules.FAILED, error)
    return True


def heartbeat(now: int, queue: str, claims: Sequence[JobClaim], extend: int | None) -> Op[list[int | None]]:
    """New deadlines; None for a claim that is lost."""
    deadlines: list[int | None] = []
    for claim in claims:
        deadline = now + (claim.visibility if extend is None else extend)
        renewed = yield SQL.heartbeat, (deadline, *_fence(now, queue, claim))
        deadlines.append(deadline if renewed else None)
    return deadlines


def release(now: int, queue: str, claim: JobClaim, delay: int | None) -> Op[bool]:
    """Pending again, the attempt given back."""
    run_at = None if delay is None else now + delay
    released: int = yield SQL.release, (run_at, *_fence(now, queue, claim))
    return released > 0


def release_batch(now: int, queue: str, claims: Sequence[JobClaim]) -> Op[int]:
    """Release each at once; how many were valid."""
    count = 0
    for claim in claims:
        count += yield from release(now, queue, claim, None)
    return count


def cancel(now: int, queue: str, job_id: int) -> Op[bool]:
    """Delete a live job, whoever holds it."""
    gone: int = yield SQL.cancel, (job_id, queue)
    return gone > 0


def _fence(now: int, queue: str, claim: JobClaim) -> tuple[Any, ...]:
    """The values of a valid claim (Q6), under its token."""
    return (claim.id, queue, claim.token, claim.worker_id, now)


# -- Dead letters (D1, Q12) ------------------------------------------------------------------------------------------


def bury(now: int, ids: Sequence[int], reason: str, error: str | None) -> Op[None]:
    """Move live jobs to the dead, in this order."""
    if not ids:
        return
    letter = (yield from keys.advance("letter", len(ids))) - len(ids) + 1
    text = error or reason
    yield SQL.bury, [(at, reason, now, now, text, job_id) for at, job_id in enumerate(ids, letter)]
    yield SQL.drop_job, [(job_id,) for job_id in ids]


def sweep_expired(now: int, queue: str, limit: int) -> Op[int]:
    """One round of the sweep: the jobs that expired first, at most ``limit``."""
    rows: list[tuple[int, int]] = []
    for lane in (HELD, OPEN, HIDDEN):
        rows += yield SQL.expired, (queue, lane, now, limit)
    rows.sort()
    ids = [job_id for _, job_id in rows[:limit]]
    yield from bury(now, ids, rules.EXPIRED, None)
    return len(ids)


def forget(now: int, queue: str, limit: int) -> Op[int]:
    """One round of forgetting letters and done records whose time is over; the larger of both counts."""
    letters: int = yield SQL.forget_letters, (queue, now, limit)
    done: int = yield SQL.forget_done, (queue, now, limit)
    return max(letters, done)
