"""What the statements of every hot verb touch, by EXPLAIN's own counts, beside a large backlog and many dead rows (C8).

ROTA_TEST_PLAN_SCALE makes the data set smaller (0.1) or larger; the bounds stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import rota
from postgres.databases import Databases
from postgres.server import Server
from rota.testing import ManualClock

SCALE = float(os.environ.get("ROTA_TEST_PLAN_SCALE", "1"))
JOBS, GROUPS, LETTERS, DEAD = (int(number * SCALE) for number in (1_000_000, 100_000, 500_000, 200_000))
HOUR = 3_600_000_000

FILL = f"""
ALTER TABLE rota.jobs SET (autovacuum_enabled = false);
ALTER TABLE rota.groups SET (autovacuum_enabled = false);
ALTER TABLE rota.messages SET (autovacuum_enabled = false);
INSERT INTO rota.queues (name) VALUES ('q');
-- The first ones are there to be gone again. Every tenth is delayed, every fifth expires some day; three priorities.
INSERT INTO rota.jobs (id, queue, priority, run_at, enqueued_at, expires_at, visibility, max_attempts, backoff_base,
    keep_done, key_ttl, payload)
SELECT nextval('rota.job_ids'), 'q', n % 3,
    rota.clock_us() - {HOUR} + n + CASE WHEN n % 10 = 0 THEN 2 * {HOUR} ELSE 0 END, 0,
    CASE WHEN n % 5 = 0 THEN rota.clock_us() + 24 * {HOUR} + n END, {HOUR}, 3, 1000000, 0, 0, '1'
FROM generate_series(1, {JOBS + DEAD}) n;
UPDATE rota.jobs SET lane = 0, state = 1, token = id, worker_id = 'w', claimed_at = 0, claim_expires_at = id
WHERE id <= {DEAD};
DELETE FROM rota.jobs WHERE id <= {DEAD};
INSERT INTO rota.dead_jobs (letter_id, id, died_at, retained_until, run_at, enqueued_at, attempts, releases, visibility,
    max_attempts, backoff_base, keep_done, key_ttl, priority, queue, reason, last_error, payload)
SELECT nextval('rota.letters'), 100000000 + n, n, {HOUR} * 24 * 365 * 100 + n, 0, 0, 3, 0, 1, 3, 0, 0, 0, 0, 'q',
    'failed', 'failed', '1'
