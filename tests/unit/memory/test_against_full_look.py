"""Random runs, clock steps back included: what the indexed engine hands out equals what a look at everything says."""

from __future__ import annotations

import random

import pytest

from rota import rules
from rota.records import JobClaim, LeaseClaim

from .bench import Bench, job, stamp


def expected_jobs(q, now: int, n: int) -> tuple[list[int], set[int]]:
    ready, exhausted = [], set()
    for row in q.jobs(None, 10_000, None):
        if rules.claimable(row.state, row.run_at, row.claim_expires_at, row.expires_at, now):
            if row.state == "processing" and rules.exhausted(row.attempts, row.stamp.max_attempts):
                exhausted.add(row.id)
            else:
                ready.append((-row.priority, row.run_at, row.id))
    return [number for _, _, number in sorted(ready)][:n], exhausted


@pytest.mark.parametrize("seed", range(25))
def test_queue(seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench()
    q = bench.queue()
    claims: list[JobClaim] = []
    for _ in range(400):
        bench.now += chance.choice((0, 0, 1, 1, 2, 5, 20, -1, -8))
        verb = chance.randrange(9)
        claim = chance.choice(claims) if claims else None
        if verb <= 1:
            options = {"priority": chance.randrange(3), "delay": chance.choice((None, 0, -3, 4, 15))}
            options["expires"] = chance.choice((None, None, 0, 12))
            q.enqueue(job(stamp=stamp(max_attempts=chance.randrange(1, 4)), **options))
        elif verb <= 3:
            n = chance.randrange(4)
            want, exhausted = expected_jobs(q, bench.now, n)
            assert [row.id for row in q.peek(n)] == want
            got = q.claim(chance.choice("vw"), n, chance.choice((1, 5, 9)))
            assert [item.id for item in got] == want
            assert all(q.get_job(number).state == "dead" for number in exhausted)
            claims += got
        elif verb == 4:
            due = q.next_due()
            instants = [
                row.run_at if row.state == "pending" else row.claim_expires_at + 1
                for row in q.jobs(None, 10_000, None)
                if row.state in ("pending", "processing")
                and not rules.expired(row.expires_at, bench.now)
                and not (row.state == "processing" and rules.exhausted(row.attempts, row.stamp.max_attempts))
            ]
            later = [instant for instant in instants if instant > bench.now]
            assert due is None or due > bench.now
            assert not later or (due is not None and due <= min(later))
        elif claim is not None:
            row = q.get_job(claim.id)
            valid = (
                row is not None
                and row.state == "processing"
                and row.attempts == claim.attempts
                and row.claimed_at == claim.claimed_at
                and row.worker_id == claim.worker_id
                and row.claim_expires_at >= bench.now
            )
            newest = max((other for other in claims if other.id == claim.id), key=lambda other: other.token)
            valid = valid and newest.token == claim.token
            if verb == 5:
                assert q.ack(claim, None) == valid
            elif verb == 6:
                assert q.retry(claim, None, chance.choice((0, -2, 6))) == valid
            elif verb == 7:
                assert (q.heartbeat([claim], chance.choice((1, 4, 30))) != [None]) == valid
            else:
                assert q.release(claim, chance.choice((None, 3))) == valid
        if chance.random() < 0.01:
            q.sweep_expired()
        counts = [row.state for row in q.jobs(None, 10_000, None)]
        stats = q.stats()
        assert (stats.pending, stats.processing) == (counts.count("pending"), counts.count("processing"))
    bench.now += 10_000
    q.sweep_expired()
    while q.claim("w", 50, 1):
        bench.now += 10
    q.purge_dead(None, None)
    assert bench.engine.shared.items == 0 == len(q.jobs(None, 9, None))


@pytest.mark.parametrize("new_groups", ["first", "last"])
@pytest.mark.parametrize("seed", range(20))
def test_transport(seed: int, new_groups: str) -> None:
    chance = random.Random(seed)
    bench = Bench()
    t = bench.transport(new_groups=new_groups)
    claims: list[LeaseClaim] = []
    turns: dict[str, tuple[int, int]] = {}
    ticks = iter(range(1, 10**9))
    for _ in range(400):
        bench.now += chance.choice((0, 0, 1, 1, 2, 5, 20, -1, -8))
        verb = chance.randrange(9)
        claim = chance.choice(claims) if claims else None
        group = f"g{chance.randrange(6)}"
        if verb <= 1:
            known = {row.group_id for row in t.groups(None, 99, None)}
            seq = t.publish(group, None, chance.randrange(3), None, None)
            if group not in known:
                turns[group] = (0, seq) if new_groups == "first" else (1, next(ticks))
        elif verb <= 4:
            floor = chance.choice((None, 1, 2))
            ready = [row for row in t.groups("ready", 99, None) if floor is None or row.priority >= floor]
            want = sorted((row.group_id for row in ready), key=turns.__getitem__)[: chance.randrange(1, 4)]
            got = t.claim("w", max(len(want), 1), chance.choice((1, 5, 9)), floor)
            assert [item.group_id for item in got] == want
            for item in got:
                turns[item.group_id] = (1, next(ticks))
            claims += got
            held = [row.until + 1 for row in t.groups(None, 99, None) if row.until is not None]
            due = t.next_due()
            assert not held or (due is not None and bench.now < due <= min(held))
        elif verb == 5:
            chance.choice((t.suspend, t.resume))(group)
        elif claim is not None:
            if verb == 6:
                t.ack(claim)
            elif verb == 7:
                t.nack(claim, chance.choice((0, 6)), None)
            else:
                t.extend([claim], chance.choice((1, 4, 30)))
    for number in range(6):
        t.resume(f"g{number}")
    bench.now += 10_000
    left = t.stats().messages
    while got := t.claim("w", 9, 10, None):
        left -= t.ack_batch(got)
    assert left == 0 == t.stats().groups == bench.engine.shared.items
