"""Asking the store for its figures, and the page they are shown on."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import rota
from rota.testing import ManualClock
from rota.worker import figures, metrics
from rota.worker.figures import Asker, Figures, GroupLag, SourceFigures, Worst
from rota.worker.health import BOUNDS, Counters, SourceHealth, WorkerHealth


class Counted:
    """A store that counts how often it is asked, and may take its time."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def now(self) -> float:
        return 5.0

    def queue(self, name: str) -> Any:
        return self

    def stats(self) -> Any:
        self.asked += 1
        self.go_on.wait(10)
        return SimpleNamespace(pending=self.asked)


def asker(store: Any) -> Asker:
    one = Asker([("queue", "q")])
    one.bind(store)
    one.start()
    return one


def test_asked_once_a_second_however_often_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counted()
    one = asker(store)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(one.latest(5))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found += [one.latest(5) for _ in range(100)]
    assert store.asked == 1
    assert {each.sources[0].stats.pending for each in found} == {1}
    monkeypatch.setattr(figures, "INTERVAL", 0.0)
    assert one.latest(5).sources[0].stats.pending == 2  # type: ignore[union-attr]
    one.close()


def test_nobody_waits_long_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counted()
    one = asker(store)
    assert one.latest(5) is not None
    store.go_on.clear()
    monkeypatch.setattr(figures, "INTERVAL", 0.0)
    began = time.monotonic()
    # For a moment what it said before still counts.
    assert one.latest(0.05) is not None
    monkeypatch.setattr(figures, "_STALE", 0.0)
    assert one.latest(0.05) is None
    assert time.monotonic() - began < 3
    assert store.asked == 2
    store.go_on.set()
    one.close()


def test_no_store_no_figures() -> None:
    one = asker(None)
    assert one.latest(5) is None
    one.close()


def test_one_that_fails_does_not_hide_the_others() -> None:
    with rota.open("memory://") as store:
        one = Asker([("queue", "bad name\n"), ("queue", "q")])
        one.bind(store)
        one.start()
        got = one.latest(5)
        assert got is not None
        assert (got.error, [source.name for source in got.sources]) == ("ValueError", ["q"])
        one.close()


class TestWorst:
    def test_bounded_and_in_order(self) -> None:
        clock = ManualClock()
        with rota.open("memory://", clock=clock) as store:
            transport = store.transport("t")
            for number in range(25):
                transport.publish(f"g{number:02}", number)
                clock.advance(1)
            found = Worst().look(store, "t")
            assert [lag.group_id for lag in found] == [f"g{number:02}" for number in range(10)]

    def test_more_groups_than_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(figures, "_PAGE", 4)
        monkeypatch.setattr(figures, "WORST_GROUPS", 2)
        clock = ManualClock()
        with rota.open("memory://", clock=clock) as store:
            transport, worst = store.transport("t"), Worst()
            for group in "jihgfedcba":
                transport.publish(group, 1)
                clock.advance(1)
            assert [[lag.group_id for lag in worst.look(store, "t")] for _ in range(3)] == [
                ["d", "c"],
                ["h", "g"],
                ["j", "i"],
            ]
            # What the last lap found stands while the next one has not passed it.
            assert [lag.group_id for lag in worst.look(store, "t")] == ["j", "i"]
            for group in "ij":
                assert transport.purge(group) == 1
            for _ in range(3):
                found = worst.look(store, "t")
            assert [lag.group_id for lag in found] == ["h", "g"]

    def test_a_transport_that_is_not_there(self) -> None:
        with rota.open("memory://") as store:
            assert Worst().look(store, "t") == []


def test_bounds_belong_to_what_they_bound() -> None:
    counters = Counters()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.001, BOUNDS[-1], BOUNDS[-1] + 1):
        counters.took(seconds)
    within = counters.within()
    assert within[0] == (BOUNDS[0], 2)
    assert within[1] == (BOUNDS[1], 3)
    assert within[-2:] == ((BOUNDS[-1], 4), (float("inf"), 5))


def test_page() -> None:
    counters = Counters()
    source = SourceHealth("queue", 'n"\\', 1, *[0] * 11, 1.5, counters.within(), 0.0)
    health = WorkerHealth("idle", "w\n", None, 0, None, (source,))
    lag = GroupLag("a\nb", 3.5)
    stats = rota.TransportStats(1, 1, 0, 0, 0, 1, 0, (), None, None, True)
    figure = Figures([SourceFigures("transport", "t", stats, [lag])], 5.0, 10.0, None)
    text = metrics.page(health, figure, version="1", store_up=True, now=10.5)
    lines = text.splitlines()
    assert 'rota_worker_info{worker_id="w\\n",version="1"} 1' in lines
    assert 'rota_worker_handler_duration_seconds_bucket{kind="queue",name="n\\"\\\\",le="0.001"} 0' in lines
    assert 'rota_worker_handler_duration_seconds_bucket{kind="queue",name="n\\"\\\\",le="+Inf"} 0' in lines
    assert 'rota_worker_handler_duration_seconds_sum{kind="queue",name="n\\"\\\\"} 1.5' in lines
    assert "rota_store_figures_age_seconds 0.5" in lines
    assert 'rota_transport_group_lag_seconds{transport="t",group="a\\nb"} 1.5' in lines
    assert 'rota_transport_suspended{transport="t"} 1' in lines
    assert "rota_worker_start_time_seconds" not in text
    assert "rota_queue_jobs" not in text
