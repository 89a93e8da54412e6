"""Queues without I/O: what both facades check on the way in and make on the way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota import names, rules, units
from rota.codecs import Codec, JsonCodec, decoded, to_text
from rota.errors import PayloadError
from rota.facade import ids
from rota.facade.core import Core
from rota.facade.on_demand import OnDemand
from rota.records import JobClaim, JobRow, NewJob, Stamp
from rota.units import Duration, Instant, optional_seconds, seconds
from rota.wakeups import queue_address

if TYPE_CHECKING:
    from rota.contract import EngineTransaction, ListedState, QueueEngine
    from rota.facade import present
    from rota.public import Item, JobRecord
else:
    present = OnDemand("rota.facade.present")

_JSON = JsonCodec()


def stamp(
    visibility: Duration | None,
    max_attempts: int | None,
    backoff_base: Duration | None,
    dead_letter_retention: Duration | None,
    keep_done: Duration | None,
    key_ttl: Duration | None,
) -> Stamp:
    """Q1: what a handle stamps on its jobs; None means the default."""
    plain = rules.DEFAULT_STAMP
    return Stamp(
        visibility=plain.visibility if visibility is None else units.positive(visibility, "visibility"),
        max_attempts=plain.max_attempts if max_attempts is None else attempts(max_attempts),
        backoff_base=plain.backoff_base if backoff_base is None else units.not_negative(backoff_base, "backoff_base"),
        dead_letter_retention=None
        if dead_letter_retention is None
        else units.not_negative(dead_letter_retention, "dead_letter_retention"),
        keep_done=plain.keep_done if keep_done is None else units.not_negative(keep_done, "keep_done"),
        key_ttl=plain.key_ttl if key_ttl is None else units.not_negative(key_ttl, "key_ttl"),
    )


def attempts(value: int) -> int:
    """The argument ``max_attempts``: 1 or more."""
    return units.integer(value, "max_attempts", 1, 2**31 - 1)


class JobData:
    """A claimed job (Q). Its verbs are in ``rota.Job`` and ``rota.AsyncJob``."""

    # ``_lost`` stays unset until somebody asks for it.
    __slots__ = ("_claim", "_expires", "_lost", "_queue", "payload")
    # True for a worker's, see ``rota.facade.settled``.
    remembers = False

    def __init__(self, claim: JobClaim, payload: Any, queue: Any) -> None:
        self._claim = claim
        self._expires = claim.claim_expires_at
        self._queue = queue
        self.payload = payload

    @property
    def id(self) -> int:
        """The job's id, unique in the store."""
        return self._claim.id

    @property
    def queue(self) -> str:
        """The name of its queue."""
        name: str = self._queue.name
        return name

    @property
    def name(self) -> str | None:
        """Tells handlers of one queue apart."""
        return self._claim.name

    @property
    def headers(self) -> dict[str, str]:
        """The job's headers: a copy."""
        return dict(self._claim.headers or {})

    @property
    def priority(self) -> int:
        """Higher goes first (Q4)."""
        return self._claim.priority

    @property
    def attempts(self) -> int:
        """How many times the job was claimed, this time included, released ones not (Q5)."""
        return self._claim.attempts

    @property
    def max_attempts(self) -> int:
        """How many deliveries the job gets at most."""
        return self._claim.max_attempts

    @property
    def run_at(self) -> float:
        """Its ready time in POSIX seconds (Q2)."""
        return seconds(self._claim.run_at)

    @property
    def enqueued_at(self) -> float:
        """POSIX seconds."""
        return seconds(self._claim.enqueued_at)

    @property
    def expires_at(self) -> float | None:
        """POSIX seconds, None for never (Q2)."""
        return optional_seconds(self._claim.expires_at)

    @property
    def worker_id(self) -> str:
        """Who claimed."""
        return self._claim.worker_id

    @property
    def token(self) -> int:
        """This claim's fence (Q6): grows with every claim, never reused."""
        return self._claim.token

    @property
    def claimed_at(self) -> float:
        """POSIX seconds."""
        return seconds(self._claim.claimed_at)

    @property
    def claim_expires_at(self) -> float:
        """POSIX seconds, as last set by this handle's heartbeat; this very instant still belongs to the holder."""
        return seconds(self._expires)

    @property
    def releases(self) -> int:
        """How often the job was given back unworked."""
        return self._claim.releases

    @property
    def last_error(self) -> str | None:
        """The error of the last retry."""
        return self._claim.last_error

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} id={self.id} queue={self.queue!r} attempts={self.attempts}/{self.max_attempts} "
            f"token={self.token} worker_id={self.worker_id!r}>"
        )


