"""``rota.contract.QueueEngine`` on PostgreSQL: each hot verb is one call of a function, one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rota.contract import ListedState
from rota.engines.postgres.arrays import numbers, texts
from rota.engines.postgres.dialect import spoken
from rota.engines.postgres.frontier import JobFrontier
from rota.engines.postgres.verbs import BoundVerb, Runs, reading_verb, verb
from rota.records import DeadJobRow, ExplanationRow, JobClaim, JobRow, NewJob, QueueStatsRow
from rota.rules import CLEANING_LIMIT
from rota.sql import queue_inspect as looking
from rota.sql.blocks import Blocks
from rota.sql.drive import Op
from rota.sql.keys import SWEPT_AT_ONCE
from rota.sql.rows import headers_of, headers_text

if TYPE_CHECKING:
    from rota.engines.postgres.engine import PostgresEngine

SQL = Blocks("rota.engines.postgres", "statements/queue.sql")

# How many letters or done records one round of a sweep deletes.
FORGOTTEN_AT_ONCE = 10_000
# How often a claim looks again when others are just freeing what it found lapsed.
OUTRUN = 3
_ID, _CLEANED, _MORE = 0, 10, 17
_KEYS_START = (-(2**63), "")


class PostgresQueue:
    """One queue of one schema."""

    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.name = name
        self.place = engine.place_of("queue", name)
        self._engine = engine
        self._now = engine.injected_now
        # Shared by the handles of one queue: what one of them puts behind the frontier another one may look for.
        self._frontier = engine.frontiers.setdefault(("queue", name), JobFrontier())
        self._swept_keys = _KEYS_START

    @property
    def runner(self) -> Runs:
        return self._engine.runner

    def before(self) -> BoundVerb[[], None] | None:
        """What is done outside of a transaction before its first verb: others must not have to wait for its end."""
        return None if self.name in self._engine.known_queues else self.note

    @verb
    def note(self) -> Op[None]:
        """The queue is there."""
        yield SQL.note, (self.name,)
        self._engine.known_queues.add(self.name)

    def _bounded(self) -> bool:
        """Whether claims carry a frontier. Where the engine commits after a verb, places would be noted too early."""
        return self._engine.bounded and not self._engine.runner.explicit

    # -- Enqueue (Q1, Q2, Q15) ---------------------------------------------------------------------------------------

    @verb
    def enqueue(self, job: NewJob) -> Op[int]:
        payload, stamp, name, delay, run_at, priority, expires, key, headers = job
        unknown = self.name not in self._engine.known_queues
        # fmt: off
        ((job_id,),) = yield SQL.enqueue, (
            self._now(), self.name, unknown, payload, priority, delay, run_at, expires, name, key,
            headers_text(headers), *stamp,
        )
        # fmt: on
        self._known(delay is not None or run_at is not None)
        number: int = job_id
        return number

    @verb
    def enqueue_many(self, jobs: Sequence[NewJob]) -> Op[list[int]]:
        if not jobs:
            return []
        payloads, stamps, names, delays, run_ats, priorities, expiries, keys, headers = map(
            list, zip(*jobs, strict=True)
        )
        distinct = list(dict.fromkeys(stamps))
        place = {stamp: number for number, stamp in enumerate(distinct)}
        unknown = self.name not in self._engine.known_queues
        # fmt: off
        ((ids,),) = yield SQL.enqueue_many, (
            self._now(), self.name, unknown, numbers([number for stamp in distinct for number in stamp]),
            texts(payloads), _some(numbers, priorities, 0), _some(numbers, delays), _some(numbers, run_ats),
            _some(numbers, expiries), _some(texts, names), _some(texts, keys),
            _some(texts, [headers_text(each) for each in headers]),
            None if len(distinct) == 1 else numbers([place[stamp] for stamp in stamps]),
        )
        # fmt: on
        self._known(any(delay is not None for delay in delays) or any(run_at is not None for run_at in run_ats))
        new: list[int] = ids
        return new

    def _known(self, moved: bool) -> None:
        """The queue is there now. A job with a ready time of its own may stand behind the frontier."""
        self._engine.known_queues.add(self.name)
        if moved:
            self._frontier.reset()
        else:
            self._frontier.stored()

    # -- Claim (Q3-Q5) -----------------------------------------------------------------------------------------------

    @verb
    def claim(self, worker_id: str, n: int, visibility: int | None) -> Op[list[JobClaim]]:
        if n <= 0:
            return []
        outrun = 0
        while True:
            frontier = self._frontier
            epoch = frontier.epoch
            places = frontier.places() if self._bounded() else frontier.EVERYTHING
            rows = yield SQL.claim, (self._now(), self.name, worker_id, min(n, 2**31), visibility, *places)
            if not rows:
                if frontier.came_back_empty(places):
                    continue
                return []
            if rows[0][_ID] is not None:
                break
            # What was cleaned is committed now; look again.
            if rows[0][_MORE] is None:
                outrun += 1
                if outrun > OUTRUN:
                    return []
        if len(rows) > 1:
            rows.sort(key=_token)
        claims = [_claim(row, worker_id) for row in rows]
        if rows[0][_CLEANED]:
            frontier.reset()
        elif self._bounded():
            frontier.claimed(epoch, claims)
        return claims

    # -- Settling (Q6, Q7, Q9) ---------------------------------------------------------------------------------------

    @verb
    def ack(self, claim: JobClaim, result: str | None) -> Op[bool]:
        return _told((yield SQL.ack, (self._now(), self.name, claim.id, claim.token, claim.worker_id, result)))

    @verb
    def ack_batch(self, claims: Sequence[JobClaim], ids: Sequence[int], worker_id: str) -> Op[int]:
        """Claims before bare ids, each once."""
        fenced = list(dict.fromkeys((claim.id, claim.token) for claim in claims))
        if not fenced and not ids:
            return 0
        bare = list(dict.fromkeys(ids))
        asked = [job_id for job_id, _ in fenced] + bare
        tokens = [token for _, token in fenced] + [None] * len(bare)
        ((count,),) = yield SQL.ack_batch, (self._now(), self.name, worker_id, numbers(asked), numbers(tokens))
        number: int = count
        return number

    @verb
    def retry(self, claim: JobClaim, error: str | None, delay: int) -> Op[bool]:
        fence = (claim.id, claim.token, claim.worker_id)
        retried = _told((yield SQL.retry, (self._now(), self.name, *fence, error, delay)))
        if delay < 0:
            self._frontier.reset()
        else:
            self._frontier.stored()
        return retried

    @verb
    def fail(self, claim: JobClaim, error: str | None) -> Op[bool]:
        return _told((yield SQL.fail, (self._now(), self.name, claim.id, claim.token, claim.worker_id, error)))

    @verb
    def heartbeat(self, claims: Sequence[JobClaim], extend: int | None) -> Op[list[int | None]]:
        if not claims:
            return []
        # fmt: off
        ((deadlines,),) = yield SQL.heartbeat, (
            self._now(), self.name, numbers([claim.id for claim in claims]), numbers([claim.token for claim in claims]),
            texts([claim.worker_id for claim in claims]),
            numbers([claim.visibility if extend is None else extend for claim in claims]),
        )
        # fmt: on
        renewed: list[int | None] = deadlines
        return renewed

    @verb
    def release(self, claim: JobClaim, delay: int | None) -> Op[bool]:
        fence = (claim.id, claim.token, claim.worker_id)
        released = _told((yield SQL.release, (self._now(), self.name, *fence, delay)))
        self._frontier.reset()
        return released

    @verb
    def release_batch(self, claims: Sequence[JobClaim]) -> Op[int]:
        if not claims:
            return 0
        # By id, as everybody locks them.
        ordered = sorted(claims, key=lambda claim: claim.id)
        ids, tokens = [claim.id for claim in ordered], [claim.token for claim in ordered]
        workers = texts([claim.worker_id for claim in ordered])
        ((count,),) = yield SQL.release_batch, (self._now(), self.name, numbers(ids), numbers(tokens), workers)
        self._frontier.reset()
        number: int = count
        return number

    @verb
    def cancel(self, job_id: int) -> Op[bool]:
        return _told((yield SQL.cancel, (self.name, job_id)))

    # -- Sweep (Q12) -------------------------------------------------------------------------------------------------

    @verb
    def sweep_expired(self) -> Op[int]:
        """In rounds, each a transaction of its own: D1 holds for each job, and nobody waits long for the locks."""
        total, seen = 0, CLEANING_LIMIT
        while seen == CLEANING_LIMIT:
            ((seen, moved),) = yield SQL.sweep, (self._now(), self.name, CLEANING_LIMIT)
            total += moved
        count = FORGOTTEN_AT_ONCE
        while count == FORGOTTEN_AT_ONCE:
            ((count,),) = yield SQL.forget, (self._now(), self.name, FORGOTTEN_AT_ONCE)
        where = (self._now(), "queue", self.name, *self._swept_keys, SWEPT_AT_ONCE)
        ((until, key),) = yield SQL.sweep_keys, where
        self._swept_keys = _KEYS_START if until is None else (until, key)
        return total

    # -- Looking (Q11, Q14): on one snapshot each --------------------------------------------------------------------

    def _moment(self) -> Op[int]:
        ((now,),) = yield SQL.now, (self._now(),)
        instant: int = now
        return instant

    @reading_verb(transaction=True)
    def get_job(self, job_id: int) -> Op[JobRow | None]:
        return (yield from spoken(looking.get_job(0, self.name, job_id)))

    @reading_verb(transaction=True)
    def peek(self, n: int) -> Op[list[JobRow]]:
        now = yield from self._moment()
        return (yield from spoken(looking.peek(now, self.name, n)))

    @reading_verb(transaction=True)
    def jobs(self, state: ListedState | None, limit: int, after: int | None) -> Op[list[JobRow]]:
        return (yield from spoken(looking.jobs(0, self.name, state, limit, after)))

    @reading_verb(transaction=True)
    def explain(self, job_id: int) -> Op[ExplanationRow]:
        now = yield from self._moment()
        return (yield from spoken(looking.explain(now, self.name, job_id)))

    @reading_verb(transaction=True)
    def stats(self) -> Op[QueueStatsRow]:
        now = yield from self._moment()
        return (yield from spoken(looking.stats(now, self.name)))

    @reading_verb
    def next_due(self) -> Op[int | None]:
        ((due,),) = yield SQL.next_due, (self._now(), self.name)
        instant: int | None = due
        return instant

    # -- Control (Q10, Q14) ------------------------------------------------------------------------------------------

    @verb
    def purge(self, state: ListedState) -> Op[int]:
        if state in ("pending", "processing"):
            count: int = yield SQL.purge_live, (self.name, int(state == "processing"))
            return count
        return (yield from spoken(looking.purge(0, self.name, state)))

    @verb
    def suspend(self) -> Op[bool]:
        changed: int = yield SQL.suspend, (self.name, self._now())
        return changed > 0

    @verb
    def resume(self) -> Op[bool]:
        changed: int = yield SQL.resume, (self.name,)
        return changed > 0

    # -- Dead letters (D2, D3) ---------------------------------------------------------------------------------------

    @reading_verb
    def dead_letters(self, limit: int, after: int | None) -> Op[list[DeadJobRow]]:
        return (yield from spoken(looking.dead_letters(0, self.name, limit, after)))

    @verb
    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> Op[int]:
        if older_than is not None:
            count: int = yield SQL.purge_letters_by_age, (self.name, self._now(), older_than)
        elif ids is None:
            count = yield from spoken(looking.purge_dead(0, self.name, None, None))
        else:
            count = yield SQL.purge_letters_by_id, (self.name, list(ids))
        return count

    @verb
    def redrive(self, ids: Sequence[int] | None) -> Op[list[int]]:
        ((live,),) = yield SQL.redrive, (self._now(), self.name, None if ids is None else list(ids))
        self._frontier.reset()
        jobs: list[int] = live
        return jobs


def _some(array: Callable[[list[Any]], str], values: list[Any], default: Any = None) -> str | None:
    """An array of the values, None where all of them are the default."""
    return None if values.count(default) == len(values) else array(values)


def _told(rows: Any) -> bool:
    ((told,),) = rows
    return bool(told)


def _token(row: tuple[Any, ...]) -> int:
    token: int = row[11]
    return token


def _claim(row: tuple[Any, ...], worker_id: str) -> JobClaim:
    headers = None if row[3] is None else headers_of(row[3])
    return JobClaim._make((*row[:3], headers, *row[4:_CLEANED], worker_id, *row[_CLEANED + 1 :]))
