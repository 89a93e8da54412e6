"""Threads: claimers and publishers on one store, everything logged and judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota

from .actors import Claimer, Publisher
from .drain import drain
from .judge import Verdict, judge
from .log import Log
from .threads import PATIENCE, switching_often, together

# Lines in the logs, two for each operation.
ENOUGH = 1_500


def storm(url: str, seed: str, seconds: float, *, one_store: bool = False) -> Verdict:
    """Four claimers and two publishers for so many seconds, then the drain, then the verdict."""
    keeper = rota.open(url)
    stores = [keeper if one_store else rota.open(url) for _ in range(6)]
    logs = [Log(f"claimer-{n}") for n in range(4)] + [Log(f"publisher-{n}") for n in range(2)]
    actors: list[Any] = [Claimer(stores[n], logs[n], f"{seed}/{n}") for n in range(4)]
    actors += [Publisher(stores[n], logs[n], f"{seed}/{n}") for n in (4, 5)]
    stop = threading.Event()
    with switching_often():
        together(
            *(lambda actor=actor: actor.run(stop) for actor in actors),
            lambda: tell_when_over(stop, seconds, logs),
        )
    last = Log("drain")
    rest, dead = drain(keeper, last)
    for store in {keeper, *stores}:
        store.close()
    records = [record for log in (*logs, last) for record in log.records]
    return judge(records, rest=rest, dead=dead)


def tell_when_over(stop: threading.Event, seconds: float, logs: list[Log]) -> None:
    """A race in which little happened shows little: a machine that is busy gets more time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until or sum(len(log.records) for log in logs) < ENOUGH:
        if time.monotonic() > until + PATIENCE / 2:
            break
        time.sleep(0.05)
    stop.set()


@pytest.mark.parametrize("one_store", [False, True], ids=["own stores", "one store"])
def test_storm_of_threads(url: str, seed: str, span: Callable[[float], float], one_store: bool) -> None:
    """Lost, unexpected, overlapping, inverted, stale, stranded, unexplained, regressed: none."""
    verdict = storm(url, seed, span(1), one_store=one_store)
    print(verdict.figures)
    assert verdict.faults() == {}
    assert verdict.figures["claims"] > 150
    assert verdict.figures["explained duplicates"] > 15
    assert verdict.figures["dead"] > 0
