"""Naive times, zones and changes of summer time (rq/rq PR 2475 and 1258).

The zones are POSIX rules and a ``tzinfo`` of our own, so that the test needs no zone database.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest

from rota.testing import ManualClock

from .steps import MICROSECOND

ZONES = {
    "UTC": "UTC0",
    "Sydney": "AEST-10AEDT,M10.1.0,M4.1.0/3",
    "Santiago": "<-04>4<-03>,M9.1.6/24,M4.1.6/24",
    "Madrid": "CET-1CEST,M3.5.0,M10.5.0/3",
    "Lord Howe": "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
}


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone of this process."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", ZONES[request.param])
        time.tzset()
        yield str(request.param)
    time.tzset()


class Madrid(tzinfo):
    """Summer time from the last Sunday of March to that of October, at 01:00 UTC, with the fold told apart."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1) + self.dst(moment)

    def dst(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        local = moment.replace(tzinfo=None, fold=0)
        begin, end = _last_sunday(local.year, 3, 2), _last_sunday(local.year, 10, 3)
        # In the gap fold 0 still counts by the old offset, fold 1 by the new one; in the overlap it is the same.
        summer_from = begin if moment.fold else begin + timedelta(hours=1)
        summer_to = end - timedelta(hours=1) if moment.fold else end
        return timedelta(hours=1) if summer_from <= local < summer_to else timedelta(0)

    def fromutc(self, moment: datetime) -> datetime:
        utc = moment.replace(tzinfo=None)
        begin, end = _last_sunday(utc.year, 3, 1), _last_sunday(utc.year, 10, 1)
        offset = timedelta(hours=2 if begin <= utc < end else 1)
        return (moment + offset).replace(fold=int(end <= utc < end + timedelta(hours=1)))

    def tzname(self, moment: datetime | None) -> str:
        return "CEST" if self.dst(moment) else "CET"


def _last_sunday(year: int, month: int, hour: int) -> datetime:
    day = datetime(year, month, 31, hour)
    return day - timedelta(days=(day.weekday() + 1) % 7)


INSTANTS = [
    datetime(2024, 1, 15, 12, 30, 0, 123456, tzinfo=UTC),
    datetime(2024, 3, 31, 0, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 0, tzinfo=UTC),
    datetime(2024, 4, 6, 15, 30, tzinfo=UTC),
    datetime(2024, 7, 15, 12, 0, tzinfo=UTC),
    datetime(2024, 10, 5, 16, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
]


def test_one_instant_is_one_instant(store: Any, clock: ManualClock, zone: str) -> None:
    """Given in UTC, in the process's zone, in another zone or as a number: stored equal, and due exactly then."""
    for number, instant in enumerate(INSTANTS):
        queue = store.queue(f"q{number}")
        forms = [instant, instant.astimezone(), instant.astimezone(Madrid()), instant.timestamp()]
        ids = [queue.enqueue(n, run_at=form) for n, form in enumerate(forms)]
        assert {queue.get_job(id).run_at for id in ids} == {instant.timestamp()}
        clock.set(instant - MICROSECOND)
        assert queue.claim_one("w") is None
        clock.set(instant.astimezone())
        assert [job.payload for job in queue.claim_batch("w", 9)] == [0, 1, 2, 3]


def test_naive_times_are_refused_with_advice(store: Any, zone: str) -> None:
    """Never guessed, in whatever zone the process is; nothing is stored."""
    queue = store.queue("q")
    for naive in (datetime(2024, 7, 15, 12), datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1)):
        with pytest.raises(ValueError, match=r"naive.*astimezone"):
            queue.enqueue("work", run_at=naive)
    assert queue.jobs() == []
    with pytest.raises(ValueError, match="naive"):
        ManualClock(datetime(2024, 1, 1))


def test_both_sides_of_the_fold_are_an_hour_apart(store: Any) -> None:
    """02:30 comes twice when summer time ends, and never when it begins."""
    queue = store.queue("q")

    def stored(moment: datetime) -> float:
        run_at: float = queue.get_job(queue.enqueue("work", run_at=moment)).run_at
        return run_at

    overlap = datetime(2024, 10, 27, 2, 30, tzinfo=Madrid())
    assert stored(overlap) == datetime(2024, 10, 27, 0, 30, tzinfo=UTC).timestamp()
    assert stored(overlap.replace(fold=1)) - stored(overlap) == 3600
    gap = datetime(2024, 3, 31, 2, 30, tzinfo=Madrid())
    assert stored(gap) == datetime(2024, 3, 31, 1, 30, tzinfo=UTC).timestamp()
    assert stored(gap) - stored(gap.replace(fold=1)) == 3600


def test_local_times_made_aware_by_the_process_zone(store: Any, zone: str) -> None:
    """What the refusal advises is right: ``astimezone()`` uses the zone's own rule for that day."""
    queue = store.queue("q")
    for local in (datetime(2024, 1, 15, 12), datetime(2024, 7, 15, 12)):
        job = queue.get_job(queue.enqueue("work", run_at=local.astimezone()))
        assert job.run_at == time.mktime(local.timetuple())


def test_a_delay_over_the_change_takes_its_time(store: Any, clock: ManualClock, zone: str) -> None:
    """Durations are elapsed time: 3 hours are 3 hours on the night of the change."""
    clock.set(datetime(2024, 10, 26, 23, 30, tzinfo=UTC))
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue("work", delay=timedelta(hours=3))
    transport.publish("g", 1)
    assert transport.claim("w").nack(timedelta(hours=3))
    clock.advance(3 * 3600 - 0.000001)
    assert queue.claim_one("w") is None
    clock.advance(0.000001)
    assert queue.claim_one("w").run_at == clock.now()
    assert transport.claim("w") is None
    clock.advance(0.000001)
    assert transport.claim("w").event == 1


def test_far_future_and_distant_past(store: Any, clock: ManualClock, zone: str) -> None:
    """Year 9999 does not overflow; before 1970 is claimable now, oldest first."""
    queue = store.queue("q")
    far = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    last = queue.enqueue("far", run_at=far)
    for year in (1, 1969, 1970, 1900):
        queue.enqueue(year, run_at=datetime(year, 1, 2, tzinfo=UTC))
    assert [job.payload for job in queue.claim_batch("w", 9)] == [1, 1900, 1969, 1970]
    assert queue.get_job(last).run_at == far.timestamp()
    assert queue.purge("processing") == 4
    assert queue.stats().next_due_at == far.timestamp()
    clock.set(far - MICROSECOND)
    assert queue.claim_one("w") is None
    clock.set(far)
    assert queue.claim_one("w", visibility=10).payload == "far"
