"""Verbs that collide on one job at its deadline: it comes to exactly one end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import rota

from .maintenance import VISIBILITY, maintain
from .processes import ended, python
from .threads import switching_often, together


def wait_until(instant: float) -> None:
    """Until the wall clock, which is the store's, says so."""
    while (rest := instant - time.time()) > 0:
        time.sleep(rest if rest > 0.002 else 0)


def assert_one_end(queue: Any, outcomes: list[tuple[int, bool]]) -> None:
    """True means done and no letter, False means one letter; nothing is left over and nothing is in both places."""
    assert queue.claim_one("C") is None, "a job was handed out after its last attempt"
    letters = Counter(letter.id for letter in queue.dead_letters(limit=100_000))
    for job_id, acked in outcomes:
        record = queue.get_job(job_id)
        assert letters[job_id] == (0 if acked else 1), f"job {job_id}: ack {acked}, {letters[job_id]} letters"
        assert record is None if acked else record.state == "dead"
    assert queue.stats().pending == queue.stats().processing == 0
    found = Counter(acked for _, acked in outcomes)
    print(f"{found[True]} acks landed, {found[False]} were too late")
    assert len(found) == 2, "one side always won: this was no race"


def test_ack_meets_sweep_and_reclaim(url: str, seed: str, rounds: Callable[[int], int]) -> None:
    """Two threads with stores of their own."""
    with rota.open(url) as one, rota.open(url) as two, switching_often():
        queue = one.queue("q", max_attempts=1)
        outcomes: list[tuple[int, bool]] = []
        done: list[bool] = []

        def acker() -> None:
            try:
                for number in range(rounds(200 if one.url.startswith("memory") else 150)):
                    _one_round(queue, number, random.Random(f"{seed}/{number}"), outcomes)
            finally:
                done.append(True)

        _, extra = together(acker, lambda: maintain(two.queue("q", max_attempts=1), lambda: bool(done)))
        time.sleep(2 * VISIBILITY)
        assert extra == 0
        assert_one_end(queue, outcomes)


def _one_round(queue: Any, number: int, chance: random.Random, outcomes: list[tuple[int, bool]]) -> None:
    queue.enqueue(number)
    while (job := queue.claim_one("A", visibility=VISIBILITY)) is None:
        # B has it for a moment and gives it back.
        pass
    wait_until(job.claim_expires_at + chance.uniform(-0.005, 0.005))
    outcomes.append((job.id, job.ack()))


def test_ack_meets_sweep_and_reclaim_of_another_process(
    sqlite_url: str, seed: str, rounds: Callable[[int], int]
) -> None:
    """The same with the maintenance in a process of its own."""
    with rota.open(sqlite_url) as store:
        queue = store.queue("q", max_attempts=1)
        other = python("maintenance", sqlite_url)
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        outcomes: list[tuple[int, bool]] = []
        for number in range(rounds(150)):
            _one_round(queue, number, random.Random(f"{seed}/{number}"), outcomes)
        assert ended(other) == b"0\n"
        time.sleep(2 * VISIBILITY)
        assert_one_end(queue, outcomes)


AGAINST: dict[str, Callable[[Any], Any]] = {
    "claim": lambda queue: lambda: queue.claim_one("w"),
    "ack": lambda queue: queue.claim_one("w").ack,
    "retry": lambda queue: partial(queue.claim_one("w").retry, "no", 0),
    "fail": lambda queue: partial(queue.claim_one("w").fail, "no"),
    "release": lambda queue: queue.claim_one("w").release,
}


