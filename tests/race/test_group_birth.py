"""Publishing while the last message of the group is being settled: nothing is stranded (T10)."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota

from .births import put_and_take
from .processes import ended, python
from .threads import PATIENCE, switching_often, together

# However slow the disk is.
FEWEST = 10

ENDINGS: dict[str, Callable[[Any, Any], bool]] = {
    "ack": lambda transport, lease: bool(lease.ack()),
    "ack_batch": lambda transport, lease: transport.ack_batch([lease]) == 1,
    "fail": lambda transport, lease: bool(lease.fail("meant to")),
    "purge": lambda transport, lease: transport.purge(lease.group_id) >= 1,
}


def race(settler: Any, publisher: Any, ending: str, seed: str, rounds: int, seconds: float) -> int:
    """Each round one thread settles a group's only message while the other one publishes the next into it.

    After every round exactly the new message must be claimable (a purge may have taken it too). Returns the number
    of rounds.
    """
    chance = random.Random(seed)
    gate = threading.Barrier(2)
    until = time.monotonic() + seconds
    over = False
    done = 0
    pauses = [0.0, 0.0]

    def publish() -> None:
        for number in itertools.count():
            gate.wait(PATIENCE)
            if over:
                return
            _spin(pauses[1])
            publisher.publish("g", number)
            gate.wait(PATIENCE)

    def settle() -> None:
        nonlocal over, done
        settler.publish("g", "first")
        lease = settler.claim("w")
        expected = "first"
        while True:
            assert lease is not None, f"{ending}, round {done}: the message is stranded, {settler.peek('g', 9)}"
            assert lease.event == expected
            over = done == rounds or (done >= FEWEST and time.monotonic() > until)
            pauses[:] = [chance.random() * 3e-5, chance.random() * 3e-5]
            gate.wait(PATIENCE)
            if over:
                return
            _spin(pauses[0])
            assert ENDINGS[ending](settler, lease)
            gate.wait(PATIENCE)
            expected = done
            done += 1
            lease = settler.claim("w")
            if lease is None and ending == "purge" and not settler.peek("g", 9):
                settler.publish("g", "again")
                lease, expected = settler.claim("w"), "again"

    def aborting(work: Callable[[], None]) -> Callable[[], None]:
        """Whoever fails does not leave the other one waiting."""

        def run() -> None:
            try:
                work()
            except BaseException:
                gate.abort()
                raise

        return run

    together(aborting(settle), aborting(publish))
    return done


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.parametrize("ending", ENDINGS)
def test_publish_races_the_last_settlement(
    engine: str, url: str, ending: str, seed: str, span: Callable[[float], float], rounds: Callable[[int], int]
) -> None:
    """Two threads, each with a store of its own."""
    wanted = rounds(20_000 if engine == "memory" else 4_000)
    with rota.open(url) as one, rota.open(url) as two, switching_often():
        done = race(one.transport("t"), two.transport("t"), ending, seed, wanted, span(1.2 if ending == "ack" else 0.6))
    print(f"{done} rounds")
    assert done >= min(wanted, FEWEST)


def test_two_ends_and_two_births_at_once(engine: str, url: str, seed: str, span: Callable[[float], float]) -> None:
    """Several threads publish into few groups and settle what they find, without taking turns: all of it comes."""
    stores = [rota.open(url) for _ in range(4)]
    until = time.monotonic() + span(1)
    with switching_often():
        counts = together(
            *(
                lambda store=store, place=place: put_and_take(
                    store.transport("t"), f"{seed}/{place}", lambda: time.monotonic() > until
                )
                for place, store in enumerate(stores)
            )
        )
    assert_all_came(stores[0].transport("t"), counts)
    for store in stores:
        store.close()


def test_two_ends_and_two_births_in_processes(sqlite_url: str, seed: str, span: Callable[[float], float]) -> None:
    """The same in processes of their own."""
    with rota.open(sqlite_url) as store:
        working = [python("births", sqlite_url, f"{seed}/{place}") for place in range(3)]
        time.sleep(span(1.5))
        counts = [tuple(json.loads(ended(one))) for one in working]
        assert_all_came(store.transport("t"), counts)


def assert_all_came(transport: Any, counts: list[Any]) -> None:
    """What was published by all was taken by all, or is there to be taken; then nothing is left."""
    put, taken = map(sum, zip(*counts, strict=True))
    while (lease := transport.claim("w")) is not None:
        assert lease.ack()
        taken += 1
    print(f"{put} messages")
    assert taken == put > 20
    assert transport.groups() == []
