"""Inspection and control of queues (Q10-Q12, Q14), and their dead letters (D)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import merge
from typing import Any

from rota import rules
from rota.contract import COUNT_CAP, ListedState
from rota.records import DeadJobRow, ExplanationRow, JobRow, QueueStatsRow
from rota.sql import keys
from rota.sql import queue as hot
from rota.sql.blocks import Blocks
from rota.sql.drive import Op
from rota.sql.rows import dead_job, done_job, live_job

SQL = Blocks("rota.sql", "statements/queue_inspect.sql")


def get_job(now: int, queue: str, job_id: int) -> Op[JobRow | None]:
    """A job in whatever state."""
    where = (job_id, queue)
    for row in (yield SQL.live_job, where):
        return live_job(row)
    for row in (yield SQL.done_job, where):
        return done_job(row)
    for row in (yield SQL.dead_job, where):
        return dead_job(row).job
    return None


def jobs(now: int, queue: str, state: ListedState | None, limit: int, after: int | None) -> Op[list[JobRow]]:
    """Jobs by id; None means every state."""
    start = -1 if after is None else after
    found: list[list[JobRow]] = []
    if state is None:
        found.append([live_job(row) for row in (yield SQL.live_jobs, (start, queue, limit))])
    elif state in ("pending", "processing"):
        number = int(state == "processing")
        found.append([live_job(row) for row in (yield SQL.live_jobs_in_state, (start, queue, number, limit))])
    if state in (None, "done"):
        found.append([done_job(row) for row in (yield SQL.done_jobs, (queue, start, limit))])
    if state in (None, "dead"):
        found.append([dead_job(row).job for row in (yield SQL.dead_jobs, (queue, start, limit))])
    return list(merge(*found, key=lambda job: job.id))[:limit]


def peek(now: int, queue: str, n: int) -> Op[list[JobRow]]:
    """What a claim of n would hand out."""
    values = (now, now, now)
    rows: list[tuple[Any, ...]] = yield SQL.lapsed_and_held, (queue, now, *values, n)
    opened = 0
    priority = yield from hot.next_priority(now, queue, 2**31)
    while priority is not None and opened < n:
        found = yield SQL.open_in_priority, (queue, priority, now, *values, n - opened)
        opened += len(found)
        rows += found
        priority = yield from hot.next_priority(now, queue, priority)
    listed = sorted(map(live_job, rows), key=lambda job: (-job.priority, job.run_at, job.id))
    return listed[:n]


def suspend(now: int, queue: str) -> Op[bool]:
    """Suspend the queue; whether that changed anything."""
    changed: int = yield SQL.suspend, (queue, now)
    return changed > 0


def resume(now: int, queue: str) -> Op[bool]:
    """Resume the queue; whether that changed anything."""
    changed: int = yield SQL.resume, (queue,)
    return changed > 0


def _suspended_at(queue: str) -> Op[int | None]:
    rows = yield SQL.queue_suspended, (queue,)
    at: int | None = rows[0][0] if rows else None
    return at


def explain(now: int, queue: str, job_id: int) -> Op[ExplanationRow]:
    """Why a job is not claimable now."""
    suspended_at = yield from _suspended_at(queue)
    job = yield from get_job(now, queue, job_id)
    return rules.explain_job(now=now, queue_suspended_at=suspended_at, job=job)


def stats(now: int, queue: str) -> Op[QueueStatsRow]:
    """Counts by state, the oldest ready instant, the next due one."""
    suspended_at = yield from _suspended_at(queue)
    (counts,) = yield SQL.count_jobs, (queue, COUNT_CAP + 1)
    (instants,) = yield SQL.ready_instants, (queue, now)
    due = yield from next_due(now, queue)
    named = dict(zip(("pending", "processing", "done", "dead"), counts, strict=True))
    if suspended_at is not None:
        instants = ()
    return QueueStatsRow(
        **{name: min(count, COUNT_CAP) for name, count in named.items()},
        capped=tuple(name for name, count in named.items() if count > COUNT_CAP),
        oldest_ready_at=min((at for at in instants if at is not None), default=None),
        next_due_at=due,
        suspended=suspended_at is not None,
        now=now,
    )


def next_due(now: int, queue: str) -> Op[int | None]:
    """When something may become claimable by time alone."""
    if (yield from _suspended_at(queue)) is not None:
        return None
    ((due,),) = yield SQL.next_due, (queue, now)
    instant: int | None = due
    return instant


def purge(now: int, queue: str, state: ListedState) -> Op[int]:
    """Delete everything in a state."""
    if state == "done":
        count: int = yield SQL.purge_done, (queue,)
    elif state == "dead":
        count = yield SQL.purge_letters, (queue,)
    else:
        count = yield SQL.purge_live, (queue, int(state == "processing"))
    return count


# -- Dead letters (D2, D3) -------------------------------------------------------------------------------------------


def dead_letters(now: int, queue: str, limit: int, after: int | None) -> Op[list[DeadJobRow]]:
    """Letters by letter id."""
    return [dead_job(row) for row in (yield SQL.letters, (queue, -1 if after is None else after, limit))]


def purge_dead(now: int, queue: str, ids: Sequence[int] | None, older_than: int | None) -> Op[int]:
    """Delete letters by id, by age, or all."""
    if older_than is not None:
        count: int = yield SQL.purge_letters_by_age, (queue, now - older_than)
    elif ids is None:
        count = yield SQL.purge_letters, (queue,)
    else:
        count = yield SQL.purge_letters_by_id, [(queue, letter_id) for letter_id in ids]
    return count


def redrive(now: int, queue: str, ids: Sequence[int] | None) -> Op[list[int]]:
    """Make letters live again, in the order of their jobs."""
    if ids is None:
        letters = yield SQL.redrivable, (queue,)
    else:
        letters = yield SQL.redrivable_by_id, (json.dumps(sorted(set(ids))), queue)
    items = [
        keys.Redriven(key, job_id, job_id, enqueued_at + key_ttl) for _, job_id, key, enqueued_at, key_ttl in letters
    ]
    kept = yield from keys.rebind(keys.of_queue(queue), items, now)
    yield SQL.redrive, [(now, key, letter[0]) for key, letter in zip(kept, letters, strict=True)]
    yield SQL.drop_letter, [(letter[0],) for letter in letters]
    return [job_id for _, job_id, _, _, _ in letters]
