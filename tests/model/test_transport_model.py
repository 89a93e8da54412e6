"""Random traces of transport operations: every engine against the naive oracle, compared after every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from model.moves import Many, Move, drawn, often, walk
from model.oracle_transport import Lease, TransportOracle
from model.subjects import SECOND, START, Subject, Subjects, clock_at_start, effort, micros, walks

GROUPS = ("a", "b", "c", "d")
DELAYS = (0, 0, 1, 5 * SECOND)
VISIBILITIES = (1, SECOND, 10 * SECOND)
PICKS = tuple(range(8))
BEGIN = {
    "max_deliveries": (None, 1, 2, 3),
    "poison": ("dead-letter", "hold"),
    "new_groups": ("first", "last"),
    "retention": (None, 5 * SECOND),
    "key_ttl": (0, 7 * SECOND),
}
PUBLISH = {"group": GROUPS, "priority": (0, 1, 2), "key": (None, None, "k", "l")}
PUBLISH_MANY = {"items": Many({"group": GROUPS, "priority": (0, 1, 2)}, 5)}
FLOORS = (None, None, None, 0, 1, 2)
CLAIM = {"worker": ("w", "v"), "n": (1, 1, 2, 5, 0, -1), "visibility": VISIBILITIES, "floor": FLOORS}
SETTLEMENTS = ("nack", "nack", "ack", "retry", "release", "fail")
SETTLE = {"pick": PICKS, "verb": SETTLEMENTS, "delay": DELAYS, "error": (None, "e1", "e2")}
EXTEND = {"pick": PICKS, "visibility": VISIBILITIES}
ACK_BATCH = {"picks": Many(PICKS, 4)}
FOREIGN = {"pick": PICKS, "verb": ("ack", "nack", "release", "fail", "retry", "extend", "ack_batch")}
CONTROL = {
    "group": ("a", "b", None),
    "maximum": (None, 1, 2),
    "what": ("suspend", "resume", "purge", "configure", "sweep"),
}
REDRIVE = {"picks": (None, (0,), (1, 3), (2,)), "position": ("tail", "original")}
PURGE_DEAD = {"pick": PICKS, "older_than": (None, 0, 5 * SECOND)}
TO_A_DEADLINE = {"pick": PICKS, "offset": (-1, 0, 1, 1)}
TIME = {"step": (1, SECOND, 7 * SECOND)}
MOVES: tuple[Move, ...] = (
    (9, "_publish", PUBLISH),
    (3, "_publish_many", PUBLISH_MANY),
    (14, "_claim", CLAIM),
    (14, "_settle", SETTLE),
    (2, "_retry_by_the_curve", {"pick": PICKS}),
    (3, "_extend", EXTEND),
    (1, "_ack_batch", ACK_BATCH),
    (1, "_settle_with_a_foreign_lease", FOREIGN),
    (3, "_control", CONTROL),
    (2, "_resume", {}),
    (3, "_redrive", REDRIVE),
    (1, "_purge_dead", PURGE_DEAD),
    (9, "_go_to_a_deadline", TO_A_DEADLINE),
    (2, "_let_time_pass", TIME),
)


class TransportModel(RuleBasedStateMachine):
    """One transport on every engine, and the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = clock_at_start()
        self.subjects = Subjects(self.clock)
        self.leases: list[Lease] = []
        self.foreign: list[list[Any]] = []
        self.published = 0
        self.instants: list[int] = []

    @initialize(**{name: drawn(choices) for name, choices in BEGIN.items()})
    def begin(self, max_deliveries: Any, poison: Any, new_groups: Any, retention: Any, key_ttl: int) -> None:
        self.oracle = TransportOracle(max_deliveries, poison, new_groups, retention, key_ttl, now=START)
        self.transports = [
            subject.store.transport(
                "t",
                max_deliveries=max_deliveries,
                poison=poison,
                new_groups=new_groups,
                dead_letter_retention=None if retention is None else retention / SECOND,
                key_ttl=key_ttl / SECOND,
                backoff_base=4,
            )
            for subject in self.subjects
        ]
        # Leases of another store and of another transport, with the numbers the first leases here will have.
        for subject in self.subjects:
            stranger = self.subjects.open(subject.name, "stranger")
            outside, beside = stranger.transport("t"), subject.store.transport("beside")
            outside.publish_many([(group, "foreign") for group in "abcd"])
            beside.publish_many([(group, "beside") for group in "ab"])
            taken = outside.claim_batch("w", 4, 10**6) + beside.claim_batch("w", 2, 10**6)
            subject.last_token = taken[-1].token
            subject.stranger = stranger
            self.foreign.append(taken)
        # The engines are told of the options by a first verb.
        self.both(lambda t, s: t.sweep(), 0)

    def teardown(self) -> None:
        for subject in self.subjects:
            if hasattr(subject, "stranger"):
                beside = subject.store.transport("beside")
                assert beside.stats().leased == 2, f"{subject.name}: another transport was touched"
                subject.stranger.close()
        self.subjects.close()

    def both(self, act: Any, expected: Any) -> None:
        """The same on every engine, with what the oracle says must come out."""
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            result = act(transport, subject)
            assert result == expected, f"{subject.name}: {result!r}, the oracle says {expected!r}"

    # -- In and out ----------------------------------------------------------------------------------------------------

    def _publish(self, group: str, priority: int, key: str | None) -> None:
        self.published += 1
        event = {"n": self.published}
        seq = self.oracle.publish(group, event, priority, key)
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            subject.bind(seq, transport.publish(group, event, priority, key=key, headers={"h": group}))

    publish, publish_again = often(2, _publish, PUBLISH)

    def _publish_many(self, items: list[dict[str, Any]]) -> None:
        made = []
        for item in items:
            self.published += 1
            made.append((item["group"], {"n": self.published}, item["priority"]))
        seqs = [self.oracle.publish(group, event, priority, None) for group, event, priority in made]
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            for ours, theirs in zip(seqs, transport.publish_many(made), strict=True):
                subject.bind(ours, theirs)

    (publish_many,) = often(1, _publish_many, PUBLISH_MANY)

    def _claim(self, worker: str, n: int, visibility: int, floor: int | None) -> None:
        leases = self.oracle.claim(worker, n, visibility, floor)
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            taken = transport.claim_batch(worker, n, visibility / SECOND, floor)
            for handle in taken:
                subject.took(handle)
            assert [self.shown(subject, handle) for handle in taken] == [self.told(lease) for lease in leases]
        self.leases += leases
        self.instants += [lease.deadline for lease in leases]

    claim, claim_again, claim_once_more = often(3, _claim, CLAIM)

    @staticmethod
    def told(lease: Lease) -> tuple[Any, ...]:
        return (
            lease.seq,
            lease.group_id,
            lease.event,
            lease.worker,
            lease.deliveries,
            lease.deadline,
            lease.priority,
            lease.published_at,
            {"h": lease.group_id},
        )

    @staticmethod
    def shown(subject: Subject, handle: Any) -> tuple[Any, ...]:
        return (
            subject.ours[handle.seq],
            handle.group_id,
            handle.event,
            handle.worker_id,
            handle.deliveries,
            micros(handle.deadline),
            handle.priority,
            micros(handle.published_at),
            handle.headers or {"h": handle.group_id},
        )

    # -- Settling ------------------------------------------------------------------------------------------------------

    def _settle(self, pick: int, verb: str, delay: int, error: str | None) -> None:
        if not self.leases:
            return
        place = -1 - pick % len(self.leases)
        lease, seconds = self.leases[place], delay / SECOND
        expected = self.oracle.settle(lease, verb, delay, error)
        acts = {
            "ack": lambda t, h: t.ack(h),
            "nack": lambda t, h: t.nack(h, seconds, error=error),
            "release": lambda t, h: h.release(delay=seconds),
            "fail": lambda t, h: h.fail(error),
            "retry": lambda t, h: t.retry(h, error, seconds),
        }
        self.both(lambda t, s: acts[verb](t, s.handles[place]), expected)
        self.instants.append(self.oracle.now + delay)

    settle, settle_again, settle_once_more = often(3, _settle, SETTLE)

    def _retry_by_the_curve(self, pick: int) -> None:
        if not self.leases:
            return
        place = -1 - pick % len(self.leases)
        lease = self.leases[place]
        # Chance is one half, so three quarters of the full backoff (base 4 s, never beyond an hour).
        delay = min(4 * 2 ** (lease.deliveries - 1), 3_600) * SECOND * 3 // 4
        expected = self.oracle.settle(lease, "retry", delay, None)
        self.both(lambda t, s: s.handles[place].retry(), expected)
        self.instants.append(self.oracle.now + delay)

    (retry_by_the_curve,) = often(1, _retry_by_the_curve, {"pick": PICKS})

    def _extend(self, pick: int, visibility: int) -> None:
        if not self.leases:
            return
        place = -1 - pick % len(self.leases)
        renewed = self.oracle.extend(self.leases[place], visibility)
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            handle = transport.extend(subject.handles[place], visibility / SECOND)
            told = None if renewed is None else self.told(renewed)
            assert (None if handle is None else self.shown(subject, handle)) == told
        if renewed is not None:
            self.instants.append(renewed.deadline)

    (extend,) = often(1, _extend, EXTEND)

    def _ack_batch(self, picks: list[int]) -> None:
        if not self.leases:
            return
        places = [-1 - pick % len(self.leases) for pick in picks]
        expected = sum(self.oracle.settle(self.leases[place], "ack") for place in places)
        self.both(lambda t, s: t.ack_batch([s.handles[place] for place in places]), expected)

    (ack_batch,) = often(1, _ack_batch, ACK_BATCH)

    def _settle_with_a_foreign_lease(self, pick: int, verb: str) -> None:
        """Leases of another store or transport, with equal seqs and tokens, change nothing."""
        for transport, leases in zip(self.transports, self.foreign, strict=True):
            lease = leases[pick % len(leases)]
            if verb == "extend":
                assert transport.extend(lease, 10) is None
            elif verb == "ack_batch":
                assert transport.ack_batch([lease]) == 0
            else:
                assert getattr(transport, verb)(lease) is False

    (settle_with_a_foreign_lease,) = often(1, _settle_with_a_foreign_lease, FOREIGN)

    # -- Control -------------------------------------------------------------------------------------------------------

    def _control(self, group: str | None, maximum: int | None, what: str) -> None:
        """What is rarely done, in one rule, so that it does not outweigh the rest."""
        if what == "suspend":
            expected = self.oracle.suspend(group)
            self.both(lambda t, s: t.suspend(group), expected)
        elif what == "resume":
            self._resume()
        elif what == "purge":
            expected = self.oracle.purge(group or "a")
            self.both(lambda t, s: t.purge(group or "a"), expected)
        elif what == "configure":
            self.oracle.max_deliveries = maximum
            for subject in self.subjects:
                subject.store.configure_transport("t", max_deliveries=maximum)
        else:
            expected = self.oracle.sweep()
            self.both(lambda t, s: t.sweep(), expected)

    (control,) = often(1, _control, CONTROL)

    def _resume(self) -> None:
        """Lift one suspension, or none where there is none."""
        group = None if self.oracle.suspended_at is not None else next(iter(self.oracle.suspended_groups), "a")
        expected = self.oracle.resume(group)
        self.both(lambda t, s: t.resume(group), expected)

    (resume,) = often(1, _resume, {})

    def _redrive(self, picks: tuple[int, ...] | None, position: str) -> None:
        if not self.oracle.letters:
            return
        places = None if picks is None else {pick % len(self.oracle.letters) for pick in picks}
        chosen = None if places is None else [self.oracle.letters[place].number for place in places]
        asked = [
            "all" if places is None else [transport.dead_letters()[place].letter_id for place in places]
            for transport in self.transports
        ]
        seqs = self.oracle.redrive(chosen, position)
        for transport, subject, ids in zip(self.transports, self.subjects, asked, strict=True):
            given = transport.redrive(ids, position=position)
            assert len(given) == len(seqs)
            for ours, theirs in zip(seqs, given, strict=True):
                subject.bind(ours, theirs)

    (redrive,) = often(1, _redrive, REDRIVE)

    def _purge_dead(self, pick: int, older_than: int | None) -> None:
        if not self.oracle.letters:
            return
        place = pick % len(self.oracle.letters)
        number = self.oracle.letters[place].number
        asked = [transport.dead_letters()[place].letter_id for transport in self.transports]
        expected = self.oracle.purge_dead([number], older_than)
        for transport, id in zip(self.transports, asked, strict=True):
            gone = (
                transport.purge_dead([id])
                if older_than is None
                else transport.purge_dead(older_than=older_than / SECOND)
            )
            assert gone == expected

    (purge_dead,) = often(1, _purge_dead, PURGE_DEAD)

    # -- Time ----------------------------------------------------------------------------------------------------------

    def _go_to_a_deadline(self, pick: int, offset: int) -> None:
        """Jump to one microsecond before, to, or one after an instant that means something."""
        coming = sorted({instant + offset for instant in self.instants if instant + offset > self.oracle.now})
        if coming:
            self.at(coming[pick % len(coming)] if pick > 5 else coming[0])

    go_to_a_deadline, go_on = often(2, _go_to_a_deadline, TO_A_DEADLINE)

    def _let_time_pass(self, step: int) -> None:
        self.at(self.oracle.now + step)

    (let_time_pass,) = often(1, _let_time_pass, TIME)

    def at(self, instant: int) -> None:
        self.oracle.now = instant
        self.clock.jump_to(instant)

    # -- Comparing -----------------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_as_the_oracle_says(self) -> None:
        if not hasattr(self, "transports"):
            return
        expected = [self.groups_told(), self.stats_told(), self.letters_told(), self.explained(), self.peeked()]
        seen = []
        looked_at = self.subjects.looked_at()
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            if subject not in looked_at:
                continue
            stats = transport.stats()
            self.check_due(subject.name, micros(stats.next_due_at))
            shown = [
                [
                    (
                        g.group_id,
                        g.priority,
                        g.messages,
                        micros(g.oldest_at),
                        micros(g.last_claimed_at),
                        g.state,
                        micros(g.until),
                        g.worker_id,
                    )
                    for g in transport.groups()
                ],
                (
                    stats.groups,
                    stats.messages,
                    stats.ready,
                    stats.leased,
                    stats.parked,
                    stats.suspended_groups,
                    stats.dead,
                    stats.capped,
                    micros(stats.oldest_ready_age),
                    stats.suspended,
                ),
                [
                    (
                        subject.ours[d.seq],
                        d.group_id,
                        d.event,
                        d.reason,
                        d.last_error,
                        d.previous_error,
                        micros(d.died_at),
                        d.deliveries,
                        micros(d.published_at),
                        d.key,
                        d.priority,
                    )
                    for d in transport.dead_letters()
                ],
                [
                    (e.claimable, e.reason, micros(e.until), e.worker_id)
                    for e in (transport.explain(group) for group in "abcd")
                ],
                [
                    (subject.ours[m.seq], m.event, m.deliveries, m.key, m.last_error, m.priority)
                    for group in "abcd"
                    for m in transport.peek(group, 100)
                ],
            ]
            for name, told, found in zip(
                ("groups", "stats", "letters", "explain", "peek"), expected, shown, strict=True
            ):
                assert found == told, f"{subject.name} {name}:\n{found!r}\nthe oracle says\n{told!r}"
            seen.append([transport.explain(group) for group in "abcd"])
        assert all(each == seen[0] for each in seen), f"engines explain differently: {seen!r}"

    def check_due(self, name: str, due: int | None) -> None:
        """It may name an instant that turns out useless, never miss one."""
        expected = self.oracle.next_due()
        if due is not None:
            assert due > self.oracle.now, f"{name}: next due {due} is not after now"
            assert self.oracle.suspended_at is None
        if expected is not None:
            assert due is not None, f"{name}: no next due, the oracle says {expected}"
            assert due <= expected, f"{name}: next due {due} misses {expected}"

    def groups_told(self) -> list[tuple[Any, ...]]:
        told = []
        for name, group in sorted(self.oracle.groups.items()):
            held = self.oracle.in_flight(group)
            told.append(
                (
                    name,
                    group.priority,
                    len(self.oracle.of(name)),
                    self.oracle.of(name)[0].published_at,
                    group.claimed_at,
                    self.oracle.state(name),
                    group.until if held else None,
                    group.worker if held else None,
                )
            )
        return told

    def stats_told(self) -> tuple[Any, ...]:
        states = [self.oracle.state(name) for name in self.oracle.groups]
        ages = [
            self.oracle.now - self.oracle.of(name)[0].published_at
            for name in self.oracle.groups
            # While the whole transport is suspended nothing is ready to be claimed.
            if self.oracle.state(name) == "ready" and self.oracle.suspended_at is None
        ]
        return (
            len(self.oracle.groups),
            len(self.oracle.messages),
            *(states.count(state) for state in ("ready", "leased", "parked", "suspended")),
            len(self.oracle.letters),
            (),
            max(ages, default=None),
            self.oracle.suspended_at is not None,
        )

    def letters_told(self) -> list[tuple[Any, ...]]:
        return [
            (
                letter.message.seq,
                letter.message.group_id,
                letter.message.event,
                letter.reason,
                letter.message.last_error,
                letter.message.previous_error,
                letter.died_at,
                letter.message.deliveries,
                letter.message.published_at,
                letter.message.key,
                letter.priority,
            )
            for letter in self.oracle.letters
        ]

    def explained(self) -> list[tuple[Any, ...]]:
        told: list[tuple[Any, ...]] = []
        for name in "abcd":
            if self.oracle.suspended_at is not None:
                told.append((False, "transport suspended", None, None))
            elif name in self.oracle.suspended_groups:
                told.append((False, "suspended", None, None))
            elif name not in self.oracle.groups:
                told.append((False, "no messages", None, None))
            elif self.oracle.state(name) == "ready":
                told.append((True, "ready", None, None))
            else:
                group = self.oracle.groups[name]
                told.append((False, self.oracle.state(name), group.until, group.worker))
        return told

    def peeked(self) -> list[tuple[Any, ...]]:
        return [
            (m.seq, m.event, m.deliveries, m.key, m.last_error, self.oracle.groups[name].priority)
            for name in "abcd"
            for m in self.oracle.of(name)
        ]


TestTransportModel = TransportModel.TestCase
TestTransportModel.settings = effort(25, 40)


@pytest.mark.parametrize("seed", walks(20))
def test_a_long_walk(seed: int) -> None:
    walk(TransportModel, BEGIN, MOVES, seed, 150)
