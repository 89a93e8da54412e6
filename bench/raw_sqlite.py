"""The yardstick of ``bench.sqlite``: the least statements that lease and delete rows of one file, without Rota.

Same driver, same file, same durability. No checks, no fences beyond the row's state, no decoding of payloads.
"""

from __future__ import annotations

import sqlite3
import time
from itertools import count

_SCHEMA = """
CREATE TABLE IF NOT EXISTS raw_jobs (
  id INTEGER PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0, expires INTEGER, attempts INTEGER NOT NULL DEFAULT 0, worker TEXT,
  payload TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS raw_ready ON raw_jobs (queue, priority DESC, run_at, id) WHERE state = 0;
CREATE INDEX IF NOT EXISTS raw_held ON raw_jobs (queue, expires) WHERE state = 1;
CREATE TABLE IF NOT EXISTS raw_groups (
  name TEXT PRIMARY KEY, turn INTEGER NOT NULL, seq INTEGER, expires INTEGER, worker TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS raw_free ON raw_groups (turn) WHERE seq IS NULL;
CREATE TABLE IF NOT EXISTS raw_messages (
  seq INTEGER PRIMARY KEY, name TEXT NOT NULL, deliveries INTEGER NOT NULL DEFAULT 0, event TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS raw_order ON raw_messages (name, seq);
"""
_VISIBILITY = 30_000_000


class RawQueue:
    """Lease = one UPDATE … RETURNING, ack = one DELETE; batches in one transaction each."""

    def __init__(self, path: str, durability: str) -> None:
        self.connection = _connect(path, durability)

    def enqueue_many(self, payloads: list[str]) -> None:
        now = _now()
        rows = [("q", 0, now, payload) for payload in payloads]
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO raw_jobs (queue, priority, run_at, payload) VALUES (?, ?, ?, ?)", rows)
        run("COMMIT")

    def claim(self, n: int) -> list[tuple[int, str]]:
        now = _now()
        return self.connection.execute(
            "UPDATE raw_jobs SET state = 1, expires = ?, attempts = attempts + 1, worker = ? WHERE id IN "
            "(SELECT id FROM raw_jobs WHERE queue = ? AND state = 0 AND run_at <= ? "
            "ORDER BY priority DESC, run_at, id LIMIT ?) RETURNING id, payload",
            (now + _VISIBILITY, "worker", "q", now, n),
        ).fetchall()

    def ack(self, job_id: int) -> None:
        self.connection.execute("DELETE FROM raw_jobs WHERE id = ? AND state = 1", (job_id,))

    def ack_batch(self, ids: list[int]) -> None:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        self.connection.executemany("DELETE FROM raw_jobs WHERE id = ? AND state = 1", [(one,) for one in ids])
        run("COMMIT")


class RawTransport:
    """The lease lies on the group's row; the group goes to the back of the turn order when it is claimed."""

    def __init__(self, path: str, durability: str) -> None:
        self.connection = _connect(path, durability)
        self.turn = count(1)

    def publish_many(self, items: list[tuple[str, str]]) -> None:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO raw_groups (name, turn) VALUES (?, 0) ON CONFLICT DO NOTHING", [(name,) for name, _ in items]
        )
        self.connection.executemany("INSERT INTO raw_messages (name, event) VALUES (?, ?)", items)
        run("COMMIT")

    def claim(self, n: int) -> list[tuple[str, int, str]]:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        heads = run(
            "SELECT g.name, m.seq, m.event FROM (SELECT name FROM raw_groups WHERE seq IS NULL ORDER BY turn LIMIT ?) g"
            " JOIN raw_messages m ON m.seq = (SELECT min(seq) FROM raw_messages WHERE name = g.name)",
            (n,),
        ).fetchall()
        expires = _now() + _VISIBILITY
        self.connection.executemany(
            "UPDATE raw_groups SET seq = ?, turn = ?, expires = ?, worker = ? WHERE name = ?",
            [(seq, next(self.turn), expires, "worker", name) for name, seq, _ in heads],
        )
        self.connection.executemany(
            "UPDATE raw_messages SET deliveries = deliveries + 1 WHERE seq = ?", [(seq,) for _, seq, _ in heads]
        )
        run("COMMIT")
        return heads

    def ack_batch(self, leases: list[tuple[str, int, str]]) -> None:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        self.connection.executemany("DELETE FROM raw_messages WHERE seq = ?", [(seq,) for _, seq, _ in leases])
        names = [(name,) for name, _, _ in leases]
        self.connection.executemany("UPDATE raw_groups SET seq = NULL WHERE name = ?", names)
        self.connection.executemany(
            "DELETE FROM raw_groups WHERE name = ?1 AND NOT EXISTS (SELECT 1 FROM raw_messages WHERE name = ?1)", names
        )
        run("COMMIT")


def _connect(path: str, durability: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=64)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {durability.upper()}")
    connection.executescript(_SCHEMA)
    return connection


def _now() -> int:
    return time.time_ns() // 1_000
