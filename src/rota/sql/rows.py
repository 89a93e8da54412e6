"""Between stored rows and records."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from rota import rules
from rota.records import DeadJobRow, DeadMessageRow, JobRow, JobState, MessageRow, Stamp, TransportOptions

STATES: tuple[JobState, ...] = ("pending", "processing")

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def headers_text(headers: dict[str, str] | None) -> str | None:
    """Headers as they are stored."""
    return None if headers is None else _encode(headers)


def headers_of(text: str | None) -> dict[str, str] | None:
    """Headers as they were stored."""
    if text is None:
        return None
    headers: dict[str, str] = json.loads(text)
    return headers


def options_text(options: dict[str, Any]) -> str:
    """The named options of a transport as they are stored."""
    return _encode(options)


def named_options(text: str) -> dict[str, Any]:
    """The options somebody named."""
    named: dict[str, Any] = json.loads(text)
    return named


@lru_cache(maxsize=256)
def options_of(text: str) -> TransportOptions:
    """All options of a transport; every claim asks, so the answer is kept."""
    return rules.resolve_options(named_options(text))


def live_job(row: tuple[Any, ...]) -> JobRow:
    """A row of ``{job}`` from the live jobs."""
    state, *rest = row
    return _job(STATES[state], tuple(rest))


def done_job(row: tuple[Any, ...]) -> JobRow:
    """A row of ``{job}``, result and done_at."""
    *rest, result, done_at = row
    return _job("done", tuple(rest))._replace(result=result, done_at=done_at)


def dead_job(row: tuple[Any, ...]) -> DeadJobRow:
    """A row of letter_id, reason, died_at and ``{job}``."""
    letter_id, reason, died_at, *rest = row
    return DeadJobRow(letter_id, reason, _job("dead", tuple(rest))._replace(died_at=died_at))


def _job(state: JobState, row: tuple[Any, ...]) -> JobRow:
    job_id, name, payload, headers, *rest = row[:-6]
    return JobRow._make(
        (job_id, state, name, payload, headers_of(headers), *rest, Stamp._make(row[-6:]), None, None, None)
    )


def message(row: tuple[Any, ...]) -> MessageRow:
    """A row of ``{message}`` and the group's priority."""
    seq, group_id, event, headers, *rest = row
    return MessageRow(seq, group_id, event, headers_of(headers), *rest)


def dead_message(row: tuple[Any, ...]) -> DeadMessageRow:
    """A row of letter_id, reason, died_at, ``{message}`` and the group's priority."""
    letter_id, reason, died_at, *rest = row
    return DeadMessageRow(letter_id, reason, died_at, message(tuple(rest)))
