"""The yardstick of ``bench.postgres``: prepared statements on flat tables, one round trip each, without Rota.

Same server, same driver, same settings. The queue has no token and no expiry; the transport's statements keep its turns
(T3), one lease per group (T1) and the fence of the token (T6), nothing else. Payloads are not decoded.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS raw;
CREATE TABLE raw.jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, priority integer NOT NULL DEFAULT 0,
    run_at bigint NOT NULL, state smallint NOT NULL DEFAULT 0, expires bigint, attempts integer NOT NULL DEFAULT 0,
    worker text, payload text NOT NULL);
CREATE INDEX ON raw.jobs (queue, priority DESC, run_at, id) WHERE state = 0;
CREATE INDEX ON raw.jobs (queue, expires) WHERE state = 1;
CREATE SEQUENCE raw.turns;
CREATE TABLE raw.groups (
    name text PRIMARY KEY, turn bigint NOT NULL, token bigint, seq bigint, expires bigint, worker text);
CREATE INDEX ON raw.groups (turn) WHERE expires IS NULL;
CREATE INDEX ON raw.groups (expires) WHERE expires IS NOT NULL;
CREATE TABLE raw.messages (
    name text NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, published_at bigint NOT NULL, event text NOT NULL,
    PRIMARY KEY (name, seq));
"""
_VISIBILITY = 30_000_000


class Raw:
    """A connection in autocommit that prepares what it executes."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self.run = self.connection.cursor().execute

    def make_tables(self) -> None:
        self.connection.execute(_SCHEMA, prepare=False)

    def close(self) -> None:
        self.connection.close()


class RawQueue(Raw):
    """Lease = one UPDATE … RETURNING, ack = one DELETE."""

    def enqueue(self, payload: str) -> int:
        text = "INSERT INTO raw.jobs (queue, run_at, payload) VALUES (%s, %s, %s) RETURNING id"
        return int(self.run(text, ("q", _now(), payload)).fetchall()[0][0])

    def enqueue_many(self, payloads: list[str]) -> None:
        text = "INSERT INTO raw.jobs (queue, run_at, payload) SELECT %s, %s, u FROM unnest(%s::text[]) u RETURNING id"
        self.run(text, ("q", _now(), payloads)).fetchall()

    def claim(self, n: int) -> list[Any]:
        now = _now()
        return self.run(
            "UPDATE raw.jobs SET state = 1, expires = %s, attempts = attempts + 1, worker = %s WHERE id = ANY (ARRAY("
            "SELECT id FROM raw.jobs WHERE queue = %s AND state = 0 AND run_at <= %s "
            "ORDER BY priority DESC, run_at, id LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING id, payload, attempts",
            (now + _VISIBILITY, "worker", "q", now, n),
        ).fetchall()

    def ack(self, job_id: int) -> None:
        text = "DELETE FROM raw.jobs WHERE id = %s AND state = 1 AND worker = %s AND expires >= %s"
        self.run(text, (job_id, "worker", _now()))

    def ack_batch(self, ids: list[int]) -> None:
        text = "DELETE FROM raw.jobs WHERE id = ANY (%s) AND state = 1 AND worker = %s AND expires >= %s"
        self.run(text, (ids, "worker", _now()))


class RawTransport(Raw):
    """The lease lies on the group's row; a claim moves the group to the back; a group goes with its last message."""

    def publish(self, group: str, event: str) -> None:
        self.run(
            "WITH made AS (INSERT INTO raw.groups (name, turn) VALUES (%s, nextval('raw.turns')) "
            "ON CONFLICT DO NOTHING) "
            "INSERT INTO raw.messages (name, published_at, event) VALUES (%s, %s, %s) RETURNING seq",
            (group, group, _now(), event),
        ).fetchall()

    def publish_many(self, groups: list[str], event: str) -> None:
        self.run(
            "WITH made AS (INSERT INTO raw.groups (name, turn) "
            "SELECT u, nextval('raw.turns') FROM unnest(%s::text[]) u ON CONFLICT DO NOTHING) "
            "INSERT INTO raw.messages (name, published_at, event) SELECT u, %s, %s FROM unnest(%s::text[]) u",
            (groups, _now(), event, groups),
        )

    def claim(self, n: int) -> list[Any]:
        return self.run(
            "WITH picked AS (SELECT name FROM raw.groups WHERE expires IS NULL ORDER BY turn LIMIT %s "
            "FOR UPDATE SKIP LOCKED), "
            "heads AS (SELECT g.name, m.seq, m.event FROM picked g CROSS JOIN LATERAL "
            "(SELECT seq, event FROM raw.messages m WHERE m.name = g.name ORDER BY seq LIMIT 1) m) "
            "UPDATE raw.groups g SET expires = %s, worker = %s, seq = h.seq, token = nextval('raw.turns'), "
            "turn = currval('raw.turns') FROM heads h WHERE g.name = h.name RETURNING g.name, h.seq, g.token, h.event",
            (n, _now() + _VISIBILITY, "worker"),
        ).fetchall()

    def ack_batch(self, leases: list[Any]) -> None:
        names, seqs, tokens, _ = map(list, zip(*leases, strict=True))
        self.run(
            "WITH done AS (SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) u (name, seq, token)), "
            "gone AS (DELETE FROM raw.messages m USING done d, raw.groups g WHERE m.name = d.name AND m.seq = d.seq "
            "AND g.name = d.name AND g.token = d.token), "
            "emptied AS (DELETE FROM raw.groups g USING done d WHERE g.name = d.name AND g.token = d.token "
            "AND NOT EXISTS (SELECT 1 FROM raw.messages m WHERE m.name = d.name AND m.seq <> d.seq) RETURNING g.name) "
            "UPDATE raw.groups g SET expires = NULL, token = NULL, seq = NULL, worker = NULL FROM done d "
            "WHERE g.name = d.name AND g.token = d.token AND g.name NOT IN (SELECT name FROM emptied)",
            (names, seqs, tokens),
        )

    def ack(self, lease: Any) -> None:
        name, seq, token, _ = lease
        self.run(
            "WITH gone AS (DELETE FROM raw.messages WHERE name = %s AND seq = %s AND EXISTS "
            "(SELECT 1 FROM raw.groups WHERE name = %s AND token = %s)), "
            "emptied AS (DELETE FROM raw.groups WHERE name = %s AND token = %s AND NOT EXISTS "
            "(SELECT 1 FROM raw.messages WHERE name = %s AND seq <> %s) RETURNING name) "
            "UPDATE raw.groups SET expires = NULL, token = NULL, seq = NULL, worker = NULL "
            "WHERE name = %s AND token = %s AND NOT EXISTS (SELECT 1 FROM emptied)",
            (name, seq, name, token, name, token, name, seq, name, token),
        )


def _now() -> int:
    return time.time_ns() // 1_000
