"""Numbers at the border (C1, C2, C6): every instant and duration becomes whole microseconds here.

Inside Rota time is an ``int`` of microseconds since the Unix epoch, UTC; outside it is POSIX seconds as ``float``.
Nothing below the facade sees a float of seconds, and nothing else rounds.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

MICROSECONDS = 1_000_000
# Half of a signed 64-bit integer each, so that instant + duration always fits the column of every engine.
LIMIT = 4_000_000_000_000 * MICROSECONDS
PRIORITY_MIN, PRIORITY_MAX = -(2**31), 2**31 - 1

Duration = int | float | timedelta
Instant = int | float | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def duration(value: Duration, name: str) -> int:
    """Return a number of seconds (``int | float | timedelta``) as whole microseconds; may be negative.

    Raises ``TypeError`` for other types (``bool`` included), ``ValueError`` for NaN, infinities and the absurdly long.
    """
    if type(value) is int:
        return _bounded(value * MICROSECONDS, name, value)
    if isinstance(value, timedelta):
        return _bounded(value // _MICROSECOND, name, value)
    return _bounded(_from_number(value, name, "seconds as int, float or timedelta"), name, value)


def positive(value: Duration, name: str) -> int:
    """A duration that must be longer than zero once it is rounded (``visibility``, ``heartbeat``)."""
    result = duration(value, name)
    if result <= 0:
        raise ValueError(f"{name} must be more than 0 seconds (after rounding to whole microseconds), got {value!r}")
    return result


def not_negative(value: Duration, name: str) -> int:
    """A duration that must not be below zero (``backoff_base``, retention)."""
    result = duration(value, name)
    if result < 0:
        raise ValueError(f"{name} must be 0 seconds or more, got {value!r}")
    return result


def pause(value: Duration | None, name: str) -> int:
    """A duration not below zero that is zero unless it is given (C6)."""
    return 0 if value is None else not_negative(value, name)


def instant(value: Instant, name: str) -> int:
    """Return POSIX seconds or an aware ``datetime`` as whole microseconds since the epoch.

    Raises ``ValueError`` for a naive ``datetime``, NaN, infinities and the far off, ``TypeError`` for other types.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(
                f"{name} must not be a naive datetime, got {value!r}: make it aware, for example with "
                "value.replace(tzinfo=datetime.UTC) or value.astimezone()"
            )
        return _bounded((value - _EPOCH) // _MICROSECOND, name, value)
    return _bounded(_from_number(value, name, "POSIX seconds or an aware datetime"), name, value)


def seconds(microseconds: int) -> float:
    """Microseconds as the public float of seconds (C2)."""
    return microseconds / MICROSECONDS


def optional_seconds(microseconds: int | None) -> float | None:
    """``seconds`` that lets None through."""
    return None if microseconds is None else microseconds / MICROSECONDS


def integer(value: int, name: str, low: int | None = None, high: int | None = None) -> int:
    """An ``int`` (not a ``bool``) within ``low…high``; ``TypeError`` or ``ValueError`` naming the value otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if (low is not None and value < low) or (high is not None and value > high):
        accepted = f"{low} or more" if high is None else f"{low} to {high}"
        raise ValueError(f"{name} must be {accepted}, got {_shown(value)}")
    return int(value)


def priority(value: int, name: str = "priority") -> int:
    """A priority: an int of 32 bits, signed."""
    return integer(value, name, PRIORITY_MIN, PRIORITY_MAX)


def _from_number(value: object, name: str, accepted: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be {accepted}, got {value!r}")
    if isinstance(value, int):
        return value * MICROSECONDS
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    microseconds = value * MICROSECONDS
    if math.isinf(microseconds):
        # A float of that many microseconds does not exist: far out of any bounds.
        return LIMIT + 1 if value > 0 else -LIMIT - 1
    return round(microseconds)


def _bounded(microseconds: int, name: str, value: object) -> int:
    if not -LIMIT <= microseconds <= LIMIT:
        limit = LIMIT // MICROSECONDS
        raise ValueError(f"{name} must lie within -{limit} … {limit} seconds, got {_shown(value)}")
    return microseconds


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:
        # More digits than the interpreter converts.
        return f"an {type(value).__name__} of very many digits"
