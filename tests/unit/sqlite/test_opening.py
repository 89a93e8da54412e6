"""Making, opening and closing the file."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rota.engines.sqlite import connecting, open_sqlite
from rota.engines.sqlite.connecting import MIGRATIONS
from rota.errors import EngineUnavailable, SchemaMismatch, StoreClosed
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP
from rota.sql.drive import run
from rota.sql.migrate import Migration, load, migrate

JOB = NewJob('"payload"', DEFAULT_STAMP)


def modes(folder: Path) -> dict[str, int]:
    return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}


def test_all_files_are_the_owners_alone(engine, tmp_path) -> None:
    old = os.umask(0)
    try:
        engine.queue("q").enqueue(JOB)
        engine.checkpointer._limit = 0
        engine.checkpointer.consider(engine._writer.connection)
    finally:
        os.umask(old)
    assert modes(tmp_path) == dict.fromkeys(("rota.db", "rota.db-wal", "rota.db-shm", "rota.db-lock"), 384)


def test_the_last_close_leaves_no_log(opening, tmp_path) -> None:
    first, second = opening(), opening()
    first.queue("q").enqueue(JOB)
    first.close()
    assert (tmp_path / "rota.db-wal").exists()
    second.close()
    assert not (tmp_path / "rota.db-wal").exists()


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_durability_is_the_synchronous_level(opening, durability: str, level: int) -> None:
    engine = opening(durability=durability)
    assert engine._writer.execute("PRAGMA synchronous").fetchone() == (level,)
    assert engine._writer.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    assert engine.facts()["synchronous"] == durability


def test_reading_does_not_make_a_file(opening, tmp_path) -> None:
    with pytest.raises(EngineUnavailable, match="does not exist"):
        opening(create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path, clock) -> None:
    with pytest.raises(EngineUnavailable, match=f"folder {tmp_path}/none does not exist"):
        open_sqlite(f"{tmp_path}/none/rota.db", url="", now=clock)


def test_a_file_that_is_no_database(opening, path) -> None:
    Path(path).write_text("certainly not a database, but long enough to be looked at as one" * 20)
    with pytest.raises(EngineUnavailable, match="not a database"):
        opening()


def test_a_folder_instead_of_a_file(opening, path) -> None:
    os.mkdir(path)
    with pytest.raises(EngineUnavailable, match="is a folder: give the path of a file in it"):
        opening()


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "what?.db", "#1.db", "ünïcode.db"])
def test_any_file_name(tmp_path, clock, name: str) -> None:
    engine = open_sqlite(str(tmp_path / name), url="", now=clock)
    engine.queue("q").enqueue(JOB)
    engine.close()
    assert (tmp_path / name).stat().st_size > 0


def test_a_newer_schema_is_refused(opening, path) -> None:
    opening().close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE rota_meta SET schema_version = 99")
    connection.close()
    with pytest.raises(SchemaMismatch, match=r"version 99.*works with 1.*upgrade"):
        opening()


def test_an_old_sqlite_is_refused(opening, monkeypatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(EngineUnavailable, match=r"too old: Rota needs 3\.35\.0"):
        opening()


def test_the_applications_own_tables_stay(opening, path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (mine TEXT)")
        connection.execute("INSERT INTO jobs VALUES ('kept')")
    connection.close()
    opening().queue("q").enqueue(JOB)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT mine FROM jobs").fetchall() == [("kept",)]
    connection.close()


# -- Schema ----------------------------------------------------------------------------------------------------------

_NEXT = Migration(2, ("ALTER TABLE rota_queues ADD COLUMN note TEXT", "CREATE INDEX rota_note ON rota_queues (note)"))


def _schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_a_fresh_schema_is_a_migrated_schema() -> None:
    """From nothing to the newest version at once, or version by version: the same schema."""
    versions = (*MIGRATIONS, _NEXT)
    fresh, stepwise = (sqlite3.connect(":memory:", isolation_level=None) for _ in range(2))
    run(migrate(0, versions), fresh.cursor())
    for version in range(len(versions)):
        run(migrate(version, versions[: version + 1]), stepwise.cursor())
    assert _schema(fresh) == _schema(stepwise)
    assert any(name == "rota_note" for name, _ in _schema(fresh))
    assert connecting.schema_version(fresh) == connecting.schema_version(stepwise) == 2
    fresh.close()
    stepwise.close()


def test_an_older_file_is_migrated_and_keeps_its_data(opening, monkeypatch) -> None:
    opening().queue("q").enqueue(JOB)
    monkeypatch.setattr(connecting, "MIGRATIONS", (*MIGRATIONS, _NEXT))
    engine = opening()
    assert engine.facts()["schema_version"] == 2
    assert engine.queue("q").stats().pending == 1


def test_a_migration_that_fails_leaves_nothing(opening, path, monkeypatch) -> None:
    broken = Migration(2, ("CREATE TABLE rota_half (a)", "CREATE TABLE rota_half (a)"))
    opening().close()
    monkeypatch.setattr(connecting, "MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(EngineUnavailable, match="rota_half already exists"):
        opening()
    with sqlite3.connect(path) as connection:
        assert connecting.schema_version(connection) == 1
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rota_half'").fetchall()
    connection.close()


def test_migrations_have_no_gaps(monkeypatch) -> None:
    assert [migration.version for migration in load("rota.engines.sqlite", "schema")] == [1]
    assert all("INSERT" in text or text.startswith("CREATE") for text in MIGRATIONS[0].statements)


_OPEN = """
import sys, time
from rota.engines.sqlite import open_sqlite
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP
path, start = sys.argv[1], float(sys.argv[2])
time.sleep(max(0, start - time.time()))
engine = open_sqlite(path, url=path, now=lambda: time.time_ns() // 1000, durability="normal", busy_timeout=20)
engine.queue("q").enqueue(NewJob("1", DEFAULT_STAMP))
engine.close()
"""


def test_ten_processes_open_a_new_file_at_once(opening, path) -> None:
    start = str(time.time() + 1.5)
    processes = [
        subprocess.Popen([sys.executable, "-c", _OPEN, path, start], stderr=subprocess.PIPE) for _ in range(10)
    ]
    for process in processes:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error.decode()
    engine = opening()
    assert engine.queue("q").stats().pending == 10
    assert [job.id for job in engine.queue("q").jobs("pending", 20, None)] == list(range(1, 11))


# -- Closing ---------------------------------------------------------------------------------------------------------


def test_after_close_every_verb_says_so(engine) -> None:
    queue = engine.queue("q")
    engine.close()
    engine.close()
    for verb in (lambda: queue.enqueue(JOB), queue.stats, lambda: queue.claim("w", 1, None), engine.facts):
        with pytest.raises(StoreClosed):
            verb()


def test_close_waits_for_a_running_verb(engine) -> None:
    running, go_on = threading.Event(), threading.Event()

    def slow(now):
        running.set()
        assert go_on.wait(10)
        return "done"
        yield

    results: list[str] = []
    verb = threading.Thread(target=lambda: results.append(engine.write(slow)))
    verb.start()
    assert running.wait(10)
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    assert not engine.closed
    go_on.set()
    closing.join(10)
    verb.join(10)
    assert results == ["done"]
    assert engine.closed