FROM generate_series(1, {LETTERS // 2}) n;

-- Twenty priorities, so that turns are merged; the lower half was claimed before.
INSERT INTO rota.groups (transport, group_id, priority, turn)
SELECT 't', 'g' || n, n % 20, CASE WHEN n % 2 = 0 THEN n - 4611686018427387904 ELSE n END
FROM generate_series(1, {GROUPS + DEAD // 2}) n;
INSERT INTO rota.messages (transport, group_id, seq, published_at, event)
SELECT 't', 'g' || n, nextval('rota.seqs'), 0, '1' FROM generate_series(1, {GROUPS + DEAD // 2}) n;
UPDATE rota.groups SET lane = 0, token = turn, leased_seq = 1, deadline = 1 WHERE turn % 1000000000 <= {DEAD // 4};
DELETE FROM rota.groups WHERE lane = 0;
DELETE FROM rota.messages m WHERE NOT EXISTS (SELECT 1 FROM rota.groups g WHERE g.group_id = m.group_id);
SELECT setval('rota.tokens', {10 * (GROUPS + DEAD)});
INSERT INTO rota.dead_messages (letter_id, seq, died_at, published_at, deliveries, priority, transport, group_id,
    reason, last_error, event)
SELECT nextval('rota.letters'), -n, n, 0, 1, 0, 't', 'dead' || n % 1000, 'failed', 'failed', '1'
FROM generate_series(1, {LETTERS // 2}) n;
"""


class Counted:
    """What the statements inside one call did."""

    def __init__(self, plans: list[dict[str, Any]]) -> None:
        self.buffers = max((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans), default=0)
        self.rows = 0
        self.compared = 0
        self.scans: set[str] = set()
        for plan in plans:
            self._walk(plan)

    def _walk(self, node: dict[str, Any]) -> None:
        if "Relation Name" in node and "Scan" in node["Node Type"]:
            loops = node["Actual Loops"]
            self.rows += int(loops * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))
            self.rows += int(loops * node.get("Rows Removed by Index Recheck", 0))
            self.scans.add(f"{node['Node Type']} on {node['Relation Name']}")
        self.compared += int(node["Actual Loops"] * node.get("Rows Removed by Join Filter", 0))
        for child in node.get("Plans", ()):
            self._walk(child)


class Observed:
    """A store whose one connection explains all its statements, those inside functions too."""

    def __init__(self, url: str, clock: ManualClock | None = None) -> None:
        self.store = rota.open(url, pool_size=1, notify=False, clock=clock)
        self._plans: list[dict[str, Any]] = []
        pool = self.store._core.engine.pool  # type: ignore[attr-defined]
        session = pool.take()
        session.connection.execute("LOAD 'auto_explain'")
        for setting in ("min_duration = 0", "nested_statements = on", "analyze = on", "buffers = on", "timing = off"):
            session.connection.execute(f"SET auto_explain.log_{setting}")
        session.connection.execute("SET auto_explain.log_format = json")
        session.connection.execute("SET client_min_messages = log")
        session.connection.add_notice_handler(self._note)
        pool.give(session)

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        _, brace, text = (notice.message_primary or "").partition("plan:\n{")
        if brace:
            self._plans.append(json.loads("{" + text)["Plan"])

    def count(self, call: Callable[[], Any]) -> tuple[Any, Counted]:
        self._plans.clear()
        result = call()
        return result, Counted(self._plans)


@pytest.fixture(scope="module")
def crowded(postgres_server: Server, postgres_databases: Databases) -> Iterator[Observed]:
    name = postgres_server.create_database(postgres_databases.template)
    url = postgres_server.dsn(name)
    with rota.open(url, notify=False) as store:
        store.transport("t", max_deliveries=5).stats()
        store.transport("t").suspend("nobody")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILL)  # type: ignore[call-overload]
    observed = Observed(url)
    yield observed
    observed.store.close()
    postgres_server.drop_database(name)


def judge(observed: Observed, verbs: dict[str, Callable[[], Any]], buffers: int, rows: int) -> None:
    """Each verb twice, as the first call also plans; the second one is counted."""
    too_much: list[str] = []
    for name, call in verbs.items():
        call()
        _, counted = observed.count(call)
        seen = [scan for scan in counted.scans if scan.startswith(("Seq Scan", "Bitmap"))]
        print(f"{name:<22} {counted.buffers:>6} buffers {counted.rows:>6} rows")
        if counted.buffers > buffers or counted.rows > rows or seen:
            too_much.append(f"{name}: {counted.buffers} buffers, {counted.rows} rows, {sorted(counted.scans)}")
    assert not too_much, "\n".join(too_much)


def test_single_verbs_of_a_queue(crowded: Observed) -> None:
    queue = crowded.store.queue("q", visibility=3_600)
    # Carries the frontier past the dead rows.
    for _ in range(3):
        queue.claim_one("w")
    held = iter(queue.claim_batch("w", 50))
    keys = iter(range(1_000))
    judge(
        crowded,
        {
            "enqueue": lambda: queue.enqueue(1),
            "enqueue with a key": lambda: queue.enqueue(1, key=f"k{next(keys)}"),
            "enqueue, key taken": lambda: queue.enqueue(1, key="k0"),
            "enqueue delayed": lambda: queue.enqueue(1, delay=60, expires=120),
            "claim": lambda: queue.claim_one("w"),
            "ack": lambda: next(held).ack(),
            "retry": lambda: next(held).retry("e"),
            "fail": lambda: next(held).fail("e"),
            "heartbeat": lambda: next(held).heartbeat(),
            "cancel": lambda: queue.cancel(next(held).id),
            "release": lambda: next(held).release(delay=60),
            "get_job": lambda: queue.get_job(next(held).id),
        },
        buffers=150,
        rows=30,
    )


def test_batches_of_a_queue(crowded: Observed) -> None:
    queue = crowded.store.queue("q", visibility=3_600)
    for _ in range(3):
        queue.claim_one("w")
    held = queue.claim_batch("w", 100)

    def some() -> list[Any]:
        taken, held[:] = held[:10], held[10:]
        return taken

    judge(
        crowded,
        {
            "enqueue_many": lambda: queue.enqueue_many([1] * 10),
            "claim_batch": lambda: queue.claim_batch("w", 10),
            "ack_batch": lambda: queue.ack_batch(some(), "w"),
            "ack_batch, bare ids": lambda: queue.ack_batch([job.id for job in some()], "w"),
            "heartbeat_batch": lambda: queue.heartbeat_batch(some()),
        },
        buffers=500,
        rows=120,
    )


def test_single_verbs_of_a_transport(crowded: Observed) -> None:
    transport = crowded.store.transport("t")
    for _ in range(3):
        transport.claim("w", 3_600)
    held = iter(transport.claim_batch("w", 50, 3_600))
    groups = iter(range(1_000))
    judge(
        crowded,
        {
            "publish": lambda: transport.publish(f"g{GROUPS}", 1),
            "publish to a new group": lambda: transport.publish(f"new{next(groups)}", 1),
            "publish with a key": lambda: transport.publish(f"g{GROUPS}", 1, key=f"k{next(groups)}"),
            "ack": lambda: next(held).ack(),
            "nack": lambda: next(held).nack(),
            "park": lambda: next(held).nack(60, error="e"),
            "release": lambda: next(held).release(),
            "extend": lambda: next(held).extend(60),
            "fail": lambda: next(held).fail("e"),
        },
        buffers=150,
        rows=30,
    )


def test_claims_of_a_transport(crowded: Observed) -> None:
    """Twenty priorities: one probe for each, then the merged turns."""
    transport = crowded.store.transport("t")
    for _ in range(3):
        transport.claim("w", 3_600)
        transport.claim("w", 3_600, 19)
    judge(
        crowded,
        {
            "claim at the top floor": lambda: transport.claim("w", 3_600, 19),
            "claim over a floor": lambda: transport.claim("w", 3_600, 10),
            "claim of all": lambda: transport.claim("w", 3_600),
        },
        buffers=1_500,
        rows=500,
    )


def test_batches_of_a_transport(crowded: Observed) -> None:
    transport = crowded.store.transport("t")
    for _ in range(3):
        transport.claim("w", 3_600, 19)
    held = transport.claim_batch("w", 100, 3_600, 19)

    def some() -> list[Any]:
        taken, held[:] = held[:10], held[10:]
        return taken

    judge(
        crowded,
        {
            "publish_many": lambda: transport.publish_many([(f"g{GROUPS - n}", 1) for n in range(10)]),
            "publish_many, new": lambda: transport.publish_many([(f"more{id(object())}-{n}", 1) for n in range(10)]),
            "claim_batch": lambda: transport.claim_batch("w", 10, 3_600, 19),
            "ack_batch": lambda: transport.ack_batch(some()),
            "extend_batch": lambda: transport.extend_batch(some(), 60),
        },
        buffers=700,
        rows=150,
    )


def test_an_idle_look_is_cheap(crowded: Observed) -> None:
    """What every idle waiter asks for (X8), of a queue and a transport that have nothing."""
    queue, transport = crowded.store.queue("empty"), crowded.store.transport("empty")
    queue.suspend()
    queue.resume()
    transport.suspend()
    transport.resume()
    judge(
        crowded,
        {
            "claim of nothing": lambda: queue.claim_one("w"),
            "claim of no group": lambda: transport.claim("w"),
        },
        buffers=60,
        rows=5,
    )


def _never_analysed(url: str) -> None:
    """A database made a moment ago."""


def _analysed_empty(url: str) -> None:
    _analyse(url, 0)


def _analysed_with_one(url: str) -> None:
    """As an installation looks when its first day begins."""
    _analyse(url, 1)


def _analysed_with_few(url: str) -> None:
    _analyse(url, 20)


def _analyse(url: str, items: int) -> None:
    with rota.open(url, notify=False) as store:
        queue, transport = store.queue("q"), store.transport("t", max_deliveries=9)
        queue.enqueue_many(range(items))
        transport.publish_many([(f"first{n}", n) for n in range(items)])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        queue.ack_batch(queue.claim_batch("w", items), "w")
        transport.ack_batch(transport.claim_batch("w", items))


@pytest.mark.parametrize("statistics", [_never_analysed, _analysed_empty, _analysed_with_one, _analysed_with_few])
def test_batches_grow_by_their_size_whatever_the_statistics_say(
    postgres_url: str, statistics: Callable[[str], None]
) -> None:
    """What is joined is looked up, row by row: a plan made for one row lives on in its session when there are many."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("jobs", "groups", "messages"):
            connection.execute(f"ALTER TABLE rota.{table} SET (autovacuum_enabled = false)")  # type: ignore[call-overload]
    statistics(postgres_url)
    size = 500
    clock = ManualClock()
    observed = Observed(postgres_url, clock)
    queue, transport = observed.store.queue("q"), observed.store.transport("t", max_deliveries=9)
    some, more = ([f"g{n:04}" for n in numbers] for numbers in (range(0, size, 2), range(size)))
    jobs: list[Any] = []
    leases: list[Any] = []
    calls: dict[str, Callable[[], Any]] = {
        "enqueue_many": lambda: queue.enqueue_many(
            [rota.Item(n, key=f"k{n}", priority=n % 2, max_attempts=1 + n % 3) for n in range(size)]
        ),
        "claim_batch": lambda: queue.claim_batch("w", size, visibility=1),
        "nothing": lambda: clock.advance(2),
        "cleaning after lapsed claims": lambda: jobs.extend(queue.claim_batch("w", size)),
        "heartbeat_batch": lambda: queue.heartbeat_batch(jobs),
        "ack_batch": lambda: queue.ack_batch(jobs, "w"),
        "publish_many, new groups": lambda: transport.publish_many([(name, 1, 1) for name in some]),
        "publish_many, some known": lambda: transport.publish_many([(name, 1, 2) for name in more]),
        "transport's claim_batch": lambda: leases.extend(transport.claim_batch("w", size)),
        "extend_batch": lambda: transport.extend_batch(leases, 60),
        "transport's ack_batch": lambda: transport.ack_batch(leases),
        "the last messages": lambda: transport.ack_batch(transport.claim_batch("w", size)),
    }
    try:
        for name, call in calls.items():
            _, counted = observed.count(call)
            assert counted.rows <= 20 * size, f"{name}: {counted.rows} rows, {counted.scans}"
            assert counted.compared <= 2 * size, f"{name}: {counted.compared} pairs compared"
        assert (queue.stats().pending, queue.stats().dead, transport.stats().messages) == (0, size - len(jobs), 0)
        assert 0 < len(jobs) < size
    finally:
        observed.store.close()


def test_no_row_is_held_against_each_element_of_an_array(postgres_url: str) -> None:
    """``<> ALL`` of a variable runs through it for every row: 40,000 letters with keys that were taken took 35 s."""
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'rota'::regnamespace AND prosrc ~* '<> *all' ORDER BY 1"
        ).fetchall()
    # A thousand groups at most.
    assert found == [("tidy_drained",)]
