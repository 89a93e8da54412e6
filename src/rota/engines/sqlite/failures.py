"""SQLite's errors in the language of Rota (E): none of them leaves the engine raw."""

from __future__ import annotations

import sqlite3

from rota.errors import EngineBusy, EngineFull, EngineUnavailable, OutcomeUnknown, RotaError

# An extended code's low byte is its primary code.
_PRIMARY = 0xFF
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def code_of(error: sqlite3.Error) -> int | None:
    """The primary result code; None if the error comes from the driver itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY


def is_busy(error: sqlite3.Error) -> bool:
    """Whether trying again may help."""
    return code_of(error) in _BUSY


def translated(error: sqlite3.Error, path: str, *, committing: bool = False) -> RotaError:
    """The error to raise instead. ``committing``: it came from COMMIT, so that not all failures left nothing behind."""
    code = code_of(error)
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    told = f"{path}: {error} ({name})"
    if code in _BUSY:
        return EngineBusy(f"{told}: another process holds the lock, nothing was changed")
    if code == sqlite3.SQLITE_FULL:
        return EngineFull(f"{told}: the disk or the file's page limit is full, nothing was stored")
    if committing:
        return OutcomeUnknown(
            f"{told} while committing: the change may or may not have happened; repeat it with a key to be safe"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return EngineUnavailable(f"{told}: give the path of a Rota database, or of a file that does not exist yet")
    return EngineUnavailable(f"{told}: nothing was changed")
