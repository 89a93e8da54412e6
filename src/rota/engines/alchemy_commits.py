"""What is to be done once a transaction of SQLAlchemy's has been committed (X1), found out by its public events.

``commit`` of an engine comes before the database commits, which may still fail; ``after_commit`` of a session also
where the session has joined a transaction that somebody else ends. So what is to be done is kept with the driver's
connection and done at the first thing that can only happen after a successful commit: the connection goes back to
its pool, as it does in the same instant for sessions and ``engine.begin()``, or it begins anew. What was undone by then
is gone. The listeners are functions without a state, once per engine however many connections and sessions it has.
"""

from __future__ import annotations

import logging
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

_KEY = "rota.after_commit"
_known: weakref.WeakSet[Any] = weakref.WeakSet()


class _Pending:
    """What waits for the end of one transaction."""

    __slots__ = ("acts", "committing", "failed_in")

    def __init__(self) -> None:
        # Each with the number of the savepoint it was asked for in, 0: none.
        self.acts: list[tuple[float, Callable[[], None]]] = []
        self.committing = False
        # Where a statement has failed, on PostgreSQL: its COMMIT would roll back, and nobody would say so.
        self.failed_in: float | None = None

    def act(self) -> None:
        acts, self.acts = self.acts, []
        for _, act in acts:
            try:
                act()
            except Exception:
                # In the middle of the caller's own commit; what is to be done is a hint (X7).
                logging.getLogger("rota").warning("waking waiters after a commit failed", exc_info=True)


def after_commit(connection: Any, act: Callable[[], None]) -> None:
    """Have ``act`` called after the commit of the transaction that a connection is in; never after a rollback."""
    if connection.closed or connection.invalidated:
        return
    _listen(connection.engine)
    pending = connection.info.setdefault(_KEY, _Pending())
    pending.acts.append((_savepoint(connection), act))


def _listen(engine: Any) -> None:
    if engine in _known:
        return
    event = sys.modules["sqlalchemy"].event
    for name, listener in (
        ("begin", _begins),
        ("begin_twophase", _begins),
        ("commit", _commits),
        ("commit_twophase", _commits),
        ("rollback", _undone),
        ("rollback_twophase", _undone),
        ("rollback_savepoint", _savepoint_undone),
        ("handle_error", _failed),
        ("checkin", _given_back),
    ):
        event.listen(engine, name, listener, named=True)
    _known.add(engine)


def _of(connection: Any) -> _Pending | None:
    if connection is None or connection.closed or connection.invalidated:
        return None
    found: _Pending | None = connection.info.get(_KEY)
    return found


def _commits(conn: Any, **_: Any) -> None:
    pending = _of(conn)
    if pending is not None:
        pending.committing = pending.failed_in is None


def _failed(exception_context: Any, **_: Any) -> None:
    connection = exception_context.connection
    pending = _of(connection)
    if pending is None:
        return
    if pending.committing:
        _undone(connection)
    elif connection.dialect.name == "postgresql" and pending.failed_in is None:
        pending.failed_in = _savepoint(connection)


def _undone(conn: Any, **_: Any) -> None:
    if _of(conn) is not None:
        del conn.info[_KEY]


def _begins(conn: Any, **_: Any) -> None:
    pending = _of(conn)
    if pending is not None:
        del conn.info[_KEY]
        if pending.committing:
            pending.act()


def _given_back(connection_record: Any, **_: Any) -> None:
    pending: _Pending | None = connection_record.info.pop(_KEY, None)
    if pending is not None and pending.committing:
        pending.act()


def _savepoint_undone(conn: Any, name: str, **_: Any) -> None:
    """Savepoints are numbered: what was asked for in this one or in a later one is undone."""
    pending = _of(conn)
    if pending is not None:
        number = _number(name, -1)
        pending.acts = [(within, act) for within, act in pending.acts if within < number]
        if pending.failed_in is not None and pending.failed_in >= number:
            pending.failed_in = None


def _savepoint(connection: Any) -> float:
    nested = connection.get_nested_transaction()
    return 0 if nested is None else _number(getattr(nested, "_savepoint", ""), math.inf)


def _number(savepoint: Any, unknown: float) -> float:
    """``unknown`` is such that rather too much is dropped than too little."""
    digits = str(savepoint).rpartition("_")[2]
    return int(digits) if digits.isdecimal() else unknown
