"""What ``rota doctor`` prints about a database."""

from __future__ import annotations

import os
import sqlite3
import stat
from typing import Any

from rota.engines.sqlite.connecting import MIGRATIONS, schema_version

_SYNCHRONOUS = ("off", "normal", "full", "extra")


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """3.7.0 to 3.51.2 can corrupt a log when two connections checkpoint at once; fixed also in 3.50.7 and 3.44.6."""
    if version < (3, 7, 0) or version >= (3, 51, 3):
        return False
    return not ((3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0))


def gather(connection: sqlite3.Connection, path: str, durability: str, log_bytes: int, check: bool) -> dict[str, Any]:
    """The facts; the caller holds the connection."""

    def pragma(name: str) -> Any:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    # stat does not open the file, which nothing but SQLite may do.
    mode = stat.S_IMODE(os.stat(path).st_mode)
    facts: dict[str, Any] = {
        "engine": "sqlite",
        "path": path,
        "sqlite_version": sqlite3.sqlite_version,
        "wal_reset_bug": has_wal_reset_bug(sqlite3.sqlite_version_info),
        "durability": durability,
        "journal_mode": pragma("journal_mode"),
        "synchronous": _SYNCHRONOUS[pragma("synchronous")],
        "file_mode": f"{mode:04o}",
        "readable_by_others": bool(mode & 0o077),
        "schema_version": schema_version(connection),
        "newest_schema_version": MIGRATIONS[-1].version,
        "page_size": pragma("page_size"),
        "pages": pragma("page_count"),
        "free_pages": pragma("freelist_count"),
        "wal_bytes": log_bytes,
    }
    if check:
        facts["quick_check"] = [row[0] for row in connection.execute("PRAGMA quick_check")]
    return facts
