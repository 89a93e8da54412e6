"""SQLite's errors in the language of Rota (E): none of them leaves the engine raw."""

from __future__ import annotations

import errno
import os
import sqlite3

from rota.errors import (
    EngineBusy,
    EngineFull,
    EngineUnavailable,
    OutcomeUnknown,
    RotaError,
    TransactionAborted,
    TransactionError,
)

# An extended code's low byte is its primary code.
_PRIMARY = 0xFF
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# No other try fares better until somebody repairs the file or gives us the right to it.
_LASTING = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)
# Of opening or making a file; others (no descriptors, no space) pass.
_LASTING_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)


def code_of(error: sqlite3.Error) -> int | None:
    """The primary result code; None if the error comes from the driver itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY


def is_busy(error: sqlite3.Error) -> bool:
    """Whether trying again may help."""
    return code_of(error) in _BUSY


def is_too_old(error: sqlite3.Error) -> bool:
    """Whether others wrote since the transaction first read, so that it can never write."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT


def translated(error: sqlite3.Error, path: str, *, committing: bool = False) -> RotaError:
    """The error to raise instead. ``committing``: it came from COMMIT, so that not all failures left nothing behind."""
    code = code_of(error)
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    told = f"{path}: {error} ({name})"
    if code in _BUSY and "statements in progress" in str(error):
        return TransactionError(
            f"{told}: a statement of yours on this connection that writes has rows left (RETURNING): fetch them first"
        )
    if code in _BUSY:
        return EngineBusy(f"{told}: another process or connection holds the lock, nothing was changed")
    if code == sqlite3.SQLITE_FULL:
        return EngineFull(f"{told}: the disk or the file's page limit is full, nothing was stored")
    if committing and code == sqlite3.SQLITE_CONSTRAINT:
        # A deferred foreign key of the caller's own tables: looked at before anything is written.
        return TransactionAborted(f"{told}: the transaction is rolled back, run it again")
    if committing:
        return OutcomeUnknown(
            f"{told} while committing: the change may or may not have happened; repeat it with a key to be safe"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return EngineUnavailable(
            f"{told}: give the path of a Rota database, or of a file that does not exist yet", lasting=True
        )
    if code == sqlite3.SQLITE_CANTOPEN and _is_barred(path):
        return EngineUnavailable(
            f"{told}: give the path of a file that this user may read and write (Rota makes files for their owner)",
            lasting=True,
        )
    return EngineUnavailable(f"{told}: nothing was changed", lasting=code in _LASTING)


def not_made(error: OSError, path: str) -> RotaError:
    """The error for a file that could not be made."""
    return EngineUnavailable(f"{path} cannot be made: {error.strerror}", lasting=error.errno in _LASTING_ERRNOS)


def _is_barred(path: str) -> bool:
    """Whether what has this name is nothing we may open: SQLite does not tell that from a lack of descriptors."""
    return os.path.exists(path) and (not os.path.isfile(path) or not os.access(path, os.R_OK | os.W_OK))
