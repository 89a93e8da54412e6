"""The SQLite engine: one file, many threads and processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rota.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine", "open_sqlite"]


def open_sqlite(
    path: str,
    *,
    url: str,
    now: Callable[[], int],
    durability: Literal["full", "normal"] = "full",
    busy_timeout: float = 5.0,
    create: bool = True,
) -> SqliteEngine:
    """Open a database file, made and brought to this version's schema if need be.

    ``now`` tells whole microseconds. ``durability`` full: a commit is on the disk when it returns; normal: a power cut
    may take the newest commits. ``busy_timeout`` is how many seconds a call waits for another process's lock.

    Raises ``EngineUnavailable`` (no such folder, not a database, ``create=False`` and no file, SQLite too old),
    ``SchemaMismatch`` (written by a newer Rota) or ``EngineBusy``.
    """
    return SqliteEngine(path, url=url, now=now, durability=durability, busy_timeout=busy_timeout, create=create)
