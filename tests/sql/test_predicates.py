"""A rule has one home; the few predicates SQL knows stand verbatim in every statement that needs them."""

from __future__ import annotations

import re
import sqlite3
from itertools import product

import pytest

from rota import rules
from rota.sql import queue, queue_inspect, transport, transport_inspect
from rota.sql.blocks import Blocks

VALID_CLAIM = "state = 1 AND worker_id = ? AND claim_expires_at >= ?"
CLAIMABLE = (
    "(expires_at IS NULL OR expires_at > ?) AND (state = 0 AND run_at <= ? OR state = 1 AND claim_expires_at < ?)"
)
IN_FLIGHT = "deadline >= ?"


def texts(*files: Blocks) -> dict[str, str]:
    """The statements on one line each."""
    return {name: re.sub(r"\s+", " ", block.text) for file in files for name, block in file.all.items()}


QUEUE = texts(queue.SQL, queue_inspect.SQL)
TRANSPORT = texts(transport.SQL, transport_inspect.SQL)


def test_every_check_of_a_claim_is_the_valid_claim() -> None:
    asking = {name for name, text in QUEUE.items() if re.search(r"AND worker_id = \?", text)}
    assert asking == {"ack", "ack_bare", "ack_run", "heartbeat", "release", "valid", "valid_bare"}
    assert all(VALID_CLAIM in QUEUE[name] for name in asking)
    # Only ids without a claim are not fenced by a token.
    assert {name for name in asking if "token = ?" not in QUEUE[name]} == {"ack_bare", "valid_bare"}


def test_whatever_is_shown_as_claimable_is_asked_in_the_same_words() -> None:
    asking = {name for name, text in QUEUE.items() if "state = 1 AND claim_expires_at <" in text}
    assert asking == {"open_in_priority", "lapsed_and_held", "ready_instants"}
    assert all(CLAIMABLE in QUEUE[name] for name in asking)


def test_in_flight_is_asked_in_the_same_words() -> None:
    asking = {name for name, text in TRANSPORT.items() if re.search(r"deadline (>|<=)", text)}
    assert asking == {"extend", "hold_again", "count_all", "next_due"}
    assert all(IN_FLIGHT in TRANSPORT[name] for name in asking)
    assert not any(re.search(r"deadline (> |<=)", text) for text in TRANSPORT.values())


def test_every_settlement_of_a_lease_is_fenced_by_the_token() -> None:
    settling = ("ack", "drop_empty", "free", "park", "extend", "holds")
    assert all(re.search(r"AND token = \?", TRANSPORT[name]) for name in settling)


NOW = 100
AROUND = (NOW - 1, NOW, NOW + 1)


@pytest.mark.parametrize("state", ["pending", "processing"])
def test_claimable_in_sql_is_claimable_in_the_rules(database: sqlite3.Connection, state: str) -> None:
    columns = "SELECT ? AS state, ? AS run_at, ? AS claim_expires_at, ? AS expires_at"
    for run_at, deadline, expires_at in product(AROUND, AROUND, (None, *AROUND)):
        row = (int(state == "processing"), run_at, deadline, expires_at)
        found = database.execute(f"SELECT {CLAIMABLE} FROM ({columns})", (NOW, NOW, NOW, *row)).fetchone()
        assert bool(found[0]) == rules.claimable(state, run_at, deadline, expires_at, NOW), row  # type: ignore[arg-type]


@pytest.mark.parametrize("deadline", AROUND)
def test_deadlines_in_sql_are_those_of_the_rules(database: sqlite3.Connection, deadline: int) -> None:
    (in_flight,) = database.execute(f"SELECT {IN_FLIGHT} FROM (SELECT ? AS deadline)", (NOW, deadline)).fetchone()
    row = "SELECT 1 AS state, 'w' AS worker_id, ? AS claim_expires_at"
    (valid,) = database.execute(f"SELECT {VALID_CLAIM} FROM ({row})", ("w", NOW, deadline)).fetchone()
    assert bool(in_flight) is bool(valid) is not rules.lapsed(deadline, NOW)
