"""ManualClock and where an engine gets its time (C3, C4)."""

from __future__ import annotations

import gc
import threading
import time
from datetime import UTC, datetime

import pytest

from rota.clock import SteeredClock, microseconds_of, wall_clock
from rota.testing import ManualClock


def test_it_moves_only_when_told() -> None:
    clock = ManualClock(100)
    assert clock.now() == clock.now() == 100.0
    clock.advance(0.000001)
    assert clock.now_microseconds() == 100_000_001
    clock.advance(-1)
    assert clock.now_microseconds() == 99_000_001
    clock.set(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))
    assert clock.now() == 5.0


@pytest.mark.parametrize("step", [4e12, -4e12, 1e308])
def test_it_stays_within_what_an_engine_can_store(step: float) -> None:
    clock = ManualClock(3e12 if step > 0 else -3e12)
    with pytest.raises(ValueError, match="seconds"):
        clock.advance(step)
    assert abs(clock.now()) == 3e12


def test_many_small_steps_do_not_drift() -> None:
    clock = ManualClock(0)
    for _ in range(1_000):
        clock.advance(0.1)
    assert clock.now_microseconds() == 100_000_000


@pytest.mark.parametrize("value", ["1", None, True])
def test_it_takes_what_the_library_takes(value: object) -> None:
    with pytest.raises(TypeError):
        ManualClock(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ManualClock().advance(value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="aware"):
        ManualClock().set(datetime(2024, 1, 1))


def test_a_jump_never_goes_back() -> None:
    clock = ManualClock(10)
    clock.jump_to(5_000_000)
    assert clock.now() == 10.0
    clock.jump_to(11_000_000)
    assert clock.now() == 11.0


class Listener:
    def __init__(self) -> None:
        self.heard = 0

    def moved(self) -> None:
        self.heard += 1


def test_moving_tells_those_who_listen_while_they_live() -> None:
    clock, listener = ManualClock(), Listener()
    clock.subscribe(listener.moved)
    clock.advance(1)
    clock.set(0)
    clock.jump_to(5_000_000)
    assert listener.heard == 3
    del listener
    gc.collect()
    clock.advance(1)
    assert clock._callbacks == []


def test_threads_may_move_it_at_once() -> None:
    clock = ManualClock(0)
    threads = [threading.Thread(target=lambda: [clock.advance(1) for _ in range(1_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == 4_000.0


def test_where_an_engine_gets_now() -> None:
    assert abs(microseconds_of(None)() - time.time() * 10**6) < 5 * 10**6
    assert abs(wall_clock() - time.time() * 10**6) < 5 * 10**6
    clock = ManualClock(7)
    assert isinstance(clock, SteeredClock)
    assert microseconds_of(clock)() == 7_000_000

    class Plain:
        def now(self) -> float:
            return 1.0000005

    assert microseconds_of(Plain())() in (1_000_000, 1_000_001)
    with pytest.raises(TypeError, match="now"):
        microseconds_of(5)  # type: ignore[arg-type]
