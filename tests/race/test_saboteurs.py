"""Engines with one fault planted: the races must fail on each of them, or they prove nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import rota
from rota.records import JobClaim, LeaseClaim

from .actors import Claimer, Publisher
from .drain import drain
from .judge import Verdict, judge
from .log import Log
from .test_group_birth import race as birth
from .threads import together


class Planted:
    """Stands before a transport's or queue's engine and does one verb wrong."""

    def __init__(self, engine: Any, wrong: dict[str, Callable[..., Any]]) -> None:
        self._engine = engine
        self._wrong = wrong
        self._lock = threading.Lock()
        self.latest: dict[Any, Any] = {}
        self.looks = 0

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._engine, verb)
        if verb == "claim":
            return lambda *args: self._remember(self._wrong.get("claim", _as_it_is)(self, real, *args))
        if verb in self._wrong:
            return lambda *args: self._wrong[verb](self, real, *args)
        return real

    def _remember(self, claims: list[Any]) -> list[Any]:
        with self._lock:
            for claim in claims:
                self.latest[_scope(claim)] = claim
        return claims

    def current(self, claim: Any) -> Any:
        """The newest claim of the same group or job, whoever holds it."""
        with self._lock:
            return self.latest.get(_scope(claim), claim)


def _scope(claim: Any) -> Any:
    return claim.group_id if isinstance(claim, LeaseClaim) else claim.id


def _as_it_is(planted: Planted, real: Callable[..., Any], *args: Any) -> Any:
    return real(*args)


# -- The faults --------------------------------------------------------------------------------------------------------


def ignore_the_token(planted: Planted, real: Callable[..., Any], claim: Any, *rest: Any) -> Any:
    """Settles whatever claim is the current one: the fence is gone."""
    current = planted.current(claim)
    if isinstance(claim, JobClaim) or current.seq == claim.seq:
        return real(current, *rest)
    return real(claim, *rest)


def say_true_to_everybody(planted: Planted, real: Callable[..., Any], *args: Any) -> Any:
    """An ack that is not asked whether it was valid."""
    real(*args)
    return True


def hand_out_twice(planted: Planted, real: Callable[..., Any], *args: Any) -> Any:
    """A claim that looks at what is free before it holds the lock: two callers get one item."""
    claims = real(*args)
    planted.looks += 1
    if not claims and planted.latest and planted.looks % 10 == 0:
        with planted._lock:
            claims = [next(reversed(planted.latest.values()))]
    return claims


def tokens_from_the_clock(planted: Planted, real: Callable[..., Any], *args: Any) -> Any:
    """A fence that is not a counter."""
    return [claim._replace(token=claim.token % 7) for claim in real(*args)]


def keep_the_last(planted: Planted, real: Callable[..., Any], claim: Any, *rest: Any) -> Any:
    """Now and then an ack that only says it did."""
    if claim.token % 10 == 0:
        return True
    return real(claim, *rest)


def count_no_deliveries(planted: Planted, real: Callable[..., Any], *args: Any) -> Any:
    """Reclaims that are not counted."""
    field = "deliveries" if hasattr(planted._engine, "publish") else "attempts"
    return [claim._replace(**{field: 1}) for claim in real(*args)]


# So many short storms are allowed to find a fault; on an idle machine the first or second does.
LONGEST = 10

FAULTS: dict[str, tuple[str, Callable[..., Any], set[str]]] = {
    "ignores the token": ("ack", ignore_the_token, {"stale"}),
    "answers True to everybody": ("ack", say_true_to_everybody, {"stale"}),
    "acks without doing so": ("ack", keep_the_last, {"unexplained", "revived", "stale"}),
    "hands out twice": ("claim", hand_out_twice, {"overlapping", "regressed", "unexplained"}),
    "tokens that repeat": ("claim", tokens_from_the_clock, {"regressed"}),
    "does not count": ("claim", count_no_deliveries, {"miscounted"}),
}


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch, mechanism: str, verb: str, fault: Callable[..., Any]) -> Iterator[None]:
    """Every handle made meanwhile works on an engine with the fault."""
    from rota.facade.core import Core

    real = getattr(Core, mechanism)
    made: dict[tuple[Any, str], Planted] = {}

    def faulty(core: Any, name: str, *declared: Any) -> Any:
        return made.setdefault((core, name), Planted(real(core, name, *declared), {verb: fault}))

    with monkeypatch.context() as changed:
        changed.setattr(Core, mechanism, faulty)
        yield


def short_storm(seed: str, seconds: float) -> Verdict:
    """The thread storm on one memory store, shortened."""
    with rota.open("memory://?codec=json") as store:
        logs = [Log(f"actor-{n}") for n in range(4)]
        actors: list[Any] = [Claimer(store, logs[n], f"{seed}/{n}", 0.05) for n in range(3)]
        actors.append(Publisher(store, logs[3], f"{seed}/3", 0.001))
        stop = threading.Event()
        timer = threading.Timer(seconds, stop.set)
        timer.start()
        together(*(lambda actor=actor: actor.run(stop) for actor in actors))
        last = Log("drain")
        rest, dead = drain(store, last, patience=0.3, limit=0.4)
        return judge([record for log in (*logs, last) for record in log.records], rest=rest, dead=dead)


def test_judge_acquits_the_same_storm_without_a_fault(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    """With a stand-in that does nothing wrong: what the faults below show is the faults'."""
    for mechanism in ("transport", "queue"):
        with planted(monkeypatch, mechanism, "ack", _as_it_is):
            assert short_storm(seed, 0.4).faults() == {}


