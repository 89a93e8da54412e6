r"""The contract of Rota: numbered clauses, and the Protocols an engine implements to keep them.

An engine stores and decides; the facade checks input, encodes payloads, wakes waiters and makes handles. So an engine's
methods get clean values only (names checked, times in whole microseconds, payloads encoded) and return rows. Every verb
reads ``now`` once, after it holds its locks (C7), and is atomic. A method never blocks to wait for work.

The clauses stand in the docstrings of this package and nowhere else: ``docs/contract.md`` is generated from them, and
the tests of the conformance suite are named after them. This docstring holds C, D, P and E, which concern both
mechanisms; T is in ``TransportEngine``, Q in ``QueueEngine``, X in ``Engine``.

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

from rota.contract.engines import Engine, EngineTransaction, Subscription
from rota.contract.queues import ListedState, QueueEngine
from rota.contract.transports import Position, TransportEngine

__all__ = [
    "COUNT_CAP",
    "Engine",
    "EngineTransaction",
    "ListedState",
    "Position",
    "QueueEngine",
    "Subscription",
    "TransportEngine",
]

# Counts in ``stats`` are exact up to here (Q14).
COUNT_CAP = 10_000
