r"""The contract of Rota: numbered clauses, and the Protocols an engine implements to keep them.

An engine stores and decides; the facade checks input, encodes payloads, wakes waiters and makes handles. So an engine's
methods get clean values only (names checked, times in whole microseconds, payloads encoded) and return rows. Every verb
reads ``now`` once, after it holds its locks (C7), and is atomic. A method never blocks to wait for work.

The clauses stand in the docstrings of this file and nowhere else: ``docs/contract.md`` is generated from them, and the
tests of the conformance suite are named after them. This docstring holds C, D, P and E, which concern both mechanisms;
T is in ``TransportEngine``, Q in ``QueueEngine``, X in ``Engine``.

## Terms

- **store**: one opened engine, by `rota.open(url)` or, async, `rota.aopen(url)` (awaitable and async context manager).
  `memory://` is private to its store, `memory://name` is shared in the process; `sqlite:///relative.db`,
  `sqlite:////absolute.db`, `postgresql://user@host/database`. `store.as_async()` and `store.as_sync()` give the other
  facade on the same engine.
- **transport**: a FIFO of messages split into groups; one consumer at a time per group, fair turns between groups.
- **queue**: a priority queue of jobs with attempts, retries and dead letters.
- **lease**, **claim**: the right to work on one message or job until a deadline.
- **dead letter**: a job or message taken out of circulation, kept with the reason.

## Promise

At least once, fenced, in group order. When `enqueue` or `publish` returns (or your transaction commits), the item is
stored at the durability of the engine you chose and stays until it is acked, cancelled, purged, or dead-lettered with a
reason. A rolled-back transaction leaves nothing and wakes nobody. While a lease is valid by the store's clock, nobody
else is given that job, nor anything else of its group. Work may be delivered again after a lease lapses; the counters
say so. No exactly-once effects, except those committed in the ack's own transaction.

| what is lost at | process kill | power cut |
|---|---|---|
| memory | everything | everything |
| SQLite, `durability="full"` (default) | nothing committed | nothing committed (if the disk honours sync) |
| SQLite, `durability="normal"` | nothing committed | the newest commits may go |
| PostgreSQL | nothing committed | nothing committed (`synchronous_commit = on`) |

## C. Clock, numbers, atomicity

- **C1 microseconds.** Every instant is stored in whole microseconds since the Unix epoch, UTC. Every number of seconds
  is rounded to whole microseconds where it enters, and its domain is checked after rounding. So boundaries are exact,
  and equal on every engine.
- **C2 seconds outside.** Public values are POSIX seconds (`float`), as from `time.time()`. Durations are accepted as
  `int | float | timedelta`, instants as `int | float | aware datetime`. A naive `datetime` is refused with a
  `ValueError` that says how to make it aware; NaN, infinities and a `bool` in place of a number are refused too.
- **C3 whose clock.** Memory and SQLite read the store's clock: the wall clock of the host, unless `clock=` was given.
  PostgreSQL uses the server's clock, so that a worker with a wrong one cannot break a lease. An injected clock is
  obeyed by every engine, which is how tests run on all of them without sleeping.
- **C4 manual clock.** `rota.testing.ManualClock(start)` has `.now()`, `.advance(seconds)` and `.set(instant)`, is
  thread-safe, and moving it wakes whoever waits. `wait=` is in real (monotonic) seconds whatever the clock; with
  `ManualClock(autojump=True)` a wait takes no real time but moves the clock to the next instant at which something
  becomes claimable (a deadline counts as one microsecond later), or to the end of the wait.
- **C5 no background thread.** Expiry is *checked* when something is claimed, renewed or settled; sweeping is driven by
  the caller. Nothing has to run beside the program for these rules to hold.
- **C6 domains.** Numbers outside their domain (`max_attempts < 1`, `visibility <= 0`, `heartbeat(0)`,
  `backoff_base < 0`, a priority outside −2³¹ … 2³¹−1, a negative nack delay, …) are refused with `ValueError`, wrong
  types with `TypeError`, before any effect. `None` means "the default", an explicit 0 is zero. `n <= 0` in a batch
  gives `[]`. A batch of any size works.
- **C7 one look at the clock.** A verb reads `now` once, *after* it holds its locks (memory: the mutex; SQLite:
  `BEGIN IMMEDIATE`; PostgreSQL: its row locks; a claim, which never waits, may read it at its start). Nothing read
  before the lock decides anything.
- **C8 cost.** The cost of a hot verb may grow with the logarithm of the rows and with the number of distinct priorities
  in use, never with the backlog. A claim may leave cleaning beyond 1,000 exhausted or lapsed items to later claims:
  what is not cleaned yet stays hidden, is never handed out, and never makes a batch come back short.
- **C9 a clock that goes back.** What a verb has once treated as lapsed, due or expired may stay so. Nothing is lost, no
  token is ever reused, and two valid claims of one thing never exist.

## D. Dead letters

- **D1 one step.** Moving to dead and leaving the live table is one atomic step. A letter keeps the whole job (`id`,
  `payload`, …) or message (`seq`, `group_id`, `event`, …) and adds `letter_id`, `reason` (`failed`,
  `max attempts exceeded`, `max deliveries exceeded`, `expired`), `last_error` (the error given, else the reason),
  `previous_error` (the one before), `died_at` and the counters.
- **D2 paging.** `dead_letters(limit, after, *, group_id=None)` pages by `letter_id`; `purge_dead(ids | older_than)`
  deletes. Ids here and in `redrive` are letter ids; unknown ones are passed over.
- **D3 redrive.** `redrive(ids | "all", *, position="tail") -> list` makes letters live again with attempts or
  deliveries 0, the same payload, headers and priority, ready now, expiry cleared. Jobs keep their id. Messages at
  `"tail"` get a new `seq`, at `"original"` they take their old one. Those redriven together keep their order (by old
  `seq` or id). A key that somebody else took meanwhile is dropped from the item. A suspended group stays suspended.
- **D4 error texts.** Errors are cleaned (NUL and lone surrogates replaced) and cut to 64 KiB; an error text never makes
  a settlement fail.

## P. Payloads and names

- **P1 strict JSON.** The default codec is strict JSON. What it cannot carry exactly (NaN, infinities, bytes, tuples,
  sets, datetimes, keys that are no strings, lone surrogates, integers beyond the interpreter's digit limit) is refused
  with a `PayloadError` naming the path to the value, and nothing is stored. What comes out equals what went in on every
  engine, big integers and `\u0000` inside strings included. Each claim decodes afresh.
- **P2 size.** An encoded payload of more than `max_payload_bytes` (per store, default 1 MiB) raises `PayloadTooLarge`.
  No pickle, anywhere.
- **P3 codecs.** A codec has `encode(obj) -> str` and `decode(str) -> obj`. `JsonCodec` and `TypedCodec(T)`
  (dataclasses, msgspec Structs, pydantic models) ship. Payloads are stored as text, readable with any SQL client. One
  that cannot be decoded when it is claimed is delivered with the error in place of the payload: never lost, never a
  crash of the batch.
- **P4 names.** Names, keys, group ids and worker ids are non-empty strings of at most 255 characters without control
  characters or lone surrogates (else `ValueError`), compared code point by code point, and always bound values, never
  SQL text. `headers` is a `dict[str, str]`.

## E. Failure language

- **E one tree.** Everything Rota raises is a `rota.RotaError`, but for `TypeError` and `ValueError` on wrong
  arguments: `PayloadError`, `PayloadTooLarge`, `StoreClosed`, `LeaseLost` (X3), `TransactionError` (a transaction was
  misused), `TransactionAborted` (roll back and run it again), `EngineUnavailable` (nothing happened), `OutcomeUnknown`
  (the engine failed while committing: it may or may not have happened), `EngineBusy` (a lock could not be had in time),
  `EngineFull` (disk or cap), `SchemaMismatch` (which versions, what to run).
- **E no driver exceptions.** Exceptions of a database driver never escape from Rota's own connections; conflicts that
  a second try solves are retried inside.
- **E texts.** Messages say what was refused, the value, and what would be accepted. They, and every `repr`, never
  contain a password.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from rota.holders import Holders
from rota.records import (
    DeadJobRow,
    DeadMessageRow,
    ExplanationRow,
    GroupRow,
    GroupState,
    JobClaim,
    JobRow,
    LeaseClaim,
    MessageRow,
    NewJob,
    NewMessage,
    QueueStatsRow,
    TransportOptions,
    TransportStatsRow,
)
from rota.wakeups import Wakeups

P = ParamSpec("P")
T = TypeVar("T")

ListedState = Literal["pending", "processing", "done", "dead"]
Position = Literal["tail", "original"]
# Counts in ``stats`` are exact up to here (Q14).
COUNT_CAP = 10_000


class TransportEngine(Protocol):
    r"""One transport of one engine (T, D). Making it does no I/O; ``declared`` options are stored at first use (T11).

    ## T. Transport

    A transport is a FIFO of **messages** split into **groups**: one consumer at a time per group, fair turns between
    groups. `worker_id=None` in a claim stands for an id made of host, process and chance.

    - **T1 single active consumer.** At any instant of the clock a group has at most one message in flight. In flight:
      leased or parked with `deadline >= now` (the deadline's own instant still belongs to the holder). Strictly after
      it the message is free again, so crash recovery needs no sweeper. The test is "no valid lease anywhere in the
      group", not "the first row is free".
    - **T2 FIFO.** Only a group's head (lowest `seq`) is ever claimed. A nacked, parked, released or lapsed head stays
      the head. Publishes that do not overlap in time are delivered in the order they were published. A lower `seq` that
      appears while a lease is out (redrive to the original place) becomes the next head; the lease settles its own.
    - **T3 turns.** Among claimable groups at or above the floor the least recently *claimed* one goes first; groups
      never claimed go before all claimed ones, lowest head `seq` first. "Recently" is the order of the claims
      themselves (a counter), so it holds under a frozen, coarse or backward clock. The claim moves a group to the back;
      ack, nack, park, lapse and release do not. With `new_groups="last"` a new group enters at the back of the turns,
      as if just claimed: then, among claims whose floor admits it, a claimable group is passed over at most once by
      each other group, however many new ones arrive. The default favours quiet and new groups over busy ones and can
      starve a busy group under overload. The order is exact for claims that overlap no other transaction; overlapping
      ones may pass over a locked group or come back empty, and what appears behind the frontier (freed elsewhere,
      committed late) may be passed over for up to a second.
    - **T4 priority is a floor, not an order.** `min_priority` hides the groups below it; among the rest T3 alone
      decides. `None` is no floor. A group above the floor is found at a cost that does not grow with the number of
      groups below it.
    - **T5 a group exists while it has messages.** Its priority is fixed by the publish that creates it; later ones
      cannot change it. When the last message goes, priority and turn are forgotten (a suspension alone persists); the
      next publish makes a new group.
    - **T6 fencing.** Each claim gets a token from a counter that never goes back. Settling verbs and `extend` act only
      if the token is still the group's current one; else they change nothing and return `False` or `None`. Settling
      (also by nack) spends the token. A lease that lapsed but that nobody else took may still be settled; `extend`
      needs it unlapsed.
    - **T7 poison.** `deliveries` counts the claims of that message (this one included, released ones not). With
      `max_deliveries=N`, a head already delivered N times is dead-lettered (`max deliveries exceeded`) when a claim
      reaches it. `poison="dead-letter"`: the group goes on with the next message, in that same claim. `poison="hold"`:
      the group is suspended (also by `fail`) and later messages stay behind the failed one;
      `redrive(…, position="original")` and `resume` continue in order. `None`: a head may block its group for ever.
      Letters keep the group's priority.
    - **T8 identity.** A transport on `memory://` hands out the very object that was published (`is`), unless it has a
      codec. Durable engines encode (P1). `memory://?codec=json` makes it round-trip, so that tests refuse what
      production would. Queues always encode.
    - **T9 control plane.** A suspended group is not claimable and keeps order, backlog, priority and turn, over
      restarts; a lease held at that moment stays valid and may be settled. Suspending a group without messages holds.
      `resume(group)` lifts that suspension only (a running park or lease still counts); `resume()` lifts only the
      transport-wide one.
    - **T10 nothing is stranded.** A publish racing the ack of a group's last message leaves its message claimable.
    - **T11 options** belong to the transport, not to the handle: the first handle that names one stores it, others
      inherit it, and a conflict raises `ValueError` naming both values (`store.configure_transport(…)` changes them).
    """

    name: str
    place: str
    """Names the data, so that handles of another store or transport are told apart: engine, file and transport name."""

    def publish(
        self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None
    ) -> int: ...

    def publish_many(self, messages: Sequence[NewMessage]) -> list[int]: ...

    def claim(self, worker_id: str, n: int, visibility: int, min_priority: int | None) -> list[LeaseClaim]: ...

    def ack(self, claim: LeaseClaim) -> bool: ...

    def ack_batch(self, claims: Sequence[LeaseClaim]) -> int: ...

    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> bool:
        """Delay 0 frees, more parks (also the verb under ``retry``). Error None keeps the message's last one."""

    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> list[int | None]:
        """The new deadline for each claim, None where it is lost."""

    def release(self, claim: LeaseClaim, delay: int) -> bool: ...

    def release_batch(self, claims: Sequence[LeaseClaim]) -> int:
        """``release`` without a delay for each, in one transaction; how many were valid."""

    def fail(self, claim: LeaseClaim, error: str | None) -> bool: ...

    def suspend(self, group_id: str | None) -> bool: ...

    def resume(self, group_id: str | None) -> bool: ...

    def sweep(self) -> int: ...

    def groups(self, state: GroupState | None, limit: int, after: str | None) -> list[GroupRow]:
        """Groups that have messages, ordered by group id, code point by code point, those greater than ``after``."""

    def stats(self) -> TransportStatsRow: ...

    def peek(self, group_id: str, n: int) -> list[MessageRow]: ...

    def purge(self, group_id: str) -> int: ...
    def explain(self, group_id: str) -> ExplanationRow: ...

    def dead_letters(self, limit: int, after: int | None, group_id: str | None) -> list[DeadMessageRow]: ...
    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int:
        """Delete letters by id (None: all), or those with ``died_at <= now - older_than``."""

    def redrive(self, ids: Sequence[int] | None, position: Position) -> list[int]:
        """Make letters live again (None: all); the seqs, in the order of the old ones."""

    def options(self) -> TransportOptions: ...

    def configure(self, changes: dict[str, Any]) -> TransportOptions:
        """Change stored options (T11); returns all of them."""

    def next_due(self) -> int | None:
        """The next instant after now at which something may become claimable by time alone, None if there is none."""


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


class Subscription(Protocol):
    """One listener's place in a channel (X6)."""

    def take(self) -> list[str | None]:
        """The payloads that arrived since the last call, oldest first; never blocks."""

    def close(self) -> None: ...


class EngineTransaction(Protocol):
    """Where the verbs of one transaction run, for the async facade through ``acall`` (X1, X4)."""

    @property
    def connection(self) -> Any:
        """The driver's own connection, None on memory."""

    def queue(self, queue: Any) -> QueueEngine:
        """A queue of this engine with the very same verbs, in this transaction."""

    def transport(self, transport: Any) -> TransportEngine: ...

    def notify(self, channel: str, payload: str | None) -> None: ...
    def savepoint(self, name: str) -> None: ...

    def release(self, name: str) -> None: ...

    def rollback_to(self, name: str) -> None:
        """Undo what was done since the savepoint, and forget it."""

    def commit(self, then: Callable[[], None]) -> None:
        """Commit, then call ``then``. ``OutcomeUnknown`` or ``TransactionAborted`` where it did not come to that."""

    def rollback(self) -> None: ...

    def abandon(self) -> None:
        """Undo it without a loop: the one it was used on has ended."""

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run one of this transaction's verbs for the async facade."""

    def on_commit(self, act: Callable[[], None]) -> None:
        """On a caller's connection: have ``act`` called after its commit, where somebody tells when that is."""


class Engine(Protocol):
    r"""One opened engine, shared by its sync and async facades.

    ## X. Transactions, notifications, wake-ups

    - **X1 one commit.** `with store.transaction() as tx:` (async: `async with`): everything done with `tx=tx` (enqueue,
      publish, every settlement, notify) becomes visible together at commit or not at all; wake-ups fire after the
      commit only. An exception in the block rolls back, and so does `tx.rollback()`, which ends the transaction. `with
      tx.savepoint():` undoes its block alone. `tx.connection` is the driver's own connection on the SQL engines, for
      statements of your own. Memory is atomic and isolated too. Reads without `tx=` go on and do not see what is not
      committed. A write, or a claim, on the same store without `tx=` from the thread or task that holds the transaction
      raises `TransactionError` on every engine, as does a second `store.transaction()` there; nothing hangs. Others are
      not refused because of it (SQLite has one writer: they wait, and get `EngineBusy` after `busy_timeout`).
    - **X2 pins.** A settlement inside a transaction is judged when called, by the clock of that moment, and then *pins*
      its item: nobody can claim, sweep or cancel it until the transaction ends, however late. Who tries to settle or
      cancel it meanwhile waits for that or gets `EngineBusy`; claims pass it over. "Spent" is the store's state, not
      the handle's: a rollback restores it. Where the engine aborts a transaction, `TransactionAborted` says so.
    - **X3 lost leases.** With `tx=`, a settlement that is not valid raises `LeaseLost` instead of returning `False`, a
      batch if any in it is not, and changes nothing: an ignored result cannot commit an effect without its ack.
    - **X4 your own connection.** `tx=` accepts the caller's own open connection too: `sqlite3.Connection`,
      `psycopg.Connection` and `AsyncConnection`, `asyncpg.Connection`, SQLAlchemy `Connection` and `Session` and their
      async forms, Django's `connection`. The sync facade takes sync ones, the async facade async ones, else
      `TypeError`. It has to be in a transaction, or to begin one by itself, and to lead to the store's own database,
      else `TransactionError`. Rota never commits, rolls back, retries or changes settings on it; if the database aborts
      the transaction, `TransactionAborted` is raised.
    - **X5 outbox.** `store.outbox(name, deliver)`: a queue with the outbox stamp (60 s visibility, 5 attempts, 5 s
      backoff base, dead letters kept for ever), for what has to reach another system after the commit. `.worker()` of
      it is a `rota.Worker` that calls `deliver` with each payload.
    - **X6 channels.** `store.notify(channel, payload=None)` and `store.listen(channel)` (an iterator, sync and async):
      fan-out to everyone listening, at most once, not replayed, payload of at most 7,000 bytes on every engine.
    - **X7 wake-ups are hints.** They make `wait=` fast; polling makes it right. A waiting claim returns within a second
      of something becoming claimable (published, released, a delay over, a lease lapsed, a group resumed), also when
      the wake-up was lost, also when a due job was missed once because of a lock.
    - **X8 idle and closing.** Idle waiting costs a bounded, small number of statements. `store.close()` makes waiters
      raise `StoreClosed` within a second.
    """

    url: str
    """For people: never contains a password."""
    wakeups: Wakeups
    holders: Holders
    """Who holds a transaction; every write and claim of theirs outside of it is refused (X1)."""
    durable: bool
    """Durable engines always encode events (T8, P1)."""
    transactions_at_once: int | None
    """So many transactions of ``begin`` and ``abegin`` are open in this process at once, others wait and may get
    ``EngineBusy``; None: any number."""

    now: Callable[[], int]

    def transport(self, name: str, declared: dict[str, Any]) -> TransportEngine: ...
    def queue(self, name: str) -> QueueEngine: ...

    def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""

    def queues(self) -> list[str]: ...

    def notify(self, channel: str, payload: str | None) -> None: ...
    def subscribe(self, channel: str) -> Subscription: ...

    def begin(self) -> EngineTransaction:
        """Begin a transaction for the sync facade (X1)."""

    def abegin(self) -> Awaitable[EngineTransaction]:
        """Begin a transaction for the async facade; when the awaiting task is cancelled, it is rolled back."""

    def adopt(self, connection: Any, *, asynchronous: bool) -> EngineTransaction:
        """A transaction on the caller's own connection (X4). No I/O: what is wrong with it the first verb tells.

        ``TypeError`` for what is no connection to such an engine, or one of the other colour.
        """

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run one of this engine's verbs for the async facade without blocking the loop."""

    def acall_or_undo(self, verb: Callable[..., T], undo: Callable[[T], object], *args: Any) -> Awaitable[T]:
        """``acall`` for claims: when the awaiting task is cancelled while the verb runs, ``undo`` gets its result."""

    def facts(self) -> dict[str, Any]:
        """What ``rota doctor`` prints of this engine."""

    def close(self) -> None:
        """Let running verbs end, then release everything; later verbs raise ``StoreClosed``. Quiet when repeated."""
