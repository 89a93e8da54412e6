"""The caller's own connection (X4): what it is, told by the names of its classes, so that no library is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from rota.errors import TransactionAborted, TransactionError

Library = Literal["sqlite3", "psycopg", "asyncpg", "sqlalchemy", "django"]

ACCEPTED = (
    "a transaction of the store, sqlite3.Connection, psycopg.Connection or AsyncConnection, asyncpg.Connection, "
    "SQLAlchemy's Connection, Session or their async forms, or Django's connection"
)


class Kind(NamedTuple):
    """A library's connection. ``session``: it hands out connections, as SQLAlchemy's sessions do."""

    library: Library
    asynchronous: bool
    session: bool = False


# By package and class name; subclasses count.
_KINDS = {
    ("sqlite3", "Connection"): Kind("sqlite3", False),
    ("psycopg", "Connection"): Kind("psycopg", False),
    ("psycopg", "AsyncConnection"): Kind("psycopg", True),
    ("asyncpg", "Connection"): Kind("asyncpg", True),
    ("asyncpg", "PoolConnectionProxy"): Kind("asyncpg", True),
    ("sqlalchemy", "Connection"): Kind("sqlalchemy", False),
    ("sqlalchemy", "Session"): Kind("sqlalchemy", False, True),
    ("sqlalchemy", "scoped_session"): Kind("sqlalchemy", False, True),
    ("sqlalchemy", "AsyncConnection"): Kind("sqlalchemy", True),
    ("sqlalchemy", "AsyncSession"): Kind("sqlalchemy", True, True),
    ("sqlalchemy", "async_scoped_session"): Kind("sqlalchemy", True, True),
    ("django", "BaseDatabaseWrapper"): Kind("django", False),
    ("django", "ConnectionProxy"): Kind("django", False),
}


def unwrapped(given: Any) -> Any:
    """What instrumentation (OpenTelemetry's, say) has put a proxy before: its own is found in ``__wrapped__``."""
    inner = given
    while _kind(inner) is None and (behind := getattr(inner, "__wrapped__", None)) is not None:
        inner = behind
    return given if _kind(inner) is None else inner


def _kind(given: Any) -> Kind | None:
    for cls in type(given).__mro__:
        kind = _KINDS.get((cls.__module__.partition(".")[0], cls.__name__))
        if kind is not None:
            return kind
    return None


def recognise(given: Any, url: str, *, asynchronous: bool) -> Kind:
    """What ``tx=`` was given. ``TypeError`` for what is no connection, or one of the other colour."""
    kind = _kind(given)
    if kind is None:
        raise TypeError(f"tx= takes {ACCEPTED}; got {type(given).__module__}.{type(given).__qualname__}")
    if kind.asynchronous is not asynchronous:
        mine, other = ("async", "sync") if asynchronous else ("sync", "async")
        raise TypeError(
            f"this is a verb of the {mine} facade, but tx= is the {other} connection "
            f"{type(given).__module__}.{type(given).__qualname__}: use store.as_{other}()"
        )
    return kind


def other_engine(given: Any, url: str) -> TypeError:
    """A connection of a library that does not lead to such an engine."""
    return TypeError(f"tx= is a {type(given).__module__}.{type(given).__qualname__}, which cannot lead to {url}")


def django_wrapper(given: Any) -> Any:
    """Django's connection of this thread, connected, behind its proxy."""
    wrapper = getattr(given, "_connections", None)
    real = given if wrapper is None else wrapper[given._alias]
    real.ensure_connection()
    return real


def check_django(wrapper: Any, url: str) -> None:
    """Refuse where Django's own cursor would: in a block that is to be rolled back, and in another thread."""
    if wrapper.needs_rollback:
        raise TransactionAborted(
            f"{url}: an exception left an inner block of this transaction.atomic(), so Django rolls it back: run it "
            "again"
        )
    try:
        wrapper.validate_thread_sharing()
    except Exception as error:
        raise TransactionError(f"{url}: tx= cannot be used here: {error}") from error


def django_autocommits(wrapper: Any) -> bool:
    """Whether Django commits each statement by itself just now."""
    return not wrapper.in_atomic_block and bool(wrapper.get_autocommit())


def django_on_commit(wrapper: Any, act: Callable[[], None]) -> None:
    """Django calls it after the commit of the outermost block, never after a rollback; by hand it does not."""
    if wrapper.in_atomic_block:
        sys.modules["django.db"].transaction.on_commit(act, using=wrapper.alias, robust=True)


DJANGO_ADVICE = "Django would commit each statement by itself here: write with transaction.atomic()"
