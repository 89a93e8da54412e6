"""Files and connections. DANGER: closing any descriptor of the database file drops every lock this process holds on it,
so nothing but SQLite opens it. Nor does anything here use a file of which a connection was inherited over a fork."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from rota.engines.sqlite.failures import is_busy, is_too_old, not_made, translated
from rota.errors import EngineUnavailable
from rota.sql import migrate
from rota.sql.drive import run

T = TypeVar("T")

OLDEST = (3, 35, 0)
MIGRATIONS = migrate.load("rota.engines.sqlite", "schema")

# The wait between two tries for a lock held by another process, in seconds: it doubles, with jitter.
_FIRST_WAIT, _LONGEST_WAIT = 0.0002, 0.005

# Between making a file and the first SQLite connection on it no other thread may connect: closing the descriptor it was
# made with would drop that connection's locks.
_making = threading.Lock()


# Files of which this process has inherited an open connection.
_inherited: set[str] = set()


def forked() -> None:
    """In a forked child: whoever held the lock is not here."""
    global _making
    _making = threading.Lock()


def inherit(path: str) -> None:
    """In a forked child that has inherited a connection: refuse the file from here on (see ``forks``)."""
    _inherited.add(path)


def patiently(attempt: Callable[[], T], deadline: float) -> T:
    """Try until it is not busy or ``time.monotonic()`` reaches the deadline; then the busy error passes through."""
    pause = _FIRST_WAIT
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not is_busy(error) or is_too_old(error):
                raise
            time.sleep(min(pause * random.uniform(0.5, 1.0), remaining))
            pause = min(pause * 2, _LONGEST_WAIT)


def check_version() -> None:
    """``EngineUnavailable`` where SQLite lacks RETURNING."""
    if sqlite3.sqlite_version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise EngineUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old: Rota needs {oldest} or newer", lasting=True
        )


def prepare_file(path: str, create: bool) -> None:
    """Make the file, for its owner only, unless it is there."""
    if os.path.isdir(path):
        raise EngineUnavailable(f"{path} is a folder: give the path of a file in it", lasting=True)
    if os.path.exists(path):
        return
    if not create:
        raise EngineUnavailable(f"{path} does not exist: it is made by the first command that stores something")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise EngineUnavailable(
            f"the folder {folder} does not exist: make it, or give another path than {path}", lasting=True
        )
    with _making:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            # Another process was faster. Its file is as good.
            pass
        except OSError as error:
            raise not_made(error, path) from error


def identity(path: str) -> tuple[int, int] | None:
    """Which file has this name now; None if none has."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: str, durability: str, deadline: float, *, reading: bool = False) -> sqlite3.Connection:
    """A connection, set up. Never makes a file. Raises Rota's errors only."""
    if path in _inherited:
        raise EngineUnavailable(
            f"{path} was in use when this process was forked, in the middle of a call or not by Python's own fork, so "
            "this process cannot use it: open the store after the fork, or fork while no call is under way",
            lasting=True,
        )
    try:
        with _making:
            connection = sqlite3.connect(
                f"file:{quote(path)}?mode=rw",
                uri=True,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        patiently(lambda: _set_up(connection, path, durability, reading), deadline)
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, path: str, durability: str, reading: bool) -> None:
    execute = connection.execute
    if execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        mode = execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise EngineUnavailable(
                f"{path}: SQLite cannot keep a write-ahead log here, its journal mode stays {mode!r}", lasting=True
            )
    execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    # One checkpointer at a time, under a lock of our own (see checkpoint.py).
    execute("PRAGMA wal_autocheckpoint = 0")
    execute("PRAGMA cache_size = -16000")
    execute("PRAGMA temp_store = MEMORY")
    # What is deleted may stay readable in the file until its page is used again, as on most systems' SQLite.
    execute("PRAGMA secure_delete = OFF")
    if reading:
        execute("PRAGMA query_only = ON")


def restore(cursor: sqlite3.Cursor) -> None:
    """Make a connection that its user was given as it was. SQLite's error where a statement is left that writes."""
    connection = cursor.connection
    connection.row_factory = None
    connection.text_factory = str
    if connection.isolation_level is not None:
        connection.isolation_level = None
    cursor.execute("SAVEPOINT rota_probe")
    cursor.execute("RELEASE rota_probe")


def bring_up_to_date(connection: sqlite3.Connection, path: str, deadline: float) -> None:
    """Make or migrate the schema; several processes may do so at once. Raises Rota's errors only."""
    try:
        if patiently(lambda: migrate.check(schema_version(connection), MIGRATIONS, path), deadline):
            return
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"), deadline)
        try:
            # Another process may have been faster.
            version = schema_version(connection)
            if not migrate.check(version, MIGRATIONS, path):
                run(migrate.migrate(version, MIGRATIONS), connection.cursor())
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise translated(error, path) from error


def schema_version(connection: sqlite3.Connection) -> int:
    """The version of the schema in the file, 0 where there is none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'rota_meta'").fetchone():
        return 0
    row = connection.execute("SELECT schema_version FROM rota_meta").fetchone()
    return int(row[0]) if row else 0
