"""Values on the command line: durations, instants, headers, JSON."""

from __future__ import annotations

import argparse
import json
import re
from datetime import datetime
from typing import Any, NoReturn

_DURATION = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """Seconds from ``5``, ``0.25``, ``90s``, ``5m``, ``2h``, ``1d``, ``250ms``."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no length of time: give seconds, or a number with ms, s, m, h, d"
        )
    return float(match[1]) * _SECONDS[match[2] or "s"]


def instant(text: str) -> float | datetime:
    """An instant from POSIX seconds or ISO 8601 with a zone."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no instant: give POSIX seconds, or ISO 8601 like 2030-01-31T08:00+01:00"
        ) from None
    if value.utcoffset() is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: append Z or an offset such as +01:00")
    return value


def header(text: str) -> tuple[str, str]:
    """A header from ``name=value``."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no header: give NAME=VALUE")
    return name, value


def count(text: str) -> int:
    """A whole number of at least one."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def letter(text: str) -> int:
    """The id of a dead letter."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no letter's id, which is a whole number (--all: all)") from None


def exact_json(text: str) -> Any:
    """The value of JSON text; ``ValueError`` for anything that is not strictly JSON."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
