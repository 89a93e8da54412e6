"""C9: a clock that steps back and forth. Only safety is judged: no two valid claims, nothing lost, tokens grow."""

from __future__ import annotations

import random
from typing import Any

import pytest

from model.subjects import SECOND, START, Subjects, clock_at_start, engines, walks

MOVES = (-3_600 * SECOND, -10 * SECOND, -SECOND, -1, 0, 1, SECOND, 10 * SECOND, 3_600 * SECOND)


class Ends:
    """What became of each item: at most one end, and an end is for good."""

    def __init__(self) -> None:
        self.of: dict[Any, str] = {}

    def note(self, item: Any, end: str) -> None:
        assert item not in self.of, f"{item} ended twice: {self.of[item]}, then {end}"
        self.of[item] = end


def settle(chance: random.Random, handle: Any, item: Any, ends: Ends) -> bool:
    """One settlement by whoever holds the handle; whether it was accepted."""
    verb = chance.choice(("ack", "ack", "fail", "retry", "release"))
    done: bool = handle.retry(delay=chance.choice((0, 1))) if verb == "retry" else getattr(handle, verb)()
    if done and verb in ("ack", "fail"):
        ends.note(item, verb)
    return done


class Trace:
    """One queue or transport under one clock: who holds what, and which tokens were seen."""

    def __init__(self, seed: int, name: str) -> None:
        self.chance = random.Random(seed)
        self.name = name
        self.clock = clock_at_start()
        self.now = START
        self.subjects = Subjects(self.clock, steady=False)
        self.store = next(subject.store for subject in self.subjects if subject.name == name)
        self.ends = Ends()
        self.handles: list[tuple[Any, Any]] = []
        self.newest: dict[Any, int] = {}
        self.last_token = 0

    def step_clock(self) -> None:
        self.now += self.chance.choice(MOVES)
        self.clock.set(self.now / SECOND)

    def took(self, item: Any, handle: Any, fence: Any) -> None:
        """A new claim: a token never seen, of an item that has not ended."""
        assert handle.token > self.last_token, f"{self.name}: token {handle.token} after {self.last_token}"
        assert item not in self.ends.of, f"{self.name}: {item} was handed out after its end"
        self.last_token = self.newest[fence] = handle.token
        self.handles.append((item, handle))

    def settle_any(self, fence_of: Any) -> None:
        """Old handles included: only the newest claim of its fence may be accepted."""
        if not self.handles:
            return
        item, handle = self.chance.choice(self.handles[-12:])
        accepted = settle(self.chance, handle, item, self.ends)
        if accepted:
            assert handle.token == self.newest[fence_of(handle)], f"{self.name}: an older claim of {item} was accepted"
            self.handles.remove((item, handle))

    def close(self) -> None:
        self.subjects.close()


@pytest.mark.parametrize("name", engines())
@pytest.mark.parametrize("seed", walks(12))
def test_C9_a_queue_stays_safe(seed: int, name: str) -> None:
    trace = Trace(seed, name)
    queue = trace.store.queue("q", visibility=5, max_attempts=10**6)
    known: list[int] = []
    for _ in range(250):
        what = trace.chance.choice(("enqueue", "claim", "claim", "settle", "settle", "clock"))
        if what == "enqueue":
            known.append(queue.enqueue(1, delay=trace.chance.choice((None, None, 1, -1)), priority=len(known) % 2))
        elif what == "claim":
            for job in queue.claim_batch("w", trace.chance.choice((1, 3))):
                trace.took(job.id, job, job.id)
        elif what == "settle":
            trace.settle_any(lambda job: job.id)
        else:
            trace.step_clock()
    # Later than anything was ever told, whatever is left comes back.
    trace.clock.set((trace.now + 10**8 * SECOND) / SECOND)
    while (job := queue.claim_one("w")) is not None:
        assert job.ack()
        trace.ends.note(job.id, "ack")
    assert sorted(trace.ends.of) == known, "jobs were lost"
    dead = sorted(letter.id for letter in queue.dead_letters(10**6))
    assert dead == sorted(id for id, end in trace.ends.of.items() if end == "fail")
    trace.close()


@pytest.mark.parametrize("name", engines())
@pytest.mark.parametrize("seed", walks(12))
def test_C9_a_transport_stays_safe(seed: int, name: str) -> None:
    trace = Trace(seed, name)
    transport = trace.store.transport("t")
    known: list[int] = []
    group_of: dict[int, str] = {}
    for _ in range(250):
        what = trace.chance.choice(("publish", "claim", "claim", "settle", "settle", "clock"))
        if what == "publish":
            group = trace.chance.choice("abc")
            known.append(transport.publish(group, 1))
            group_of[known[-1]] = group
        elif what == "claim":
            for lease in transport.claim_batch("w", trace.chance.choice((1, 3)), 5):
                # T2: nothing of the group with a lower seq is still there.
                earlier = [seq for seq in known if seq < lease.seq and group_of[seq] == lease.group_id]
                assert all(seq in trace.ends.of for seq in earlier), f"{lease.seq} overtook an earlier message"
                trace.took(lease.seq, lease, lease.group_id)
        elif what == "settle":
            trace.settle_any(lambda lease: lease.group_id)
        else:
            trace.step_clock()
    trace.clock.set((trace.now + 10**8 * SECOND) / SECOND)
    while (lease := transport.claim("w")) is not None:
        assert lease.ack()
        trace.ends.note(lease.seq, "ack")
    assert sorted(trace.ends.of) == known, "messages were lost"
    trace.close()