J = TypeVar("J", bound=JobData)
R = TypeVar("R", bool, int, list[int])


class QueueBase(Generic[J]):
    """A handle on a queue: making it does no I/O."""

    _job_type: type[J]
    # Verbs after which something may be claimable.
    _waking = frozenset({"enqueue", "enqueue_many", "retry", "release"})

    def __init__(self, core: Core, name: str, codec: Codec | None, stamped: Stamp) -> None:
        self.name = names.name(name, "queue name")
        self._core = core
        self._codec: Codec = codec or core.codec or _JSON
        # A codec for payloads of one type says how results, which need not be of it, are carried.
        self._results: Codec = getattr(self._codec, "for_results", self._codec)
        self._stamp = stamped
        self._engine: QueueEngine = core.queue(self.name)
        self._place = self._engine.place
        self._address = queue_address(self.name)
        self._wakeups = core.wakeups
        self._call = core.engine.acall
        # The last worker id that was checked: workers claim with the same one over and over.
        self._worker: tuple[Any, str] = (None, "")
        core.adopt(self)

    # -- In ------------------------------------------------------------------------------------------------------------

    def _new(
        self,
        payload: Any,
        name: str | None = None,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        priority: int | None = 0,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        visibility: Duration | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> NewJob:
        stamped = self._stamp
        if max_attempts is not None:
            stamped = stamped._replace(max_attempts=attempts(max_attempts))
        if visibility is not None:
            stamped = stamped._replace(visibility=units.positive(visibility, "visibility"))
        values = (
            to_text(self._codec, payload, self._core.max_payload_bytes),
            stamped,
            None if name is None else names.name(name, "name"),
            None if delay is None else units.duration(delay, "delay"),
            None if run_at is None else units.instant(run_at, "run_at"),
            0 if priority is None or (priority == 0 and type(priority) is int) else units.priority(priority),
            None if expires is None else units.duration(expires, "expires"),
            None if key is None else names.name(key, "key"),
            None if headers is None else names.headers(headers),
        )
        # Half the price of calling the named tuple.
        return tuple.__new__(NewJob, values)

    def _new_many(self, items: Iterable[Any]) -> list[NewJob]:
        from rota.public import Item

        if isinstance(items, str | bytes | Mapping):
            # Its characters or keys would become jobs.
            raise TypeError(
                f"items must be several payloads or rota.Items, got one {type(items).__name__}: that is for enqueue()"
            )
        jobs: list[NewJob] = []
        for index, item in enumerate(items):
            try:
                jobs.append(self._from_item(item) if type(item) is Item else self._new(item))
            except (TypeError, ValueError, PayloadError) as error:
                error.add_note(f"in items[{index}]")
                raise
        return jobs

    def _from_item(self, item: Item) -> NewJob:
        return self._new(
            item.payload,
            item.name,
            item.delay,
            item.run_at,
            item.priority,
            item.expires,
            item.max_attempts,
            item.visibility,
            item.key,
            item.headers,
        )

    def _ask(self, worker_id: str | None, n: int, visibility: Duration | None) -> tuple[str, int, int | None]:
        known, worker = self._worker
        if worker_id is None:
            worker = self._core.worker_id()
        elif worker_id is not known:
            worker = names.name(worker_id, "worker_id")
            self._worker = (worker_id, worker)
        return worker, n, None if visibility is None else units.positive(visibility, "visibility")

    def _own(self, job: J) -> JobClaim | None:
        """The claim under a job, or None for a foreign one: a job of another store or queue settles nothing."""
        if not isinstance(job, JobData):
            raise TypeError(f"job must be a job this queue handed out, got {job!r}")
        if job._queue is self or job._queue._place == self._place:
            return job._claim
        return None

    def _claims_and_ids(self, jobs_or_ids: Iterable[J | int]) -> tuple[list[JobClaim], list[int]]:
        """Q9: claims carry their token, bare ids do not."""
        claims: list[JobClaim] = []
        bare: list[int] = []
        for one in jobs_or_ids:
            if isinstance(one, JobData):
                claim = self._own(one)
                if claim is not None:
                    claims.append(claim)
            else:
                number = ids.known(one, "job id")
                if number is not None:
                    bare.append(number)
        return claims, bare

    def _view(self, running: EngineTransaction) -> QueueEngine:
        return running.queue(self._engine)

    def _asked(self, jobs_or_ids: list[J | int], claims: list[JobClaim], ids: list[int]) -> int | None:
        """How many different jobs an ``ack_batch`` is about; None if one of them cannot be of this queue."""
        if len(claims) + len(ids) < len(jobs_or_ids):
            return None
        return len({(claim.id, claim.token) for claim in claims}) + len(set(ids) - {claim.id for claim in claims})

    def _none(self) -> list[Any]:
        """What a claim for no items gets: an error once the store is closed, as for any call."""
        self._core.check_open()
        return []

    def _give_back(self, engine: QueueEngine, claims: list[JobClaim]) -> None:
        """Nobody is there to work on these claims: release them, so that they are claimable at once."""
        for claim in claims:
            self._woken(engine.release(claim, None))

    def _curve(self, claim: JobClaim, delay: Duration | None) -> int:
        """Q7, Q8: a given delay verbatim, else the backoff of this attempt."""
        if delay is not None:
            return units.duration(delay, "delay")
        return rules.backoff(claim.backoff_base, claim.attempts, self._core.rng.random())

    def _worker_name(self, worker_id: str) -> str:
        return names.name(worker_id, "worker_id")

    def _beat(self, extend: Duration | None) -> int | None:
        return None if extend is None else units.positive(extend, "extend")

    def _to_beat(self, jobs: Iterable[J], extend: Duration | None) -> tuple[list[J], list[JobClaim], int | None]:
        asked = list(jobs)
        claims = [claim for claim in map(self._own, asked) if claim is not None]
        return asked, claims, self._beat(extend)

    def _pause(self, delay: Duration | None) -> int | None:
        return None if delay is None else units.duration(delay, "delay")

    def _result(self, result: Any) -> str | None:
        return None if result is None else to_text(self._results, result, self._core.max_payload_bytes)

    # -- Out -----------------------------------------------------------------------------------------------------------

    def _job(self, claim: JobClaim) -> J:
        return self._job_type(claim, decoded(self._codec, claim[2]), self)

    def _jobs(self, claims: list[JobClaim]) -> list[J]:
        return [self._job(claim) for claim in claims]

    def _record(self, row: JobRow) -> JobRecord:
        return present.job(row, self.name, self._codec, self._results)

    def _lost(self, asked: list[J], answers: list[int | None]) -> list[J]:
        """Note the new ends of claims; the jobs whose claim is lost. Foreign ones were not asked of the engine."""
        ends = iter(answers)
        return [job for job in asked if not self._beaten(job, None if self._own(job) is None else next(ends))]

    def _beaten(self, job: J, expires: int | None) -> bool:
        if expires is None:
            return False
        job._expires = expires
        return True

    def _woken(self, changed: R) -> R:
        """Wake waiters after something may have become claimable."""
        if changed:
            self._wakeups.wake(self._address)
        return changed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


_LISTED = ("pending", "processing", "done", "dead")


def listed_state(state: Any) -> ListedState:
    """A state that ``jobs`` and ``purge`` know."""
    if not isinstance(state, str):
        raise TypeError(f"state must be one of {_LISTED}, got {state!r}")
    if state not in _LISTED:
        raise ValueError(f"state must be one of {_LISTED}, got {state!r}")
    return state  # type: ignore[return-value]


def job_filter(
    state: ListedState | None, limit: int | None, after: int | None
) -> tuple[ListedState | None, int, int | None]:
    """The arguments of ``jobs``, checked."""
    return None if state is None else listed_state(state), ids.limit(limit), ids.after(after)
