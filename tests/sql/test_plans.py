"""Every statement finds its rows by an index (C8): EXPLAIN QUERY PLAN says so."""

from __future__ import annotations

import re
import sqlite3

import pytest

from rota.sql import keys, queue, queue_inspect, transport, transport_inspect
from rota.sql.drive import Block

FILES = {
    "store": keys.STORE,
    "queue": queue.SQL,
    "queue_inspect": queue_inspect.SQL,
    "transport": transport.SQL,
    "transport_inspect": transport_inspect.SQL,
}
BLOCKS = {f"{file}.{name}": block for file, blocks in FILES.items() for name, block in blocks.all.items()}

# Lists of names, and a purge of everything in a state, look at all rows; nobody calls those often.
WALKS = {"store.queues", "store.transports", "queue_inspect.purge_live"}
# These put what an index has found into order.
SORTS = {
    "transport.heads_of",
    "queue_inspect.lapsed_and_held",
    "queue_inspect.redrivable_by_id",
    "transport_inspect.redrivable",
    "transport_inspect.redrivable_by_id",
}

# The steps of the hot statements that must use one index and no other.
INDEXES = {
    "queue.look": [
        "rota_jobs_held (queue=? AND claim_expires_at<?)",
        "rota_jobs_expiring (queue=? AND lane=?",
        "_open",
    ],
    "queue.next_priority": ["rota_jobs_open (queue=? AND priority<?)"],
    "queue.candidates": ["rota_jobs_open (queue=? AND priority=? AND run_at<?)"],
    "queue.lapsed": ["rota_jobs_held (queue=? AND claim_expires_at<?)"],
    "queue.expired_in_lane": ["rota_jobs_expiring (queue=? AND lane=? AND expires_at<?)"],
    "queue.claim": ["INTEGER PRIMARY KEY"],
    "queue.ack": ["INTEGER PRIMARY KEY"],
    "queue.ack_run": ["INTEGER PRIMARY KEY"],
    "queue.ack_bare": ["INTEGER PRIMARY KEY"],
    "queue.valid": ["INTEGER PRIMARY KEY"],
    "queue.heartbeat": ["INTEGER PRIMARY KEY"],
    "queue.release": ["INTEGER PRIMARY KEY"],
    "queue.expired": ["rota_jobs_expiring (queue=? AND lane=? AND expires_at<?)"],
    "queue_inspect.next_due": ["rota_jobs_open (queue=? AND priority=? AND run_at>?)", "rota_jobs_held (queue=? AND"],
    "transport.look": [
        "rota_groups_held (transport=? AND deadline<?)",
        "rota_groups_free (transport=? AND priority>?)",
    ],
    "transport.free_lapsed": ["rota_groups_held (transport=? AND deadline<?)"],
    "transport.next_priority": ["rota_groups_free (transport=? AND priority>?)"],
    "transport.turns": ["rota_groups_free (transport=? AND priority=?)"],
    "transport.heads_in_turn": ["rota_groups_free (transport=? AND priority=?)", "rota_messages_group"],
    "transport.heads_of": ["g USING INTEGER PRIMARY KEY", "rota_messages_group (group_number=?)"],
    "transport.next_message": ["rota_messages_group (group_number=?)"],
    "transport.lease": ["INTEGER PRIMARY KEY"],
    "transport.ack": ["INTEGER PRIMARY KEY", "(transport=? AND group_id=?)"],
    "transport.lease_all": ["rota_groups USING INTEGER PRIMARY KEY"],
    "transport.deliver_all": ["INTEGER PRIMARY KEY"],
    "transport.tokens": [
        "m USING INTEGER PRIMARY KEY",
        "g USING INTEGER PRIMARY KEY",
        "rota_messages_group (group_number=?)",
    ],
    "transport.drop_messages": ["INTEGER PRIMARY KEY"],
    "transport.drop_groups": ["INTEGER PRIMARY KEY"],
    "transport.free_all": ["INTEGER PRIMARY KEY"],
    "transport.drop_empty": ["(transport=? AND group_id=?)", "rota_messages_group (group_number=?)"],
    "transport.free": ["(transport=? AND group_id=?)"],
    "transport.park": ["(transport=? AND group_id=?)"],
    "transport.extend": ["(transport=? AND group_id=?)"],
    "transport_inspect.next_due": ["rota_groups_held (transport=? AND deadline>?)"],
    "transport_inspect.count_all": ["rota_groups_free", "rota_groups_held", "rota_groups_suspended"],
    "store.advance": ["PRIMARY KEY (name=?)"],
    "store.job_of_key": ["PRIMARY KEY (kind=? AND name=? AND key=?)"],
    "store.message_of_key": ["PRIMARY KEY (kind=? AND name=? AND key=?)"],
}


def plan(database: sqlite3.Connection, block: Block) -> list[str]:
    values = (None,) * block.text.count("?")
    return [step for *_, step in database.execute(f"EXPLAIN QUERY PLAN {block.text}", values)]


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_no_statement_scans_a_table(database: sqlite3.Connection, name: str) -> None:
    steps = plan(database, BLOCKS[name])
    assert any(re.match(r"SCAN rota_", step) for step in steps) == (name in WALKS), steps
    assert any("TEMP B-TREE" in step for step in steps) == (name in SORTS), steps


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_hot_statements_use_their_index(database: sqlite3.Connection, name: str) -> None:
    steps = "\n".join(plan(database, BLOCKS[name]))
    for index in INDEXES[name]:
        assert index in steps


def test_the_check_sees_a_scan(database: sqlite3.Connection) -> None:
    """Without the condition of the partial index there is no index: the test above would fail."""
    spoilt = queue.SQL.candidates._replace(text=queue.SQL.candidates.text.replace("lane = 1", "lane <> 0"))
    assert any(re.match(r"SCAN rota_jobs", step) for step in plan(database, spoilt))
