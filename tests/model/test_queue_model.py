"""Random traces of queue operations: every engine against the naive oracle, compared after every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from model.moves import Many, Move, often, walk
from model.oracle_queue import Claim, Job, QueueOracle, Stamp
from model.subjects import SECOND, START, Subject, Subjects, clock_at_start, effort, micros, walks
from rota import Item

PICKS = tuple(range(8))
WORKERS = ("w", "w", "v")
VISIBILITIES = (None, 1, SECOND, 10 * SECOND)
# Two handles on one queue: their options are stamped on what they enqueue (Q1).
STAMPS = (
    Stamp(20 * SECOND, 2, 4 * SECOND, None, 0, 7 * SECOND),
    Stamp(3 * SECOND, 1, 0, 6 * SECOND, 9 * SECOND, 0),
)
OPTIONS = {
    "delay": (None, None, None, 0, 1, -SECOND, 5 * SECOND),
    "run_at": (None, None, START - 1, START + SECOND, START + 4 * SECOND),
    "priority": (-1, 0, 0, 1),
    "expires": (None, None, None, None, 0, SECOND, 6 * SECOND),
    "key": (None, None, "k", "l"),
}
OVERRIDES = {"max_attempts": (None, None, 1, 3), "visibility": (None, None, 2 * SECOND)}
ENQUEUE = {"handle": (0, 1), "options": OPTIONS, "overrides": OVERRIDES}
ENQUEUE_MANY = {"handle": (0, 1), "items": Many({"options": OPTIONS, "overrides": OVERRIDES}, 4)}
CLAIM = {"worker": WORKERS, "n": (1, 1, 2, 5, 0, -1), "visibility": VISIBILITIES, "handle": (0, 1)}
SETTLE = {
    "pick": PICKS,
    "verb": ("ack", "retry", "retry", "release", "fail"),
    "delay": (None, 0, 1, -SECOND, 5 * SECOND),
    "error": (None, "e1", "e2"),
}
HEARTBEAT = {"pick": PICKS, "extend": VISIBILITIES}
HEARTBEAT_BATCH = {"picks": Many(PICKS, 4), "extend": VISIBILITIES}
ACK_BATCH = {"picks": Many(PICKS, 4), "bare": Many(PICKS, 3), "worker": WORKERS}
FOREIGN = {"pick": PICKS, "verb": ("ack", "retry", "release", "fail", "heartbeat", "ack_batch")}
CONTROL = {
    "pick": PICKS,
    "state": ("pending", "processing", "done", "dead"),
    "what": ("suspend", "resume", "cancel", "cancel", "purge"),
}
REDRIVE = {"picks": (None, (0,), (1, 3), (2,))}
PURGE_DEAD = {"pick": PICKS, "older_than": (None, 0, 5 * SECOND)}
TO_AN_INSTANT = {"pick": PICKS, "offset": (-1, 0, 1, 1)}
TIME = {"step": (1, SECOND, 7 * SECOND)}
MOVES: tuple[Move, ...] = (
    (9, "_enqueue", ENQUEUE),
    (3, "_enqueue_many", ENQUEUE_MANY),
    (14, "_claim", CLAIM),
    (14, "_settle", SETTLE),
    (2, "_heartbeat", HEARTBEAT),
    (1, "_heartbeat_batch", HEARTBEAT_BATCH),
    (2, "_ack_batch", ACK_BATCH),
    (1, "_settle_with_a_foreign_job", FOREIGN),
    (3, "_control", CONTROL),
    (2, "_resume", {}),
    (2, "_sweep", {}),
    (3, "_redrive", REDRIVE),
    (1, "_purge_dead", PURGE_DEAD),
    (9, "_go_to_an_instant", TO_AN_INSTANT),
    (2, "_let_time_pass", TIME),
)


class QueueModel(RuleBasedStateMachine):
    """One queue on every engine, and the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = clock_at_start()
        self.subjects = Subjects(self.clock)
        self.oracle = QueueOracle(now=START)
        self.claims: list[Claim] = []
        self.instants: list[int] = [START + SECOND, START + 4 * SECOND]
        self.foreign: list[list[Any]] = []
        self.enqueued = 0

    @initialize()
    def begin(self) -> None:
        self.queues = []
        for subject in self.subjects:
            self.queues.append(
                [
                    subject.store.queue(
                        "q",
                        visibility=stamp.visibility / SECOND,
                        max_attempts=stamp.max_attempts,
                        backoff_base=stamp.backoff_base / SECOND,
                        dead_letter_retention=None if stamp.retention is None else stamp.retention / SECOND,
                        keep_done=stamp.keep_done / SECOND,
                        key_ttl=stamp.key_ttl / SECOND,
                    )
                    for stamp in STAMPS
                ]
            )
            # Jobs of another store and of another queue, with the numbers the first jobs here will have.
            stranger = self.subjects.open(subject.name, "stranger")
            outside, beside = stranger.queue("q"), subject.store.queue("beside")
            outside.enqueue_many(["foreign"] * 6)
            beside.enqueue_many(["beside"] * 2)
            taken = outside.claim_batch("w", 6, visibility=10**6) + beside.claim_batch("w", 2, visibility=10**6)
            subject.last_token = taken[-1].token
            subject.stranger = stranger
            self.foreign.append(taken)

    def teardown(self) -> None:
        for subject in self.subjects:
            if hasattr(subject, "stranger"):
                assert subject.store.queue("beside").stats().processing == 2, (
                    f"{subject.name}: another queue was touched"
                )
                subject.stranger.close()
        self.subjects.close()

    def both(self, act: Any, expected: Any) -> None:
        """The same on every engine, with what the oracle says must come out."""
        for (queue, _), subject in zip(self.queues, self.subjects, strict=True):
            result = act(queue, subject)
            assert result == expected, f"{subject.name}: {result!r}, the oracle says {expected!r}"

    # -- In and out ----------------------------------------------------------------------------------------------------

    def _enqueue(self, handle: int, options: dict[str, Any], overrides: dict[str, Any]) -> None:
        payload, given = self.item(handle, options, overrides)
        id = self.told_to_enqueue(handle, payload, options, overrides)
        for queues, subject in zip(self.queues, self.subjects, strict=True):
            subject.bind(id, queues[handle].enqueue(payload, **given))

    enqueue, enqueue_again = often(2, _enqueue, ENQUEUE)

    def _enqueue_many(self, handle: int, items: list[dict[str, Any]]) -> None:
        made = [self.item(handle, **item) for item in items]
        ids = [self.told_to_enqueue(handle, payload, **item) for (payload, _), item in zip(made, items, strict=True)]
        for queues, subject in zip(self.queues, self.subjects, strict=True):
            given = queues[handle].enqueue_many([Item(payload, **options) for payload, options in made])
            for ours, theirs in zip(ids, given, strict=True):
                subject.bind(ours, theirs)

    (enqueue_many,) = often(1, _enqueue_many, ENQUEUE_MANY)

    def item(self, handle: int, options: dict[str, Any], overrides: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """A payload of its own, and the options in public seconds."""
        self.enqueued += 1
        given = {"priority": options["priority"], "key": options["key"], "max_attempts": overrides["max_attempts"]}
        for name in ("delay", "run_at", "expires"):
            given[name] = None if options[name] is None else options[name] / SECOND
        given["visibility"] = None if overrides["visibility"] is None else overrides["visibility"] / SECOND
        return {"n": self.enqueued}, given

    def told_to_enqueue(self, handle: int, payload: Any, options: dict[str, Any], overrides: dict[str, Any]) -> int:
        plain = STAMPS[handle]
        stamp = Stamp(
            overrides["visibility"] or plain.visibility,
            overrides["max_attempts"] or plain.max_attempts,
            *(plain.backoff_base, plain.retention, plain.keep_done, plain.key_ttl),
        )
        id = self.oracle.enqueue(payload, stamp, **options)
        job = self.oracle.find(id)
        if job is not None:
            self.instants += [job.run_at, job.expires_at or job.run_at]
        return id

    def _claim(self, worker: str, n: int, visibility: int | None, handle: int) -> None:
        claims = self.oracle.claim(worker, n, visibility)
        for queues, subject in zip(self.queues, self.subjects, strict=True):
            asked = None if visibility is None else visibility / SECOND
            taken = queues[handle].claim_batch(worker, n, visibility=asked)
            for job in taken:
                # Tokens grow in the order of the claims, those of one batch in any order.
                assert job.token > subject.last_token
                subject.handles.append(job)
            subject.last_token = max([subject.last_token, *(job.token for job in taken)])
            assert len({job.token for job in taken}) == len(taken)
            shown = [self.shown_claim(subject, job) for job in taken]
            told = [self.told_claim(claim) for claim in claims]
            assert shown == told, f"{subject.name}:\n{shown!r}\nthe oracle says\n{told!r}"
        self.claims += claims
        self.instants += [claim.job.deadline or 0 for claim in claims]

    claim, claim_again, claim_once_more = often(3, _claim, CLAIM)

    @staticmethod
    def told_claim(claim: Claim) -> tuple[Any, ...]:
        job = claim.job
        return (
            *(job.id, job.payload, job.priority, job.attempts, job.stamp.max_attempts, job.run_at, job.enqueued_at),
            *(job.expires_at, job.worker, job.claimed_at, job.deadline, job.releases, job.last_error),
        )

    @staticmethod
    def shown_claim(subject: Subject, job: Any) -> tuple[Any, ...]:
        return (
            *(subject.ours[job.id], job.payload, job.priority, job.attempts, job.max_attempts),
            *(micros(job.run_at), micros(job.enqueued_at), micros(job.expires_at), job.worker_id),
            *(micros(job.claimed_at), micros(job.claim_expires_at), job.releases, job.last_error),
        )

    # -- The holder ----------------------------------------------------------------------------------------------------

    def _settle(self, pick: int, verb: str, delay: int | None, error: str | None) -> None:
        if not self.claims:
            return
        place = -1 - pick % len(self.claims)
        claim, seconds = self.claims[place], None if delay is None else delay / SECOND
        if verb == "ack":
            expected = self.oracle.ack(claim, {"r": error})
            self.both(lambda q, s: s.handles[place].ack({"r": error}), expected)
        elif verb == "fail":
            expected = self.oracle.fail(claim, error)
            self.both(lambda q, s: q.fail(s.handles[place], error), expected)
        elif verb == "release":
            expected = self.oracle.release(claim, delay)
            self.both(lambda q, s: s.handles[place].release(delay=seconds), expected)
        else:
            # Chance is one half, so without a delay it is three quarters of the full backoff.
            full = min(claim.job.stamp.backoff_base * 2 ** (claim.job.attempts - 1), 3_600 * SECOND)
            expected = self.oracle.retry(claim, error, full * 3 // 4 if delay is None else delay)
            self.both(lambda q, s: q.retry(s.handles[place], error, seconds), expected)
        job = self.oracle.find(claim.id)
        if job is not None:
            self.instants.append(job.run_at)
            ends = ((job.died_at, job.stamp.retention), (job.done_at, job.stamp.keep_done))
            self.instants += [at + kept for at, kept in ends if at is not None and kept is not None]

    settle, settle_again, settle_once_more = often(3, _settle, SETTLE)

    def _heartbeat(self, pick: int, extend: int | None) -> None:
        if not self.claims:
            return
        place = -1 - pick % len(self.claims)
        expected = self.oracle.heartbeat(self.claims[place], extend)
        self.both(lambda q, s: s.handles[place].heartbeat(None if extend is None else extend / SECOND), expected)
        self.instants.append(self.oracle.now + (extend or self.claims[place].visibility))

    (heartbeat,) = often(1, _heartbeat, HEARTBEAT)

    def _heartbeat_batch(self, picks: list[int], extend: int | None) -> None:
        if not self.claims:
            return
        places = sorted({-1 - pick % len(self.claims) for pick in picks})
        lost = [place for place in places if not self.oracle.heartbeat(self.claims[place], extend)]
        for (queue, _), subject in zip(self.queues, self.subjects, strict=True):
            asked = [subject.handles[place] for place in places]
            found = queue.heartbeat_batch(asked, None if extend is None else extend / SECOND)
            assert found == [subject.handles[place] for place in lost], subject.name

    (heartbeat_batch,) = often(1, _heartbeat_batch, HEARTBEAT_BATCH)

    def _ack_batch(self, picks: list[int], bare: list[int], worker: str) -> None:
        if not self.claims:
            return
        places = [-1 - pick % len(self.claims) for pick in picks]
        ids = [self.claims[-1 - pick % len(self.claims)].id for pick in bare]
        expected = self.oracle.ack_batch([self.claims[place] for place in places], ids, worker)
        self.both(
            lambda q, s: q.ack_batch(
                [s.handles[place] for place in places] + [s.theirs[id] for id in ids] + [10**15], worker
            ),
            expected,
        )

    (ack_batch,) = often(1, _ack_batch, ACK_BATCH)

    def _settle_with_a_foreign_job(self, pick: int, verb: str) -> None:
        """Jobs of another store or queue, with equal ids and tokens, change nothing."""
        for (queue, _), jobs in zip(self.queues, self.foreign, strict=True):
            job = jobs[pick % len(jobs)]
            if verb == "ack_batch":
                assert queue.ack_batch([job], "w") == 0
            else:
                assert getattr(queue, verb)(job) is False

    (settle_with_a_foreign_job,) = often(1, _settle_with_a_foreign_job, FOREIGN)

    # -- Others --------------------------------------------------------------------------------------------------------

    def _control(self, pick: int, state: str, what: str) -> None:
        """What is rarely done, in one rule, so that it does not outweigh the rest."""
        if not self.oracle.last_id:
            return
        if what == "cancel":
            id = 1 + pick % self.oracle.last_id
            expected: Any = self.oracle.cancel(id)
            self.both(lambda q, s: q.cancel(s.theirs[id]), expected)
        elif what == "purge":
            expected = self.oracle.purge(state)
            self.both(lambda q, s: q.purge(state), expected)
        elif what == "suspend":
            expected, self.oracle.suspended = not self.oracle.suspended, True
            self.both(lambda q, s: q.suspend(), expected)
        else:
            self._resume()

    (control,) = often(1, _control, CONTROL)

    def _sweep(self) -> None:
        expected = self.oracle.sweep_expired()
        self.both(lambda q, s: q.sweep_expired(), expected)

    (sweep,) = often(1, _sweep, {})

    def _resume(self) -> None:
        expected, self.oracle.suspended = self.oracle.suspended, False
        self.both(lambda q, s: q.resume(), expected)

    (resume,) = often(1, _resume, {})

    def _redrive(self, picks: tuple[int, ...] | None) -> None:
        if not self.oracle.letters:
            return
        places = None if picks is None else {pick % len(self.oracle.letters) for pick in picks}
        chosen = None if places is None else [self.oracle.letters[place].number for place in places]
        asked = [
            "all" if places is None else [queue.dead_letters()[place].letter_id for place in places]
            for queue, _ in self.queues
        ]
        ids = self.oracle.redrive(chosen)
        for (queue, _), subject, letters in zip(self.queues, self.subjects, asked, strict=True):
            assert queue.redrive(letters) == [subject.theirs[id] for id in ids], subject.name

    (redrive,) = often(1, _redrive, REDRIVE)

    def _purge_dead(self, pick: int, older_than: int | None) -> None:
        if not self.oracle.letters:
            return
        place = pick % len(self.oracle.letters)
        number = self.oracle.letters[place].number
        asked = [queue.dead_letters()[place].letter_id for queue, _ in self.queues]
        expected = self.oracle.purge_dead([number], older_than)
        for (queue, _), id in zip(self.queues, asked, strict=True):
            gone = queue.purge_dead([id]) if older_than is None else queue.purge_dead(older_than=older_than / SECOND)
            assert gone == expected

    (purge_dead,) = often(1, _purge_dead, PURGE_DEAD)

    # -- Time ----------------------------------------------------------------------------------------------------------

    def _go_to_an_instant(self, pick: int, offset: int) -> None:
        """Jump to one microsecond before, to, or one after an instant that means something."""
        coming = sorted({instant + offset for instant in self.instants if instant + offset > self.oracle.now})
        if coming:
            self.at(coming[pick % len(coming)] if pick > 5 else coming[0])

    go_to_an_instant, go_on = often(2, _go_to_an_instant, TO_AN_INSTANT)

    def _let_time_pass(self, step: int) -> None:
        self.at(self.oracle.now + step)

    (let_time_pass,) = often(1, _let_time_pass, TIME)

    def at(self, instant: int) -> None:
        self.oracle.now = instant
        self.clock.jump_to(instant)

    # -- Comparing -----------------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_as_the_oracle_says(self) -> None:
        if not hasattr(self, "queues"):
            return
        jobs = sorted((*self.oracle.jobs, *(letter.job for letter in self.oracle.letters)), key=lambda job: job.id)
        peekable = [job.id for job in self.oracle.claimable() if job.attempts < job.stamp.max_attempts]
        expected = {
            "jobs": [self.told_job(job) for job in jobs],
            "letters": [self.told_letter(letter.reason, letter.job) for letter in self.oracle.letters],
            "stats": self.told_stats(),
            "peek": peekable,
        }
        seen = []
        looked_at = self.subjects.looked_at()
        for (queue, _), subject in zip(self.queues, self.subjects, strict=True):
            if subject not in looked_at:
                continue
            stats = queue.stats()
            self.check_due(subject.name, micros(stats.next_due_at))
            records = queue.jobs()
            found = {
                "jobs": [self.shown_job(subject, record) for record in records],
                "letters": [self.shown_letter(subject, letter) for letter in queue.dead_letters()],
                "stats": (
                    *(stats.pending, stats.processing, stats.done, stats.dead, stats.capped),
                    *(micros(stats.oldest_ready_age), stats.suspended),
                ),
                "peek": [subject.ours[record.id] for record in queue.peek(100)],
            }
            for name, told in expected.items():
                assert found[name] == told, f"{subject.name} {name}:\n{found[name]!r}\nthe oracle says\n{told!r}"
            by_id = {record.id: record for record in records}
            for theirs in list(subject.ours)[-3:]:
                assert queue.get_job(theirs) == by_id.get(theirs), subject.name
            unnumbered = [(record.claimed_at, record.claim_expires_at) for record in records]
            seen.append((unnumbered, [queue.explain(subject.theirs[job.id]) for job in jobs[-4:]]))
        assert all(each == seen[0] for each in seen), f"the engines show different things: {seen!r}"

    def check_due(self, name: str, due: int | None) -> None:
        """It may name an instant that turns out useless, never miss one."""
        expected = self.oracle.next_due()
        if due is not None:
            assert due > self.oracle.now, f"{name}: next due {due} is not after now"
            assert not self.oracle.suspended
        if expected is not None:
            assert due is not None, f"{name}: no next due, the oracle says {expected}"
            assert due <= expected, f"{name}: next due {due} misses {expected}"

    def told_stats(self) -> tuple[Any, ...]:
        states = [job.state for job in self.oracle.jobs]
        ready = [
            job.run_at if job.state == "pending" else job.deadline or 0
            for job in self.oracle.claimable()
            if not self.oracle.suspended
        ]
        return (
            *(states.count(state) for state in ("pending", "processing", "done")),
            *(len(self.oracle.letters), ()),
            max(self.oracle.now - min(ready), 0) if ready else None,
            self.oracle.suspended,
        )

    @staticmethod
    def told_job(job: Job) -> tuple[Any, ...]:
        held = job.state == "processing"
        return (
            *(job.id, job.state, job.payload, job.priority, job.attempts, job.stamp.max_attempts, job.run_at),
            *(job.enqueued_at, job.expires_at, job.worker, job.releases, job.last_error, job.previous_error),
            *(job.stamp.visibility, job.stamp.backoff_base, job.stamp.retention, job.stamp.keep_done, job.key),
            *(job.result, job.done_at, job.died_at),
            *((job.claimed_at, job.deadline) if held else (None, None)),
        )

    @staticmethod
    def shown_job(subject: Subject, record: Any) -> tuple[Any, ...]:
        held = record.state == "processing"
        return (
            *(subject.ours[record.id], record.state, record.payload, record.priority, record.attempts),
            *(record.max_attempts, micros(record.run_at), micros(record.enqueued_at), micros(record.expires_at)),
            *(record.worker_id, record.releases, record.last_error, record.previous_error),
            *(micros(record.visibility), micros(record.backoff_base), micros(record.dead_letter_retention)),
            *(micros(record.keep_done), record.key, record.result, micros(record.done_at), micros(record.died_at)),
            *((micros(record.claimed_at), micros(record.claim_expires_at)) if held else (None, None)),
        )

    @staticmethod
    def told_letter(reason: str, job: Job) -> tuple[Any, ...]:
        return (
            *(reason, job.id, job.payload, job.last_error, job.previous_error, job.died_at, job.attempts),
            *(job.releases, job.run_at, job.enqueued_at, job.expires_at, job.worker, job.key, job.priority),
        )

    @staticmethod
    def shown_letter(subject: Subject, letter: Any) -> tuple[Any, ...]:
        return (
            *(letter.reason, subject.ours[letter.id], letter.payload, letter.last_error, letter.previous_error),
            *(micros(letter.died_at), letter.attempts, letter.releases, micros(letter.run_at)),
            *(micros(letter.enqueued_at), micros(letter.expires_at), letter.worker_id, letter.key, letter.priority),
        )


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = effort(25, 40)


@pytest.mark.parametrize("seed", walks(20))
def test_a_long_walk(seed: int) -> None:
    walk(QueueModel, {}, MOVES, seed, 150)
