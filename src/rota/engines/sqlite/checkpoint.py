"""Moving the write-ahead log back into the database, one process at a time.

SQLite 3.7.0 to 3.51.2 has a rare bug that can corrupt a database when two connections checkpoint at the same instant.
Hence no automatic checkpoints, and a lock of our own around ours: ``flock`` on ``<database>-lock``.

When to do so is told by the size of the log file. After a complete checkpoint SQLite writes the log from its start
again and the file keeps its size, so only a file that outgrows the size it had then means there is something to move.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Not a POSIX system.
    fcntl = None  # type: ignore[assignment]

# A log of this size is moved, in bytes: about a thousand pages, SQLite's own measure.
LIMIT = 4 << 20
# A log this large is cut back, once it is moved. Between the two it is overwritten in place, which saves the file
# system the work of growing it.
CUT = 16 << 20
# If readers or another checkpointer were in the way: try again when it has grown by this much.
_LATER = 1 << 20


class Checkpointer:
    """Bounds the log of one database file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._log = path + "-wal"
        self._lock_path = path + "-lock"
        self._lock: int | None = None
        self._limit = LIMIT

    def consider(self, connection: sqlite3.Connection) -> None:
        """Checkpoint if the log has outgrown its limit. The caller holds the writer, outside a transaction."""
        size = self.log_size()
        if size <= self._limit:
            if size < self._limit and self._limit > LIMIT:
                # Somebody has cut it.
                self._limit = max(LIMIT, size)
            return
        if not self._acquire(0):
            self._limit = size + _LATER
            return
        try:
            mode = "TRUNCATE" if size > CUT else "PASSIVE"
            busy, frames, moved = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            complete = not busy and frames == moved
            self._limit = max(LIMIT, self.log_size()) + (0 if complete else _LATER)
        except sqlite3.Error:
            # Nothing is lost: the log holds it all, and the next one tries again.
            self._limit = size + _LATER
        finally:
            self._release()

    def log_size(self) -> int:
        """Bytes of the log file; 0 where there is none."""
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0

    def close(self, connection: sqlite3.Connection, patience: float) -> None:
        """Close a connection: the last one of all checkpoints, so under the lock."""
        held = self._acquire(patience)
        try:
            connection.close()
        finally:
            if held:
                self._release()
            self.forget()

    def forget(self) -> None:
        """Close the lock file. In a forked child: the parent's lock lives on in the parent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _acquire(self, patience: float) -> bool:
        if fcntl is None:
            return True
        deadline = time.monotonic() + patience
        while True:
            try:
                if self._lock is None:
                    self._lock = self._open_lock()
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.005)

    def _open_lock(self) -> int:
        """For whoever may write the database, as SQLite makes its own files beside it: others could never checkpoint,
        and the log would grow for ever."""
        lock = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o600)
        with suppress(OSError):
            allowed = stat.S_IMODE(os.stat(self._path).st_mode) & 0o666
            # Not the owner's: it is as the owner made it.
            if stat.S_IMODE(os.fstat(lock).st_mode) != allowed:
                os.fchmod(lock, allowed)
        return lock

    def _release(self) -> None:
        if fcntl is not None and self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
