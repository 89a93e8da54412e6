"""Transactions of the engine (X1): the verbs of queues and transports, on a connection that stays in one transaction.

What the verbs note in Python (where claims need to look) counts when the transaction is committed, not before. That a
queue or transport exists is noted outside of it, so that nobody has to wait for its end: such a name may stay.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from rota.engines.postgres.failures import READ_ONLY, did_nothing, is_lost, reads_only
from rota.engines.postgres.loops import LoopSession, cancellation
from rota.engines.postgres.notes import GroupNotes, JobNotes
from rota.engines.postgres.running import BEGIN
from rota.engines.postgres.sessions import Session, is_alive
from rota.engines.postgres.verbs import BoundVerb, verb
from rota.engines.verb_lock import VerbLock
from rota.errors import RotaError, TransactionAborted, TransactionError
from rota.sql.drive import Block, Op
from rota.units import MICROSECONDS

if TYPE_CHECKING:
    from rota.engines.postgres.engine import PostgresEngine
    from rota.engines.postgres.queue import PostgresQueue
    from rota.engines.postgres.transport import PostgresTransport

P = ParamSpec("P")
T = TypeVar("T")

# The host's idea of the server's clock may be wrong by this much, in microseconds.
_DOUBT = 1 * MICROSECONDS
_NOTIFY = Block("notify", "SELECT pg_notify(%s, %s)", True)


class Verbs:
    """The verbs of one transaction. Stands in for the engine and its runner in copies of its queues and transports."""

    bounded = False

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine
        self.known_queues = engine.known_queues
        self.runner = self
        self._views: dict[int, tuple[Any, Any]] = {}
        self._notes: list[JobNotes | GroupNotes] = []
        # Notifications so far.
        self._told = 0
        # Threads, or tasks, that use one transaction take turns.
        self._verb_lock = VerbLock()
        self._loop_turn = asyncio.Lock()

    def queue(self, queue: PostgresQueue) -> PostgresQueue:
        """Its verbs in this transaction."""
        view: PostgresQueue | None = self._known(queue)
        if view is None:
            view = self._view(queue)
            notes = JobNotes(queue, self.engine.now() - _DOUBT)
            self._notes.append(notes)
            view._frontier = notes
        return view

    def transport(self, transport: PostgresTransport) -> PostgresTransport:
        """Its verbs in this transaction."""
        view: PostgresTransport | None = self._known(transport)
        if view is None:
            view = self._view(transport)
            view._settled = True
            notes: Any = GroupNotes(transport)
            self._notes.append(notes)
            view._frontiers = notes
        return view

    def _known(self, original: Any) -> Any:
        known = self._views.get(id(original))
        return known[1] if known is not None and known[0] is original else None

    def _view(self, original: Any) -> Any:
        view = copy.copy(original)
        view._engine = self
        view.outside = original
        self._views[id(original)] = original, view
        return view

    def committed(self) -> None:
        """What was done is visible now: claims need to look there."""
        for notes in self._notes:
            notes.committed()

    def _acting(self, act: Callable[[], None]) -> Callable[[], None]:
        """``act``, after what has to be known before somebody looks."""

        def both() -> None:
            self.committed()
            act()

        return both

    # -- Carrying out --------------------------------------------------------------------------------------------------

    def run(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run a verb in this thread."""
        return self._verb_lock.take(lambda: self._run(verb, args, kwargs))

    def _run(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        before = self._before(verb)
        if before is not None:
            self.engine.runner.carry_out(before, (), {})
        op = verb.op(*args, **kwargs)
        reply: Any = None
        try:
            self._check()
            while True:
                block, values = op.send(reply)
                reply = self._reply(block, values)
        except StopIteration as end:
            result: T = end.value
            return result
        except Exception as error:
            self._raise(error)
        finally:
            op.close()

    async def arun(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run a verb on the running loop."""
        async with self._loop_turn:
            before = self._before(verb)
            if before is not None:
                await self.engine.runner.acarry_out(before, (), {})
            op = verb.op(*args, **kwargs)
            reply: Any = None
            try:
                await self._acheck()
                while True:
                    block, values = op.send(reply)
                    reply = await self._areply(block, values)
            except StopIteration as end:
                result: T = end.value
                return result
            except Exception as error:
                self._raise(error)
            finally:
                op.close()

    def _before(self, verb: BoundVerb[..., Any]) -> BoundVerb[[], None] | None:
        outside = getattr(verb.owner, "outside", None)
        return None if outside is None else outside.before()

    def _check(self) -> None:
        """Whether a statement may be sent."""

    async def _acheck(self) -> None:
        self._check()

    def _reply(self, block: Block, values: Any) -> Any:
        raise NotImplementedError

    async def _areply(self, block: Block, values: Any) -> Any:
        raise NotImplementedError

    def _raise(self, error: Exception) -> NoReturn:
        raise self._failure(error)

    def _failure(self, error: Exception) -> Exception:
        """What to raise instead."""
        raise NotImplementedError

    async def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb on the running loop. A statement under way is waited for when the task is cancelled."""
        run: Any = verb
        try:
            result: T = await run.arun(*args, **kwargs)
            return result
        finally:
            cancelled = cancellation()
            if cancelled is not None:
                raise cancelled

    # -- Commands ------------------------------------------------------------------------------------------------------

    @verb
    def notify(self, channel: str, payload: str | None) -> Op[None]:
        """Tell everyone who is subscribed, at commit (X6)."""
        yield _NOTIFY, self.engine.notification(channel, payload, self._told)
        self._told += 1

    @verb
    def savepoint(self, name: str) -> Op[None]:
        yield Block("savepoint", f"SAVEPOINT {name}", False), ()

    @verb
    def release(self, name: str) -> Op[None]:
        yield Block("release", f"RELEASE SAVEPOINT {name}", False), ()

    @verb
    def _rollback_to(self, name: str) -> Op[None]:
        yield Block("rollback_to", f"ROLLBACK TO SAVEPOINT {name}", False), ()
        yield Block("release", f"RELEASE SAVEPOINT {name}", False), ()

    @property
    def rollback_to(self) -> Both:
        return Both(self._undo, self._aundo)

    def _undo(self, name: str) -> None:
        try:
            self._rollback_to(name)
        except RotaError:
            # The transaction is over; whoever commits it is told.
            pass

    async def _aundo(self, name: str) -> None:
        try:
            await self._rollback_to.arun(name)
        except RotaError:
            pass


class Both:
    """Something with a sync and an async form, like a verb."""

    __slots__ = ("_run", "arun")

    def __init__(self, run: Callable[..., None], arun: Callable[..., Awaitable[None]]) -> None:
        self._run = run
        self.arun = arun

    def __call__(self, *args: Any) -> None:
        self._run(*args)


class PostgresTransaction(Verbs):
    """One transaction on a connection of the engine's pools, given back at its end."""

    def __init__(self, engine: PostgresEngine, session: Any, give: Callable[[Any], None]) -> None:
        super().__init__(engine)
        self._session = session
        self._give = give
        self._process = os.getpid()
        self._is_over = False
        self._only_reads = False
        self.connection = session.connection

    @property
    def commit(self) -> Both:
        return Both(self._commit, self._acommit)

    @property
    def rollback(self) -> Both:
        return Both(self._roll_back, self._aroll_back)

    def _commit(self, then: Callable[[], None]) -> None:
        session: Session = self._session
        try:
            self._whole()
            session.cursor.execute(b"COMMIT")
        except psycopg.Error as error:
            self._raise_not_committed(error)
        finally:
            self._end()
        self.committed()
        then()

    async def _acommit(self, then: Callable[[], None]) -> None:
        session: LoopSession = self._session
        try:
            self._whole()
            await session.cursor.execute(b"COMMIT")
        except psycopg.Error as error:
            self._raise_not_committed(error)
        finally:
            self._end()
        self.committed()
        then()

    def _roll_back(self) -> None:
        if os.getpid() == self._process and not self._is_over:
            try:
                self.engine.runner.roll_back(self._session)
            finally:
                self._end()

    async def _aroll_back(self) -> None:
        if os.getpid() == self._process and not self._is_over:
            try:
                await self.engine.runner.aroll_back(self._session)
            finally:
                self._end()

    def abandon(self) -> None:
        """Close the connection: there is no loop to send a ROLLBACK on."""
        self._session.close()
        self._end()

    def _end(self) -> None:
        if os.getpid() != self._process or self._is_over:
            return
        self._is_over = True
        connection = self.connection
        # Whoever was given the connection may have set these.
        connection.row_factory = psycopg.rows.tuple_row
        if self._only_reads:
            self._session.close()
        self._give(self._session)

    def _whole(self) -> None:
        """Whether there is something to commit: COMMIT after a failed statement rolls back, and does not say so."""
        self._check()
        status = self.connection.pgconn.transaction_status
        if status != TransactionStatus.INTRANS or not is_alive(self.connection):
            raise self._ended("a statement in it failed, or its connection was cut")

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise self._ended("it is the parent's of this forked process")
        connection = self.connection
        # psycopg's own context manager commits, and closes.
        closed = connection.closed and not connection.broken
        if closed or connection.pgconn.transaction_status == TransactionStatus.IDLE:
            raise TransactionError(
                f"{self.engine.url}: a statement of yours on tx.connection has ended this transaction, or closed it; "
                "leave that to the end of its block, or tx.rollback()"
            )

    def _ended(self, why: str) -> TransactionAborted:
        return TransactionAborted(f"{self.engine.url}: {why}, so the transaction is rolled back: run it again")

    def _raise_not_committed(self, error: psycopg.Error) -> NoReturn:
        errors = self.engine.errors
        if is_lost(error, self.connection) and not did_nothing(error, self._session.cursor.answered):
            raise errors.unknown(error)
        raise errors.aborted(error)

    def _reply(self, block: Block, values: Any) -> Any:
        return self.engine.runner.reply(self._session, block, values)

    async def _areply(self, block: Block, values: Any) -> Any:
        return await self.engine.runner.areply(self._session, block, values)

    def _failure(self, error: Exception) -> Exception:
        if not isinstance(error, psycopg.Error):
            return error
        if error.sqlstate == READ_ONLY:
            self._only_reads = True
            if reads_only(self.connection):
                return self.engine.errors.unavailable(error)
        return self.engine.errors.in_transaction(error, lost=is_lost(error, self.connection))

    def on_commit(self, act: Callable[[], None]) -> None:
        """Not asked: the facade knows when it commits."""


def begin(engine: PostgresEngine) -> PostgresTransaction:
    """Begin a transaction in this thread; on another connection if the first one turns out to be of no more use."""
    pool = engine.held_pool
    session = pool.take()
    try:
        if reads_only(session.connection):
            session = pool.fresh(session)
        try:
            session.cursor.execute(BEGIN)
        except psycopg.Error as error:
            _check_lost(engine, error, session)
            session = pool.fresh(session)
            session.cursor.execute(BEGIN)
    except BaseException as error:
        pool.give(session)
        _raise_unbegun(engine, error)
    return PostgresTransaction(engine, session, pool.give)


async def abegin(engine: PostgresEngine) -> PostgresTransaction:
    """Begin a transaction on the running loop."""
    pool = engine.held_loops.pool()
    session = await pool.take()
    try:
        if reads_only(session.connection):
            session = await pool.fresh(session)
        try:
            await session.cursor.execute(BEGIN)
        except psycopg.Error as error:
            _check_lost(engine, error, session)
            session = await pool.fresh(session)
            await session.cursor.execute(BEGIN)
        cancelled = cancellation()
        if cancelled is not None:
            await engine.runner.aroll_back(session)
            raise cancelled
    except BaseException as error:
        pool.give(session)
        _raise_unbegun(engine, error)
    return PostgresTransaction(engine, session, pool.give)


def _check_lost(engine: PostgresEngine, error: psycopg.Error, session: Session | LoopSession) -> None:
    if not is_lost(error, session.connection):
        raise engine.errors.refused(error)


def _raise_unbegun(engine: PostgresEngine, error: BaseException) -> NoReturn:
    raise engine.errors.unavailable(error) if isinstance(error, psycopg.Error) else error
