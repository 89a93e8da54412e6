"""Ids and integers beyond 2**53 keep all their digits, in the store and in the command (riverqueue/riverui 593)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import rota

from .command import run

EDGE = 2**53
BIG = 9007199254740993


@pytest.fixture
def url_past_the_edge(sqlite_file: Path) -> str:
    """A store whose counters have come to 2**53."""
    url = f"sqlite:///{sqlite_file}"
    with rota.open(url) as store:
        store.queue("setup").stats()
        store.queue("q").enqueue("first")
        store.queue("q").purge("pending")
    with contextlib.closing(sqlite3.connect(sqlite_file, isolation_level=None)) as connection:
        assert connection.execute("UPDATE rota_counters SET value = ?", (EDGE,)).rowcount >= 4
    return url


def numbers(document: Any) -> set[int]:
    """Every integer in a JSON document, those inside strings of digits too."""
    if isinstance(document, dict):
        return set().union(*map(numbers, document.values())) if document else set()
    if isinstance(document, list):
        return set().union(*map(numbers, document)) if document else set()
    if isinstance(document, str) and document.isdigit():
        return {int(document)}
    return {document} if isinstance(document, int) and not isinstance(document, bool) else set()


def test_command_shows_all_digits_and_acts_on_the_right_one(url_past_the_edge: str) -> None:
    """Three jobs in a row whose ids one float cannot tell apart: listed, shown, and only the middle one cancelled."""
    url = url_past_the_edge
    with rota.open(url) as store:
        ids = store.queue("q").enqueue_many([{"id": BIG}] * 3)
        assert ids == [EDGE + 1, EDGE + 2, EDGE + 3]
        assert float(ids[0]) == float(EDGE)
    listed = json.loads(run(url, "jobs", "queue:q", "--json"))
    assert {*ids, BIG} <= numbers(listed)
    for job_id in ids:
        shown = json.loads(run(url, "show", "queue:q", str(job_id), "--json"))
        assert {job_id, BIG} <= numbers(shown)
    assert str(ids[1]) in run(url, "jobs", "queue:q")
    run(url, "cancel", "queue:q", str(ids[1]))
    with rota.open(url) as store:
        assert [job.id for job in store.queue("q").jobs()] == [ids[0], ids[2]]


def test_command_puts_in_and_tells_large_numbers(url_past_the_edge: str) -> None:
    """What is enqueued or published by the command comes back with all its digits; the id it printed is the job's."""
    url = url_past_the_edge
    told = run(url, "enqueue", "q", json.dumps({"id": BIG, "huge": 10**40}), "--json")
    run(url, "publish", "t", "g", json.dumps([BIG, -BIG]))
    with rota.open(url) as store:
        job = store.queue("q").claim_one("w")
        assert job.payload == {"id": BIG, "huge": 10**40}
        assert job.id in numbers(json.loads(told))
        assert job.fail("to see the letter")
        lease = store.transport("t").claim("w")
        assert (lease.event, lease.seq) == ([BIG, -BIG], EDGE + 1)
        assert lease.token > EDGE
    letters = json.loads(run(url, "dead", "queue:q", "--json"))
    assert {job.id, BIG, 10**40} <= numbers(letters)
    run(url, "redrive", "queue:q", str(EDGE + 1), "--yes")
    with rota.open(url) as store:
        assert store.queue("q").claim_one("w").id == job.id


INTEGERS = [EDGE, BIG, -BIG, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**300, -(10**4000)]


@pytest.mark.parametrize("value", INTEGERS, ids=lambda value: f"{value:.3e}" if abs(value) < 10**300 else "huge")
def test_integers_of_any_size_round_trip(store: Any, value: int) -> None:
    """In payloads, results and events, as values and inside lists; not as floats."""
    queue, transport = store.queue("q", keep_done=60), store.transport("t")
    job_id = queue.enqueue({"n": value, "list": [value]})
    job = queue.claim_one("w")
    assert job.payload == {"n": value, "list": [value]}
    assert type(job.payload["n"]) is int
    assert job.ack(value)
    assert queue.get_job(job_id).result == value
    transport.publish("g", value)
    assert transport.claim("w").event == value