@pytest.mark.parametrize("mechanism", ["transport", "queue"])
@pytest.mark.parametrize("fault", FAULTS)
def test_judge_catches_an_engine_that(monkeypatch: pytest.MonkeyPatch, seed: str, mechanism: str, fault: str) -> None:
    """The storm names one of the kinds that the fault must lead to."""
    verb, wrong, kinds = FAULTS[fault]
    with planted(monkeypatch, mechanism, verb, wrong):
        assert_caught(kinds, seed)


def assert_caught(kinds: set[str], seed: str) -> None:
    """Within a few short storms."""
    caught: set[str] = set()
    for number in range(LONGEST):
        caught |= set(short_storm(f"{seed}/{number}", 0.3).faults())
        if kinds & caught:
            return
    pytest.fail(f"not caught as {kinds}, only as {caught}")


# -- The other races ---------------------------------------------------------------------------------------------------


def forget_the_newcomer(planted: Planted, real: Callable[..., Any], claim: Any) -> Any:
    """An ack that finds the group empty, and deletes it a moment later with the message that came meanwhile."""
    done = real(claim)
    if done and not planted._engine.peek(claim.group_id, 1):
        time.sleep(0.0005)
        planted._engine.purge(claim.group_id)
    return done


def lose_a_write(planted: Planted, real: Callable[..., Any], group_id: str, *rest: Any) -> Any:
    """A publish that was confirmed and is gone."""
    seq = real(group_id, *rest)
    if seq % 50 == 0:
        planted._engine.purge(group_id)
    return seq


def test_race_of_birth_catches_a_group_deleted_after_a_publish(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    """The fault that T10 is about."""
    with (
        planted(monkeypatch, "transport", "ack", forget_the_newcomer),
        rota.open("memory://?codec=json") as store,
        pytest.raises(AssertionError, match="stranded"),
    ):
        birth(store.transport("t"), store.transport("t"), "ack", seed, 2_000, 5.0)


def test_judge_catches_a_confirmed_write_that_is_gone(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    """Lost is lost, whoever is asked afterwards."""
    with planted(monkeypatch, "transport", "publish", lose_a_write):
        assert_caught({"lost"}, seed)
