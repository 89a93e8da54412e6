"""Connections and the pool of the sync facade.

A pool of our own: ``psycopg_pool`` costs 20 µs per verb beside a round trip of 55, hides why a connection could not be
made until its timeout is over, and keeps threads that a fork loses.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg._cursor_base import BaseCursor
from psycopg.abc import Dumper, Loader
from psycopg.adapt import AdaptersMap
from psycopg.pq import ExecStatus
from psycopg.types.array import ListDumper
from psycopg.types.bool import BoolDumper, BoolLoader
from psycopg.types.numeric import Int8Dumper, IntLoader
from psycopg.types.string import StrDumperUnknown, TextLoader

from rota.errors import EngineBusy, StoreClosed

# One type for every int, whatever its size, and none for text: statements and functions resolve alike.
_DUMPERS: tuple[tuple[type, type[Dumper]], ...] = (
    (int, Int8Dumper),
    (str, StrDumperUnknown),
    (bool, BoolDumper),
    (list, ListDumper),
)
_LOADERS: tuple[tuple[str, type[Loader]], ...] = (
    ("int8", IntLoader),
    ("int4", IntLoader),
    ("text", TextLoader),
    ("bool", BoolLoader),
)
# A connection idle for longer may have been cut by a firewall without a word; the next use makes a new one.
IDLE_LIMIT = 600.0
_CLOSING_PATIENCE = 5.0


def prepare(connection: psycopg.Connection | psycopg.AsyncConnection, threshold: int | None) -> None:
    """What every connection of Rota has in common; nothing of it lives in the server's session."""
    connection.prepare_threshold = threshold
    connection.adapters.register_dumper(int, Int8Dumper)


def _plain() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    for cls, dumper in _DUMPERS:
        adapters.register_dumper(cls, dumper)
    for name, loader in _LOADERS:
        adapters.register_loader(name, loader)
    return adapters


# How our statements' values are written and read, whatever the program has taught psycopg or a connection.
PLAIN = _plain()


def has_news(fileno: int) -> bool:
    """Whether something arrived that nobody asked for: as a rule, that the server said goodbye. Costs half a µs."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


def is_alive(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether an idle connection can still be used, without a round trip."""
    pgconn = connection.pgconn
    if connection.closed:
        return False
    try:
        if has_news(pgconn.socket):
            # A notice or a parameter's new value is read and forgotten; an end shows in the status.
            pgconn.consume_input()
            return pgconn.status == psycopg.pq.ConnStatus.OK and not has_news(pgconn.socket)
    except (psycopg.Error, OSError):
        return False
    return True


class Attentive(BaseCursor[Any, Any]):
    """A cursor that knows whether the server had answered a statement before its session ended."""

    adapters = PLAIN
    answered = True

    def _check_results(self, results: list[Any]) -> None:
        # Where psycopg no longer calls this, every lost connection counts as an unknown outcome.
        self.answered = any(result.status != ExecStatus.FATAL_ERROR for result in results)
        super()._check_results(results)


class AttentiveCursor(Attentive, psycopg.Cursor[Any]):
    """For threads."""


class Session:
    """One connection with its cursor."""

    __slots__ = ("connection", "cursor", "used_at")

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.cursor = AttentiveCursor(connection)
        self.used_at = 0.0

    def close(self) -> None:
        self.connection.close()


class Pool:
    """Sessions for threads: the last one given back is the first one taken."""

    def __init__(self, connect: Callable[[], psycopg.Connection], size: int, patience: float, shown: str) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._shown = shown
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[Session] = []
        self._all: set[Session] = set()
        # Connections being made count too.
        self._count = 0
        self.closed = False

    def take(self) -> Session:
        """A session that looked alive just now. ``EngineBusy`` when all are in use for too long."""
        deadline = time.monotonic() + self._patience
        with self._changed:
            while True:
                if self.closed:
                    raise StoreClosed(f"{self._shown} is closed: open the store again")
                if self._idle:
                    session = self._idle.pop()
                    if time.monotonic() - session.used_at < IDLE_LIMIT and is_alive(session.connection):
                        return session
                    self._forget(session)
                    continue
                if self._count < self._size:
                    self._count += 1
                    break
                self._wait(deadline - time.monotonic())
        return self._make()

    def give(self, session: Session) -> None:
        """Give a session back; a broken one, or one in the middle of something, is closed."""
        usable = session.connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        session.used_at = time.monotonic()
        with self._changed:
            if session not in self._all:
                # ``fresh`` took it away and found no other.
                return
            if usable and not self.closed:
                self._idle.append(session)
            else:
                self._forget(session)
            self._changed.notify()

    def fresh(self, session: Session) -> Session:
        """Another session in place of one that broke. The old one is closed even if this fails."""
        with self._changed:
            self._forget(session)
            if self.closed:
                raise StoreClosed(f"{self._shown} is closed: open the store again")
            # Those beside it broke for the same reason, as a rule.
            for idle in [idle for idle in self._idle if not is_alive(idle.connection)]:
                self._idle.remove(idle)
                self._forget(idle)
            self._count += 1
        return self._make()

    def close(self) -> None:
        """Close what is idle now and the rest as it comes back; waits a little for running verbs to end."""
        deadline = time.monotonic() + _CLOSING_PATIENCE
        with self._changed:
            self.closed = True
            for session in self._idle:
                self._forget(session)
            self._idle.clear()
            self._changed.notify_all()
            while self._count and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def leak(self, keep: Callable[[object], None]) -> None:
        """In a forked child: never say goodbye on the parent's sockets; only this process's descriptors go."""
        for session in self._all:
            keep(session)
            keep(session.connection)
            try:
                os.close(session.connection.pgconn.socket)
            except (psycopg.Error, OSError):
                pass

    def _wait(self, seconds: float) -> None:
        if seconds <= 0 or not self._changed.wait(seconds):
            raise EngineBusy(
                f"{self._shown}: all {self._size} connections of this store were in use for {self._patience} seconds, "
                "nothing was changed; open it with a larger pool_size"
            )

    def _make(self) -> Session:
        try:
            session = Session(self._connect())
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise
        with self._changed:
            self._all.add(session)
        return session

    def _forget(self, session: Session) -> None:
        if session not in self._all:
            return
        self._count -= 1
        self._all.discard(session)
        try:
            session.close()
        except (psycopg.Error, OSError):
            pass
