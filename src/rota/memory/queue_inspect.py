"""Inspection and control plane of a queue (Q11, Q14). The caller holds the lock.

A page of ``jobs`` looks at every job once; nothing else here walks the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest

from rota import rules
from rota.contract import COUNT_CAP, ListedState
from rota.memory.jobs import Job
from rota.memory.queue_letters import delete_letter
from rota.memory.queue_state import QueueState
from rota.memory.schedule import FREE
from rota.records import ExplanationRow, JobRow, QueueStatsRow


def suspend(state: QueueState) -> bool:
    """No claims from here on."""
    now = state.shared.now()
    changed = state.suspended_at is None
    if changed:
        state.suspended_at = now
    return changed


def resume(state: QueueState) -> bool:
    """Claims again."""
    changed = state.suspended_at is not None
    state.suspended_at = None
    return changed


def get_job(state: QueueState, job_id: int) -> JobRow | None:
    """A job in whatever state."""
    job = state.jobs.get(job_id)
    if job is not None:
        return job.row(job.state)
    if job_id in state.letter_of:
        return state.letters[state.letter_of[job_id]].job
    return state.done.get(job_id)


def jobs(state: QueueState, listed: ListedState | None, limit: int, after: int | None) -> list[JobRow]:
    """A page of jobs by id."""
    matching = (number for number in _ids(state, listed) if after is None or number > after)
    rows = (get_job(state, number) for number in nsmallest(max(limit, 0), matching))
    return [row for row in rows if row is not None]


def _ids(state: QueueState, listed: ListedState | None) -> Iterator[int]:
    if listed is None:
        yield from state.jobs
    elif listed in ("pending", "processing"):
        yield from (number for number, job in state.jobs.items() if job.state == listed)
    if listed in (None, "done"):
        yield from state.done
    if listed in (None, "dead"):
        yield from state.letter_of


def purge(state: QueueState, listed: ListedState) -> int:
    """Delete all jobs in a state; holders of processing ones get False from then on."""
    doomed = list(_ids(state, listed))
    for number in doomed if state.pinned else ():
        state.pinned.check(number)
    if listed == "dead":
        for letter_id in list(state.letters):
            delete_letter(state, letter_id)
    elif listed == "done":
        state.done.clear()
        state.done_by_end.clear()
        state.shared.items -= len(doomed)
    else:
        for number in doomed:
            state.cancel(number)
    return len(doomed)


def peek(state: QueueState, n: int) -> list[JobRow]:
    """What a claim of n would hand out: taken and put back."""
    now = state.shared.now()
    state.advance(now)
    rows: list[JobRow] = []
    for lane in state.lanes.ordered:
        taken: list[Job] = []
        while len(rows) < n and (job := state.next_ready(lane, now)) is not None:
            taken.append(job)
            rows.append(job.row(job.state))
        lane.restore(taken)
        if len(rows) >= n:
            break
    return rows


def explain(state: QueueState, job_id: int) -> ExplanationRow:
    """Why a job is not claimable now, and since when."""
    return rules.explain_job(now=state.shared.now(), queue_suspended_at=state.suspended_at, job=get_job(state, job_id))


def stats(state: QueueState) -> QueueStatsRow:
    """Counts, the oldest instant since which something is ready, the next due time."""
    now = state.shared.now()
    counts = {
        "pending": len(state.jobs) - state.processing,
        "processing": state.processing,
        "done": len(state.done),
        "dead": len(state.letters),
    }
    return QueueStatsRow(
        **{name: min(count, COUNT_CAP) for name, count in counts.items()},
        capped=tuple(name for name, count in counts.items() if count > COUNT_CAP),
        oldest_ready_at=_oldest_ready(state, now),
        next_due_at=_next_due(state, now),
        suspended=state.suspended_at is not None,
        now=now,
    )


def _oldest_ready(state: QueueState, now: int) -> int | None:
    """The smallest ``run_at`` of the first pending job of each lane, and the smallest end of a lapsed claim."""
    if state.suspended_at is not None:
        return None
    state.advance(now)
    ready = [
        job.deadline
        for lapsed in (state.lapsed, state.exhausted)
        for job in lapsed.values()
        if rules.lapsed(job.deadline, now) and not rules.expired(job.expires_at, now)
    ]
    for lane in state.lanes.ordered:
        taken: list[Job] = []
        while (job := state.next_ready(lane, now)) is not None:
            taken.append(job)
            if job.deadline == FREE:
                ready.append(job.run_at)
                break
        lane.restore(taken)
    return min(ready, default=None)


def next_due(state: QueueState) -> int | None:
    """The next instant at which a job is due or a claim lapses: claimable one microsecond later (Q6)."""
    return _next_due(state, state.shared.now())


def _next_due(state: QueueState, now: int) -> int | None:
    if state.suspended_at is not None:
        return None
    if now < state.latest or now <= state.deadlines.latest:
        # The clock has gone back: only a look at all jobs tells what is not due any more.
        return min((due for job in state.jobs.values() if (due := _due(job)) > now), default=None)
    state.advance(now)
    instants: list[int] = []
    first = state.delayed.first()
    if first is not None:
        instants.append(first[0])
    deadline = state.deadlines.next()
    if deadline is not None:
        instants.append(deadline + 1)
    return min(instants, default=None)


def _due(job: Job) -> int:
    return job.run_at if job.deadline == FREE else job.deadline + 1
