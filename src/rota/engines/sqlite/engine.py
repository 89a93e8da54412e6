"""``rota.contract.Engine`` on SQLite: one writer connection and one reader per process, guarded by locks.

Every write is one short ``BEGIN IMMEDIATE`` transaction, and ``now`` is read after it began (C7). Other processes'
locks are waited for here, with small sleeps, not inside SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, ParamSpec, TypeVar

from rota import forks as all_forks
from rota.clock import wall_clock
from rota.engines.sqlite import facts, forks
from rota.engines.sqlite.calls import Calls, only_reads
from rota.engines.sqlite.checkpoint import Checkpointer
from rota.engines.sqlite.connecting import (
    bring_up_to_date,
    check_version,
    connect,
    identity,
    inherit,
    patiently,
    prepare_file,
    restore,
)
from rota.engines.sqlite.failures import is_busy, is_too_old, translated
from rota.engines.sqlite.queue import SqliteQueue
from rota.engines.sqlite.subscribing import TableSubscription
from rota.engines.sqlite.transactions import SqliteTransaction
from rota.engines.sqlite.transport import SqliteTransport
from rota.engines.sqlite.wake import SqliteWakeups
from rota.errors import EngineBusy, EngineUnavailable, StoreClosed
from rota.holders import Holders
from rota.sql import channels
from rota.sql.drive import Op, run
from rota.sql.keys import STORE
from rota.wakeups import Wakeups

P = ParamSpec("P")
T = TypeVar("T")

# The log's size is looked at after this many commits of this process.
_COMMITS_PER_LOOK = 8
# Between two looks whether the file is still there, in seconds.
_FILE_LOOKED_AT = 0.25
# A transaction that lets others go first looks this often whether they have, in seconds.
_GO_FIRST_LOOK = 0.0005
# After a transaction the next one comes so much later, of the time that the former took, but at most twice what other
# processes, who have to look again and again, sleep between two looks: else they would find it locked each time.
_GAP_SHARE, _LONGEST_GAP = 0.05, 0.01
# Readers take turns at one connection.
_READING_THREADS = 2
# How long closing waits for another process's checkpoint to end, in seconds.
_CLOSING_PATIENCE = 5.0


class SqliteEngine:
    """One database file, opened."""

    durable = True
    transactions_at_once: int | None = 1

    def __init__(
        self,
        path: str,
        *,
        url: str,
        now: Callable[[], int],
        durability: Literal["full", "normal"],
        busy_timeout: float,
        create: bool,
    ) -> None:
        check_version()
        self.path = os.path.realpath(path)
        self.url = url
        self.now = now
        self.durability = durability
        self.busy_timeout = busy_timeout
        self.known_queues: set[str] = set()
        self.holders = Holders()
        # Which file it is, known once it is open.
        self._file: tuple[int, int] | None = None
        self.closed = False
        prepare_file(self.path, create)
        self._start()
        self._listening = SqliteWakeups(self.path, _weak_version(self))
        self.wakeups: Wakeups = self._listening
        forks.watch(self)
        try:
            with self.write_lock:
                self._open_writer()
                self._file = identity(self.path)
        except BaseException:
            forks.forget(self)
            raise

    def _start(self) -> None:
        """All that belongs to this process alone; a forked child does it again."""
        self.write_lock = threading.Lock()
        # Who waits for it.
        self._waiting: set[object] = set()
        self._read_lock = threading.Lock()
        self._writer: sqlite3.Cursor | None = None
        self._reader: sqlite3.Cursor | None = None
        self._commits = 0
        self._look_at = 0.0
        # When the open transaction began, and until when there is none after the last one.
        self._begun_at = self._gap_until = 0.0
        self._held_to_fork: list[threading.Lock] = []
        self.checkpointer = Checkpointer(self.path)
        self.calls = Calls()
        # The threads above may all be waiting for a transaction to end. So there is one for transactions alone, and for
        # whatever else their holders call; and some for all who only read.
        self.held_calls = Calls(1)
        self._reading_calls = Calls(_READING_THREADS)

    # -- Transactions ------------------------------------------------------------------------------------------------

    def write(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """Run an operation in a write transaction of its own; ``now`` is its first argument."""
        lock = self.write_lock
        if not lock.acquire(blocking=False):
            if self.holders:
                self.holders.check()
            self._wait_for(lock, self.busy_timeout)
        try:
            cursor = self._begin()
            try:
                result = run(op(self.now(), *values), cursor)
            except BaseException as error:
                self._roll_back(cursor)
                if isinstance(error, sqlite3.Error):
                    raise translated(error, self.path) from error
                raise
            self._commit(cursor)
            return result
        finally:
            lock.release()

    def _begin(self) -> sqlite3.Cursor:
        """The writer, in a write transaction. Under its lock."""
        if time.monotonic() >= self._look_at:
            self.look_at_file()
        cursor = self._writer or self._open_writer()
        try:
            try:
                cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                cursor = self._begin_patiently(cursor, error)
        except BaseException as error:
            self._roll_back(cursor)
            if isinstance(error, sqlite3.Error):
                raise translated(error, self.path) from error
            raise
        return cursor

    def _commit(self, cursor: sqlite3.Cursor) -> None:
        try:
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(cursor)
            raise translated(error, self.path, committing=True) from error
        self._commits += 1
        if not self._commits % _COMMITS_PER_LOOK:
            self.checkpointer.consider(cursor.connection)

    def begin(self) -> SqliteTransaction:
        """A transaction on the writer, which is its own until it ends. Who begins it is noted as its holder before."""
        lock = self.write_lock
        deadline = time.monotonic() + self.busy_timeout
        if self._waiting:
            self._let_go_first(deadline)
        gap = self._gap_until - time.monotonic()
        if gap > 0:
            time.sleep(gap)
        if not lock.acquire(blocking=False):
            self._wait_for(lock, deadline - time.monotonic())
        try:
            transaction = SqliteTransaction(self, self._begin(), lock)
            self._begun_at = time.monotonic()
            return transaction
        except BaseException:
            lock.release()
            raise

    def abegin(self) -> Awaitable[SqliteTransaction]:
        """``begin`` in the engine's threads."""
        return self.calls.call_or_undo(self.begin, SqliteTransaction.rollback, by=self.held_calls)

    def adopt(self, connection: Any, *, asynchronous: bool) -> Any:
        """A transaction on the caller's own connection (X4)."""
        from rota.engines.sqlite import foreign

        return foreign.adopt(self, connection, asynchronous=asynchronous)

    def end(self, cursor: sqlite3.Cursor, lock: threading.Lock, *, commit: bool) -> None:
        """The end of a transaction that ``begin`` began."""
        try:
            if commit:
                self._commit(cursor)
            else:
                self._roll_back(cursor)
        finally:
            if cursor is self._writer:
                try:
                    restore(cursor)
                except sqlite3.Error:
                    # A statement of the caller's is left that writes: as long as it is, nothing can be committed here.
                    self._discard(cursor)
            if self.closed:
                self._close_connections()
            now = time.monotonic()
            self._gap_until = now + min((now - self._begun_at) * _GAP_SHARE, _LONGEST_GAP)
            lock.release()

    def write_until(self, op: Callable[..., Op[T | None]], *values: Any) -> T:
        """Run an operation again, each time in a transaction of its own, until it gives a result."""
        while True:
            result = self.write(op, *values)
            if result is not None:
                return result

    def write_rounds(self, op: Callable[..., Op[int]], *values: Any, limit: int) -> int:
        """Run an operation that handles at most ``limit`` items until it finds fewer; how many it handled in all."""
        total = 0
        while True:
            count = self.write(op, *values, limit)
            total += count
            if count < limit:
                return total

    def read(self, op: Callable[..., Op[T]], *values: Any) -> T:
        """Run an operation on one snapshot, beside any writer."""
        deadline = time.monotonic() + self.busy_timeout
        with self._read_lock:
            reader = self._open_reader(deadline)
            try:
                return patiently(lambda: self._snapshot(reader, op, values), deadline)
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

    def _open_reader(self, deadline: float) -> sqlite3.Cursor:
        """The reader, under its lock."""
        if self.closed:
            raise self._store_closed()
        if self._reader is None or time.monotonic() >= self._look_at:
            self.look_at_file()
        if self._reader is None:
            self._reader = connect(self.path, self.durability, deadline, reading=True).cursor()
        return self._reader

    def _snapshot(self, cursor: sqlite3.Cursor, op: Callable[..., Op[T]], values: tuple[Any, ...]) -> T:
        cursor.execute("BEGIN")
        try:
            return run(op(self.now(), *values), cursor)
        finally:
            self._roll_back(cursor)

    def _let_go_first(self, deadline: float) -> None:
        """Those who wait for the writer already: transactions in a row, which hold it for long, would shut them out."""
        before = list(self._waiting)
        while any(one in self._waiting for one in before) and time.monotonic() < deadline:
            time.sleep(_GO_FIRST_LOOK)

    def _wait_for(self, lock: threading.Lock, seconds: float) -> None:
        place = object()
        self._waiting.add(place)
        try:
            acquired = lock.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        finally:
            self._waiting.discard(place)
        if not acquired:
            raise EngineBusy(
                f"{self.path}: another thread of this process held the writer for {self.busy_timeout} seconds, "
                "nothing was changed"
            )

    def _begin_patiently(self, cursor: sqlite3.Cursor, error: sqlite3.Error) -> sqlite3.Cursor:
        if cursor.connection.in_transaction:
            # An interrupt came between a statement and what would have ended its transaction.
            cursor.execute("ROLLBACK")
        elif not is_busy(error):
            raise error
        deadline = time.monotonic() + self.busy_timeout
        try:
            return patiently(lambda: cursor.execute("BEGIN IMMEDIATE"), deadline)
        except sqlite3.Error as later:
            if not is_too_old(later):
                raise
        # Whoever was given the connection has left a statement unfinished, which keeps it at what was there then.
        self._discard(cursor)
        fresh = self._open_writer()
        return patiently(lambda: fresh.execute("BEGIN IMMEDIATE"), deadline)

    def _roll_back(self, cursor: sqlite3.Cursor) -> None:
        """Leave the connection usable. SQLite may have rolled back by itself."""
        try:
            if cursor.connection.in_transaction:
                cursor.execute("ROLLBACK")
        except sqlite3.Error:
            # A connection that cannot even roll back is of no more use; closing it gives its locks back.
            self._discard(cursor)

    def _discard(self, cursor: sqlite3.Cursor) -> None:
        if cursor is self._writer:
            self._writer = None
        elif cursor is self._reader:
            self._reader = None
        with suppress(sqlite3.Error):
            cursor.connection.close()

    def _open_writer(self) -> sqlite3.Cursor:
        """Open the writer: at the start, in a forked child, after a failure."""
        if self.closed:
            raise self._store_closed()
        deadline = time.monotonic() + self.busy_timeout
        connection = connect(self.path, self.durability, deadline)
        try:
            bring_up_to_date(connection, self.path, deadline)
        except BaseException:
            self.checkpointer.close(connection, 0)
            raise
        self._writer = connection.cursor()
        return self._writer

    def look_at_file(self) -> None:
        """Now and then: what is written to a file that lost its name is lost, and who waits there waits for ever."""
        if not self.closed and self._file is not None and identity(self.path) != self._file:
            raise EngineUnavailable(
                f"{self.path} was deleted or replaced while it was open, nothing was changed: close the store and open "
                "it again",
                lasting=True,
            )
        self._look_at = time.monotonic() + _FILE_LOOKED_AT

    def _store_closed(self) -> StoreClosed:
        return StoreClosed(f"{self.url} is closed: open the store again")

    def foreign_version(self) -> int | None:
        """A number that changes when another connection commits; None if this process is writing just now."""
        if not self.write_lock.acquire(blocking=False):
            return None
        try:
            if self._writer is None:
                return None
            row = self._writer.execute("PRAGMA data_version").fetchone()
            return int(row[0])
        except sqlite3.Error:
            return None
        finally:
            self.write_lock.release()

    # -- The contract ------------------------------------------------------------------------------------------------

    def transport(self, name: str, declared: dict[str, Any]) -> SqliteTransport:
        """A handle's transport; does no I/O."""
        return SqliteTransport(self, name, declared)

    def queue(self, name: str) -> SqliteQueue:
        """A handle's queue; does no I/O."""
        return SqliteQueue(self, name)

    @only_reads
    def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""
        return self.read(_names, STORE.transports)

    @only_reads
    def queues(self) -> list[str]:
        """Names of the queues that exist, sorted."""
        return self.read(_names, STORE.queues)

    def notify(self, channel: str, payload: str | None) -> None:
        """Store a notification for whoever is subscribed (X6)."""
        self.write(_at_wall_clock, channel, payload)

    def subscribe(self, channel: str) -> TableSubscription:
        """A place in a channel: what is notified from here on."""
        return TableSubscription(self, channel)

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a verb in the engine's threads; it runs to its end even if its awaiting task is cancelled."""
        if self.holders.here():
            return self.held_calls.call(self.holders.for_task(verb), *args, **kwargs)
        calls = self._reading_calls if getattr(verb, "only_reads", False) else self.calls
        return calls.call(verb, *args, **kwargs)

    def acall_or_undo(self, verb: Callable[..., T], undo: Callable[[T], object], *args: Any) -> Awaitable[T]:
        """``acall`` for claims: when the awaiting task is cancelled, ``undo`` gets the verb's result."""
        if self.holders.here():
            return self.held_calls.call_or_undo(self.holders.for_task(verb), undo, *args)
        return self.calls.call_or_undo(verb, undo, *args)

    @only_reads
    def facts(self, *, check: bool = False) -> dict[str, Any]:
        """What ``rota doctor`` prints; ``check`` reads the whole file for damage."""
        with self._read_lock:
            connection = self._open_reader(time.monotonic() + self.busy_timeout).connection
            try:
                return facts.gather(connection, self.path, self.durability, self.checkpointer.log_size(), check)
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

    def close(self) -> None:
        """Let running verbs end, then close; waiters wake and raise ``StoreClosed``. Quiet when repeated."""
        self.wakeups.close()
        # A transaction that stays open for longer closes the connections when it ends.
        held = self.write_lock.acquire(timeout=_CLOSING_PATIENCE)
        try:
            with self._read_lock:
                if self.closed:
                    return
                self.closed = True
                forks.forget(self)
                if held:
                    self._close_connections()
        finally:
            if held:
                self.write_lock.release()
        for calls in (self.calls, self.held_calls, self._reading_calls):
            calls.close()

    def _close_connections(self) -> None:
        """Under both locks. The next verbs open new ones, unless the engine is closed."""
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if self._file is not None and identity(self.path) not in (self._file, None):
            # Another file has the name now. Closing would delete that one's log.
            for cursor in filter(None, (writer, reader)):
                forks.leak(cursor.connection)
            return
        if reader is not None:
            reader.connection.close()
        if writer is not None:
            self.checkpointer.close(writer.connection, _CLOSING_PATIENCE)

    # -- Forks (see ``forks``) -----------------------------------------------------------------------------------------

    def before_fork(self, deadline: float) -> None:
        """Let the verbs of other threads end, and close the connections."""
        if self.holders.here():
            # It would wait for a transaction of its own; the child refuses the file, as after waiting in vain.
            return
        for lock in (self.write_lock, self._read_lock):
            if not lock.acquire(timeout=all_forks.left(deadline)):
                return
            self._held_to_fork.append(lock)
        self._close_connections()

    def after_fork(self, *, child: bool) -> None:
        """The parent goes on; the child begins anew, and refuses the file if it has inherited a connection."""
        if child:
            self._begin_anew()
            return
        while self._held_to_fork:
            self._held_to_fork.pop().release()

    def _begin_anew(self) -> None:
        for cursor in (self._writer, self._reader):
            if cursor is not None:
                inherit(self.path)
                forks.leak(cursor)
                forks.leak(cursor.connection)
        self.checkpointer.forget()
        self.holders.forked()
        self._listening.forked()
        self._start()


def _weak_version(engine: SqliteEngine) -> Callable[[], int | None]:
    """``foreign_version`` for the listener, whose thread must not keep a forgotten engine alive."""
    living = weakref.ref(engine)

    def version() -> int | None:
        found = living()
        return None if found is None else found.foreign_version()

    return version


def _names(now: int, block: Any) -> Op[list[str]]:
    return [name for (name,) in (yield block, ())]


def _at_wall_clock(now: int, channel: str, payload: str | None) -> Op[None]:
    # How long a notification is kept is a matter of real time: a clock steered by a test must not drop it.
    return channels.notify(wall_clock(), channel, payload)
