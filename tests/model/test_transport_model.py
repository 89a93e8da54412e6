"""Random traces of transport operations: every engine against the naive oracle, compared after every step."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from model.oracle_transport import Lease, TransportOracle
from model.subjects import SECOND, START, Subject, Subjects, clock_at_start, effort, micros

GROUPS = st.sampled_from(["a", "b", "c", "d"])
SOME_GROUP = st.sampled_from(["a", "b", None])
WORKERS = st.sampled_from(["w", "v"])
FLOORS = st.sampled_from([None, None, None, 0, 1, 2])
VISIBILITIES = st.sampled_from([1, SECOND, 10 * SECOND])
DELAYS = st.sampled_from([0, 1, 5 * SECOND])
ERRORS = st.sampled_from([None, "e1", "e2"])
KEYS = st.sampled_from([None, None, "k", "l"])
PICKS = st.integers(0, 11)


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

    @initialize(
        max_deliveries=st.sampled_from([None, 1, 2, 3]),
        poison=st.sampled_from(["dead-letter", "hold"]),
        new_groups=st.sampled_from(["first", "last"]),
        retention=st.sampled_from([None, 5 * SECOND]),
        key_ttl=st.sampled_from([0, 7 * SECOND]),
    )
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

    @rule(group=GROUPS, priority=st.integers(0, 2), key=KEYS)
    def publish(self, group: str, priority: int, key: str | None) -> None:
        self.published += 1
        event = {"n": self.published}
        seq = self.oracle.publish(group, event, priority, key)
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            subject.bind(seq, transport.publish(group, event, priority, key=key, headers={"h": group}))

    @rule(groups=st.lists(st.tuples(GROUPS, st.integers(0, 2)), max_size=6))
    def publish_many(self, groups: list[tuple[str, int]]) -> None:
        items = []
        for group, priority in groups:
            self.published += 1
            items.append((group, {"n": self.published}, priority))
        seqs = [self.oracle.publish(group, event, priority, None) for group, event, priority in items]
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            for ours, theirs in zip(seqs, transport.publish_many(items), strict=True):
                subject.bind(ours, theirs)

    @rule(worker=WORKERS, n=st.integers(-1, 5), visibility=VISIBILITIES, floor=FLOORS)
    def claim(self, worker: str, n: int, visibility: int, floor: int | None) -> None:
        leases = self.oracle.claim(worker, n, visibility, floor)
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            taken = transport.claim_batch(worker, n, visibility / SECOND, floor)
            for handle in taken:
                subject.took(handle)
            assert [self.shown(subject, handle) for handle in taken] == [self.told(lease) for lease in leases]
        self.leases += leases
        self.instants += [lease.deadline for lease in leases]

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

    @precondition(lambda self: self.leases)
    @rule(
        pick=PICKS,
        verb=st.sampled_from(["ack", "ack", "nack", "release", "fail", "retry"]),
        delay=DELAYS,
        error=ERRORS,
    )
    def settle(self, pick: int, verb: str, delay: int, error: str | None) -> None:
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

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS)
    def retry_by_the_curve(self, pick: int) -> None:
        place = -1 - pick % len(self.leases)
        lease = self.leases[place]
        # Chance is one half, so three quarters of the full backoff (base 4 s, never beyond an hour).
        delay = min(4 * 2 ** (lease.deliveries - 1), 3_600) * SECOND * 3 // 4
        expected = self.oracle.settle(lease, "retry", delay, None)
        self.both(lambda t, s: s.handles[place].retry(), expected)
        self.instants.append(self.oracle.now + delay)

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS, visibility=VISIBILITIES)
    def extend(self, pick: int, visibility: int) -> None:
        place = -1 - pick % len(self.leases)
        renewed = self.oracle.extend(self.leases[place], visibility)
        for transport, subject in zip(self.transports, self.subjects, strict=True):
            handle = transport.extend(subject.handles[place], visibility / SECOND)
            told = None if renewed is None else self.told(renewed)
            assert (None if handle is None else self.shown(subject, handle)) == told
        if renewed is not None:
            self.instants.append(renewed.deadline)

    @precondition(lambda self: self.leases)
    @rule(picks=st.lists(PICKS, max_size=5))
    def ack_batch(self, picks: list[int]) -> None:
        places = [-1 - pick % len(self.leases) for pick in picks]
        expected = sum(self.oracle.settle(self.leases[place], "ack") for place in places)
        self.both(lambda t, s: t.ack_batch([s.handles[place] for place in places]), expected)

    @rule(pick=PICKS, verb=st.sampled_from(["ack", "nack", "release", "fail", "retry", "extend", "ack_batch"]))
    def settle_with_a_foreign_lease(self, pick: int, verb: str) -> None:
        """Leases of another store or transport, with equal seqs and tokens, change nothing."""
        for transport, leases in zip(self.transports, self.foreign, strict=True):
            lease = leases[pick % len(leases)]
            if verb == "extend":
                assert transport.extend(lease, 10) is None
            elif verb == "ack_batch":
                assert transport.ack_batch([lease]) == 0
            else:
                assert getattr(transport, verb)(lease) is False

    # -- Control -------------------------------------------------------------------------------------------------------

    @rule(group=SOME_GROUP)
    def suspend(self, group: str | None) -> None:
        expected = self.oracle.suspend(group)
        self.both(lambda t, s: t.suspend(group), expected)

    @rule(group=SOME_GROUP)
    def resume(self, group: str | None) -> None:
        expected = self.oracle.resume(group)
        self.both(lambda t, s: t.resume(group), expected)

    @rule(group=GROUPS)
    def purge(self, group: str) -> None:
        expected = self.oracle.purge(group)
        self.both(lambda t, s: t.purge(group), expected)

    @rule(maximum=st.sampled_from([None, 1, 2]))
    def configure(self, maximum: int | None) -> None:
        self.oracle.max_deliveries = maximum
        for subject in self.subjects:
            subject.store.configure_transport("t", max_deliveries=maximum)

    @rule()
    def sweep(self) -> None:
        expected = self.oracle.sweep()
        self.both(lambda t, s: t.sweep(), expected)

    @precondition(lambda self: self.oracle.letters)
    @rule(picks=st.none() | st.lists(PICKS, max_size=3), position=st.sampled_from(["tail", "original"]))
    def redrive(self, picks: list[int] | None, position: str) -> None:
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

    @precondition(lambda self: self.oracle.letters)
    @rule(pick=PICKS, older_than=st.none() | st.sampled_from([0, 5 * SECOND]))
    def purge_dead(self, pick: int, older_than: int | None) -> None:
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

    # -- Time ----------------------------------------------------------------------------------------------------------

    @rule(pick=PICKS, offset=st.sampled_from([-1, 0, 1]))
    def go_to_a_deadline(self, pick: int, offset: int) -> None:
        """Jump to one microsecond before, to, or one after an instant that means something."""
        coming = sorted({instant + offset for instant in self.instants if instant + offset > self.oracle.now})
        if coming:
            self.at(coming[pick % len(coming)] if pick > 5 else coming[0])

    @rule(step=st.sampled_from([1, SECOND, 7 * SECOND]))
    def let_time_pass(self, step: int) -> None:
        self.at(self.oracle.now + step)

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
        for transport, subject in zip(self.transports, self.subjects, strict=True):
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
TestTransportModel.settings = effort(120)