@pytest.mark.parametrize("against", AGAINST)
def test_cancel_races(url: str, seed: str, against: str, rounds: Callable[[int], int]) -> None:
    """Cancel against another verb on the same job: what each was told is what has happened."""
    chance = random.Random(seed)
    both = 0
    wins: Counter[str] = Counter()
    with rota.open(url) as one, rota.open(url) as two, switching_often():
        queue, canceller = one.queue("q", keep_done=60, max_attempts=5), two.queue("q")
        gate_delay = [0.0, 0.0]
        for number in range(rounds(500)):
            job_id = queue.enqueue(number)
            verb = AGAINST[against](queue)
            gate_delay[:] = chance.random() * 4e-5, chance.random() * 4e-5

            def work(verb: Any = verb) -> Any:
                _spin(gate_delay[0])
                return verb()

            def cancel(job_id: int = job_id) -> Any:
                _spin(gate_delay[1])
                return canceller.cancel(job_id)

            worked, cancelled = together(work, cancel)
            record = queue.get_job(job_id)
            letters = queue.dead_letters()
            if against in ("ack", "fail"):
                # Both end the job: exactly one of them did.
                assert bool(worked) is not cancelled
                assert (record is None) is cancelled
                assert record is None or record.state == ("done" if against == "ack" else "dead")
            else:
                # A live job can always be cancelled, before or after the other verb.
                assert cancelled is True
                assert record is None
                assert queue.claim_one("w") is None, "it was revived"
                if against == "claim" and worked is not None:
                    assert [worked.heartbeat(), worked.ack(), worked.retry("x"), worked.release()] == [False] * 4
            assert len(letters) == (against == "fail" and not cancelled)
            wins["work" if worked else "cancel"] += 1
            both += bool(worked) and cancelled
            queue.purge_dead("all")
            queue.purge("done")
    print(f"{dict(wins)}, both in one round: {both}")
    assert len(wins) == 2, "one side always won: this was no race"


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_batch_acks_in_different_orders(url: str, seed: str, rounds: Callable[[int], int]) -> None:
    """Overlapping sets in shuffled order, beside a sweep, cancels and claims: no deadlock, each job ends once."""
    chance = random.Random(seed)
    stores = [rota.open(url) for _ in range(6)]
    queues = [store.queue("q") for store in stores]
    for _ in range(rounds(10)):
        ids = queues[0].enqueue_many(range(500))
        assert len(queues[0].claim_batch("w", 500)) == 500
        late = queues[0].enqueue_many(range(100))
        orders = [chance.sample(ids, 400) for _ in range(3)] + [list(ids)]
        cancelled = chance.sample(ids, 60) + late[:50]

        def acks(place: int, order: list[int]) -> int:
            return sum(queues[place].ack_batch(order[start : start + 100], "w") for start in range(0, len(order), 100))

        def cancels(wanted: list[int] = cancelled) -> int:
            return sum(queues[4].cancel(job_id) for job_id in wanted)

        def claims() -> int:
            queues[5].sweep_expired()
            return queues[5].ack_batch(queues[5].claim_batch("x", 50), "x")

        calls: list[Callable[[], int]] = [
            *(lambda place=place, order=order: acks(place, order) for place, order in enumerate(orders)),
            cancels,
            claims,
        ]
        counts = together(*calls)
        counts.append(queues[0].ack_batch(queues[0].claim_batch("w", 1_000), "w"))
        assert sum(counts) == 600
        assert queues[0].stats().pending == queues[0].stats().processing == 0
    for store in stores:
        store.close()


def test_group_batches_in_different_orders(url: str, seed: str, rounds: Callable[[int], int]) -> None:
    """The same over the groups of a transport: ack, nack, renewal and claim cross each other."""
    chance = random.Random(seed)
    stores = [rota.open(url) for _ in range(4)]
    transports = [store.transport("t") for store in stores]
    for _ in range(rounds(10)):
        transports[0].publish_many([(f"g{n}", n) for n in range(200)])
        leases = transports[0].claim_batch("w", 200)
        orders = [chance.sample(range(200), 200) for _ in range(4)]

        def acks(place: int, order: list[int], leases: list[Any] = leases) -> int:
            return sum(
                transports[place].ack_batch([leases[n] for n in order[start : start + 50]])
                for start in range(0, 200, 50)
            )

        def extends(order: list[int], leases: list[Any] = leases) -> int:
            transports[2].extend_batch([leases[n] for n in order], 30)
            return 0

        def nacks(order: list[int], leases: list[Any] = leases) -> int:
            for n in order[:50]:
                leases[n].nack()
            return transports[3].ack_batch(transports[3].claim_batch("x", 20))

        first, second, third, fourth = orders
        counts = together(
            lambda order=first: acks(0, order),
            lambda order=second: acks(1, order),
            lambda order=third: extends(order),
            lambda order=fourth: nacks(order),
        )
        counts.append(transports[0].ack_batch(transports[0].claim_batch("w", 1_000)))
        assert sum(counts) == 200
        assert transports[0].groups() == []
    for store in stores:
        store.close()
