"""units: every number is quantised once, and odd ones are refused (cases 023 and 024)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import units

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.floats(-1e12, 1e12, allow_nan=False))
def test_durations_are_rounded_to_the_nearest_microsecond(value: float) -> None:
    assert (
        abs(Fraction(units.duration(value, "x")) - Fraction(value) * 10**6)
        <= Fraction(1, 2) + Fraction(abs(value)) / 2**31
    )


@given(st.integers(-(10**12), 10**12))
def test_whole_seconds_are_exact(value: int) -> None:
    assert units.duration(value, "x") == units.instant(value, "x") == value * 10**6
    assert units.seconds(value * 10**6) == value


@given(st.timedeltas(timedelta(days=-46_000_000), timedelta(days=46_000_000)))
def test_timedeltas_are_exact(value: timedelta) -> None:
    assert units.duration(value, "x") == (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds


@given(st.datetimes(timezones=st.just(UTC)))
def test_aware_datetimes_are_exact(value: datetime) -> None:
    assert EPOCH + timedelta(microseconds=units.instant(value, "x")) == value


@given(st.integers(0, 4 * 10**15))
def test_public_seconds_tell_every_microsecond_apart(microseconds: int) -> None:
    """What is shown can be given back: a float of seconds carries microseconds exactly in this era."""
    assert units.instant(units.seconds(microseconds), "x") == microseconds


@pytest.mark.parametrize("value", [*map(float, ("nan", "inf", "-inf")), 10**30, 1e30, -(10**30), 1e308, -1e308])
def test_the_not_finite_and_absurd_are_refused(value: float) -> None:
    for check in (units.duration, units.instant, units.positive, units.not_negative):
        with pytest.raises(ValueError, match="wait"):
            check(value, "wait")


def test_a_number_of_more_digits_than_can_be_told_is_refused() -> None:
    for check in (units.duration, units.instant, units.priority):
        with pytest.raises(ValueError, match=r"wait must .* an int of very many digits"):
            check(10**9999, "wait")


@pytest.mark.parametrize("value", [True, False, "5", None, b"5", Decimal(5), Fraction(1, 2), 1j, [1]])
def test_other_types_are_refused(value: Any) -> None:
    for check in (units.duration, units.instant, units.positive, units.not_negative):
        with pytest.raises(TypeError, match="wait"):
            check(value, "wait")


def test_domains_are_checked_after_rounding() -> None:
    assert units.positive(0.0000006, "x") == 1
    for tiny in (0.0000004, 5e-324, 0, -1, -0.0):
        with pytest.raises(ValueError, match="more than 0"):
            units.positive(tiny, "x")
    assert units.not_negative(-0.0000004, "x") == 0
    with pytest.raises(ValueError, match="0 seconds or more"):
        units.not_negative(-0.000001, "x")


def test_naive_datetimes_are_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="astimezone"):
        units.instant(datetime(2024, 1, 1), "run_at")


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), -1),
        (datetime(1, 1, 1, tzinfo=UTC), -62135596800 * 10**6),
        (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), 253402300799999999),
        # West of Greenwich the end of year 9999 lies beyond what a UTC datetime can say.
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-12))), (253402300799 + 43_200) * 10**6),
    ],
)
def test_the_ends_of_the_calendar(value: datetime, microseconds: int) -> None:
    assert units.instant(value, "run_at") == microseconds


def zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        pytest.skip(f"this system has no time zone {name}")


@pytest.mark.parametrize(
    ("name", "wall", "first", "second"),
    [
        # Clocks go back at 3:00 (Madrid) and at 3:00 (Sydney): half past two happens twice.
        ("Europe/Madrid", datetime(2024, 10, 27, 2, 30), "2024-10-27T00:30+00:00", "2024-10-27T01:30+00:00"),
        ("Australia/Sydney", datetime(2024, 4, 7, 2, 30), "2024-04-06T15:30+00:00", "2024-04-06T16:30+00:00"),
    ],
)
def test_the_fold_is_told_apart(name: str, wall: datetime, first: str, second: str) -> None:
    """Case 024: fold 0 and 1 differ by 3,600 seconds."""
    local = wall.replace(tzinfo=zone(name))
    one, two = units.instant(local.replace(fold=0), "x"), units.instant(local.replace(fold=1), "x")
    assert one == units.instant(datetime.fromisoformat(first), "x")
    assert two == units.instant(datetime.fromisoformat(second), "x")
    assert two - one == 3_600 * 10**6


@pytest.mark.parametrize(
    ("name", "wall"),
    [("Europe/Madrid", datetime(2024, 3, 31, 2, 30)), ("America/Santiago", datetime(2024, 9, 8, 0, 30))],
)
def test_instants_inside_the_gap_follow_the_zone(name: str, wall: datetime) -> None:
    """A time of day that does not exist still names one instant, the one Python's own arithmetic names."""
    local = wall.replace(tzinfo=zone(name))
    offset = local.utcoffset()
    assert offset is not None
    assert units.instant(local, "x") == units.instant(wall.replace(tzinfo=UTC) - offset, "x")
    assert units.instant(local, "x") == round(local.timestamp() * 10**6)


def test_one_instant_in_many_zones() -> None:
    utc = datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
    zones = [
        zone("Australia/Sydney"),
        zone("America/Santiago"),
        zone("Europe/Madrid"),
        timezone(timedelta(minutes=345)),
    ]
    assert {units.instant(utc.astimezone(each), "x") for each in zones} == {units.instant(utc, "x")}


def test_integers_and_priorities() -> None:
    assert units.integer(5, "n", 1, 5) == 5
    for value in (0, 6, -(10**30)):
        with pytest.raises(ValueError, match="1 to 5"):
            units.integer(value, "n", 1, 5)
    for odd in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="n must be an int"):
            units.integer(odd, "n")  # type: ignore[arg-type]
    assert units.priority(-(2**31)) == -(2**31)
    assert units.priority(2**31 - 1) == 2**31 - 1
    for beyond in (2**31, -(2**31) - 1, 2**63, 2**64):
        with pytest.raises(ValueError, match="priority"):
            units.priority(beyond)
