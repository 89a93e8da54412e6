"""SQLite's errors become Rota's, and the engine works again afterwards (E)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from rota.engines.sqlite import open_sqlite
from rota.engines.sqlite.failures import translated
from rota.errors import EngineBusy, EngineFull, EngineUnavailable, OutcomeUnknown
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP

JOB = NewJob('"payload"', DEFAULT_STAMP)


def error_of(code: int, name: str = "SQLITE_X") -> sqlite3.Error:
    error = sqlite3.OperationalError("told by SQLite")
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_BUSY, EngineBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, EngineBusy),
        (sqlite3.SQLITE_LOCKED, EngineBusy),
        (sqlite3.SQLITE_FULL, EngineFull),
        (sqlite3.SQLITE_IOERR, EngineUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, EngineUnavailable),
        (sqlite3.SQLITE_CANTOPEN, EngineUnavailable),
        (sqlite3.SQLITE_READONLY, EngineUnavailable),
        (sqlite3.SQLITE_CORRUPT, EngineUnavailable),
        (sqlite3.SQLITE_NOTADB, EngineUnavailable),
        (sqlite3.SQLITE_ERROR, EngineUnavailable),
    ],
)
def test_codes(code: int, expected: type[Exception]) -> None:
    assert type(translated(error_of(code), "f.db")) is expected
    committing = translated(error_of(code), "f.db", committing=True)
    known = expected in (EngineBusy, EngineFull)
    assert type(committing) is (expected if known else OutcomeUnknown)


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    error = translated(error_of(sqlite3.SQLITE_CANTOPEN), str(tmp_path))
    assert "a file that this user may read and write" in str(error)


def test_errors_of_the_driver_itself() -> None:
    assert type(translated(sqlite3.ProgrammingError("closed"), "f.db")) is EngineUnavailable


class Failing:
    """A cursor that fails at one statement, once."""

    def __init__(self, cursor: sqlite3.Cursor, at: str, code: int) -> None:
        self._cursor, self._at, self._code = cursor, at, code

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def execute(self, text, *values):
        if text.startswith(self._at):
            self._at = "never again"
            raise error_of(self._code)
        return self._cursor.execute(text, *values)


@pytest.mark.parametrize(
    ("at", "code", "expected"),
    [
        ("COMMIT", sqlite3.SQLITE_IOERR, OutcomeUnknown),
        ("COMMIT", sqlite3.SQLITE_FULL, EngineFull),
        ("INSERT", sqlite3.SQLITE_IOERR, EngineUnavailable),
        ("UPDATE rota_counters", sqlite3.SQLITE_FULL, EngineFull),
        ("BEGIN", sqlite3.SQLITE_CANTOPEN, EngineUnavailable),
    ],
)
def test_a_failed_write_leaves_nothing_and_the_next_one_works(engine, at: str, code: int, expected) -> None:
    queue = engine.queue("q")
    engine._writer = Failing(engine._writer, at, code)
    with pytest.raises(expected):
        queue.enqueue(JOB)
    assert not engine._writer.connection.in_transaction
    assert queue.stats().pending == 0
    queue.enqueue(JOB)
    assert queue.stats().pending == 1


def test_an_exception_in_an_operation_rolls_back(engine) -> None:
    transport = engine.transport("t", {"poison": "hold"})
    transport.publish("g", "1", 0, None, None)
    with pytest.raises(ValueError, match="poison"):
        engine.transport("t", {"poison": "dead-letter"}).publish("g", "2", 0, None, None)
    assert transport.stats().messages == 1


def foreign(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def test_a_foreign_writer_makes_it_busy_and_is_waited_for(engine, path) -> None:
    queue = engine.queue("q")
    other = foreign(path)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(EngineBusy, match="another process"):
        queue.enqueue(JOB)
    assert 0.2 <= time.monotonic() - started < 2
    assert queue.stats().pending == 0
    engine.busy_timeout = 10
    releasing = threading.Timer(0.1, lambda: other.execute("COMMIT"))
    releasing.start()
    queue.enqueue(JOB)
    assert queue.stats().pending == 1
    releasing.join()
    other.close()


def test_a_thread_that_holds_the_writer_makes_it_busy(engine) -> None:
    with engine.write_lock, pytest.raises(EngineBusy, match="another thread"):
        engine.queue("q").enqueue(JOB)
    assert engine.queue("q").enqueue(JOB) == 1


def test_no_busy_timeout_is_too_long(engine) -> None:
    engine.busy_timeout = 4e12
    engine.write_lock.acquire()
    threading.Timer(0.1, engine.write_lock.release).start()
    assert engine.queue("q").enqueue(JOB) == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_lost_its_name_is_noticed(engine, path, replaced) -> None:
    queue = engine.queue("q")
    queue.enqueue(JOB)
    for name in (path, path + "-wal", path + "-shm"):
        os.unlink(name)
    url = "sqlite:///" + path
    new = open_sqlite(path, url=url, now=engine.now) if replaced else None
    if new is not None:
        new.queue("q").enqueue(JOB)
    engine._look_at = 0.0
    for verb in (lambda: queue.enqueue(JOB), queue.stats, lambda: queue.claim("w", 1, None)) * 2:
        with pytest.raises(EngineUnavailable, match="deleted or replaced"):
            verb()
    engine.close()
    # The new file's log is not taken for the old one's.
    assert os.path.exists(path + "-wal") is replaced
    again = open_sqlite(path, url=url, now=engine.now)
    assert again.queue("q").enqueue(JOB) == 1 + replaced
    again.close()
    if new is not None:
        new.close()


def test_a_full_file(engine) -> None:
    queue = engine.queue("q")
    queue.enqueue(JOB)
    (pages,) = engine._writer.execute("PRAGMA page_count").fetchone()
    engine._writer.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(EngineFull, match="nothing was stored"):
        queue.enqueue_many([JOB._replace(payload='"' + "x" * 100_000 + '"')])
    assert queue.stats().pending == 1
    (claim,) = queue.claim("w", 1, None)
    assert queue.ack(claim, None)
    engine._writer.execute(f"PRAGMA max_page_count = {pages + 500}")
    queue.enqueue_many([JOB._replace(payload='"' + "x" * 100_000 + '"')])
    assert queue.stats().pending == 1


def test_a_reader_sees_a_snapshot_beside_a_writer(engine, path) -> None:
    queue = engine.queue("q")
    queue.enqueue(JOB)
    other = foreign(path)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM rota_jobs")
    assert queue.stats().pending == 1
    other.execute("COMMIT")
    assert queue.stats().pending == 0
    other.close()
