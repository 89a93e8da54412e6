"""The loop under ``rota work`` when the store fails: settlements and heartbeats that do not come through."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rota.cli.work_beats import Beats
from rota.cli.work_items import Left
from rota.cli.work_loop import Plan, Stop, Work
from rota.errors import EngineBusy, EngineUnavailable, RotaError, SchemaMismatch


class FakeHeld:
    """A held item whose settlements are scripted."""

    def __init__(self, source: FakeSource, label: str, ack: Callable[[], bool], visibility: float) -> None:
        self.source: Any = source
        self.label = label
        self.payload = 1
        self.visibility = visibility
        self.valid_until = time.monotonic() + visibility
        self.last_attempt = False
        self.ack = ack
        self.settled: list[str] = []

    def variables(self) -> dict[str, str]:
        return {}

    def retry(self, error: str) -> bool:
        self.settled.append(error)
        return True

    def fail(self, error: str) -> bool:
        raise AssertionError("nothing fails here")

    def release(self) -> bool:
        self.settled.append("released")
        return True


class FakeSource:
    """Hands out scripted items; its heartbeats may fail."""

    label = "queue:fake"

    def __init__(self) -> None:
        self.ready: list[Any] = []
        self.beats: list[float] = []
        self.beat: Callable[[], bool] = lambda: True
        self.claims = 0
        self.before_claim: Callable[[], None] = lambda: None

    def claim(self, worker: str, n: int, wait: float) -> Sequence[Any]:
        self.claims += 1
        self.before_claim()
        taken, self.ready = self.ready[:n], self.ready[n:]
        return taken

    def extend(self, held: Sequence[Any]) -> list[bool]:
        self.beats.append(time.monotonic())
        return [self.beat() for _ in held]

    def sweep(self) -> None:
        pass

    def left(self) -> Left:
        return Left.WAITING if self.ready else Left.NOTHING


class Failing:
    """A verb that fails so many times before it succeeds."""

    def __init__(self, times: float, error: RotaError) -> None:
        self.calls = 0
        self._times = times
        self._error = error

    def __call__(self) -> bool:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return True


def work(source: FakeSource, command: list[str], stop: Stop | None = None) -> tuple[Work, list[str]]:
    told: list[str] = []
    plan = Plan(
        command=command,
        worker="w",
        parallel=2,
        drain=True,
        at_most=None,
        timeout=None,
        grace=5,
        raw=False,
        url="memory://",
    )
    return Work(plan, [source], stop or Stop(), lambda kind, text: told.append(text)), told


def test_an_ack_that_fails_once_is_tried_again_within_the_claim() -> None:
    source = FakeSource()
    ack = Failing(2, EngineBusy("locked"))
    source.ready = [FakeHeld(source, "job 1", ack, visibility=5)]
    loop, _ = work(source, ["/bin/true"])
    loop.run()
    assert ack.calls == 3
    assert loop.counts["acked"] == 1


def test_an_ack_that_fails_for_ever_lets_the_claim_lapse_and_the_rest_goes_on() -> None:
    source = FakeSource()
    ack = Failing(float("inf"), EngineUnavailable("gone"))
    source.ready = [FakeHeld(source, "job 1", ack, visibility=1.0)]
    source.ready += [FakeHeld(source, f"job {number}", lambda: True, visibility=1.0) for number in range(2, 8)]
    loop, told = work(source, ["/bin/true"])
    begin = time.monotonic()
    loop.run()
    assert time.monotonic() - begin < 3
    assert loop.counts["acked"] == 6
    assert loop.counts["lost"] == 1
    assert len([text for text in told if "could not be recorded" in text]) == 1
    assert source.beats == [], "it is not renewed while its settlement fails"


def test_a_claim_that_cannot_be_asked_for_now_is_asked_for_again() -> None:
    source = FakeSource()
    source.ready = [FakeHeld(source, "job 1", lambda: True, visibility=5)]
    source.before_claim = Failing(2, EngineBusy("locked"))  # type: ignore[assignment]
    loop, told = work(source, ["/bin/true"])
    loop.run()
    assert loop.counts["acked"] == 1
    assert told.count("the store does not answer, trying again: locked") == 1


def test_what_does_not_pass_by_itself_ends_the_work() -> None:
    source = FakeSource()
    source.before_claim = Failing(1, SchemaMismatch("other version"))  # type: ignore[assignment]
    loop, _ = work(source, ["/bin/true"])
    with pytest.raises(SchemaMismatch):
        loop.run()


def test_what_was_claimed_in_the_moment_of_the_signal_is_given_back() -> None:
    source, stop = FakeSource(), Stop()
    held = FakeHeld(source, "job 1", lambda: True, visibility=5)
    source.ready = [held]

    def signal_arrives() -> None:
        stop.count, stop.number = 1, 15

    source.before_claim = signal_arrives
    loop, _ = work(source, ["/bin/true"], stop)
    loop.run()
    assert held.settled == ["released"]
    assert source.claims == 1


# -- Heartbeats ------------------------------------------------------------------------------------------------------


def test_beats_come_at_a_third_of_the_visibility_and_survive_a_failure() -> None:
    source = FakeSource()
    lost: list[Any] = []
    told: list[str] = []
    source.beat = Failing(1, EngineBusy("locked"))
    beats = Beats(lost.append, told.append)
    held: Any = FakeHeld(source, "job 1", lambda: True, visibility=0.6)
    begin = time.monotonic()
    beats.add(held)
    time.sleep(1.5)
    beats.remove(held)
    times = [begin, *source.beats]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(gaps) >= 5
    # A little slack for a busy machine; on an idle one they come at 0.18 s.
    assert max(gaps) <= 0.6 / 3 + 0.1
    assert lost == []
    assert len(told) == 1
    count = len(source.beats)
    time.sleep(0.4)
    assert len(source.beats) == count, "none after it was taken back"
    beats.close()


def test_a_lost_claim_is_told_once() -> None:
    source = FakeSource()
    source.beat = lambda: False
    told = threading.Event()
    lost: list[Any] = []

    def on_lost(held: Any) -> None:
        lost.append(held)
        told.set()

    beats = Beats(on_lost, lambda text: None)
    held: Any = FakeHeld(source, "job 1", lambda: True, visibility=0.3)
    beats.add(held)
    assert told.wait(5)
    time.sleep(0.3)
    beats.close()
    assert lost == [held]
    assert len(source.beats) == 1
