"""Carrying out verbs: ``run`` on a session of the pool, ``arun`` on one of the running loop's. Twins, line by line.

What may be repeated: a statement that failed on a conflict did nothing. A connection that broke under a reading
statement, or in a transaction before its COMMIT was sent, or with a goodbye instead of an answer, did nothing either.
All else is ``OutcomeUnknown``, and never repeated here.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from rota.engines.postgres.failures import TOO_STRICT, Translator, did_nothing, is_conflict, is_lost
from rota.holders import Holders
from rota.sql.drive import Block, Op

if TYPE_CHECKING:
    from rota.engines.postgres.loops import LoopPools, LoopSession
    from rota.engines.postgres.sessions import Pool, Session
    from rota.engines.postgres.verbs import BoundVerb

T = TypeVar("T")

# Tries of a statement or transaction that meets conflicts. The pauses between them grow to a tenth of a second.
_TRIES = 30
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1

BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class Runner:
    """The pools of one engine with the names of its schema."""

    def __init__(self, schema: str, pool: Pool, loops: LoopPools, errors: Translator, holders: Holders) -> None:
        self.pool = pool
        self.loops = loops
        self.errors = errors
        self.holders = holders
        self._schema = schema
        self._texts: dict[str, bytes] = {}
        # The database's default isolation is stricter than what the functions need: every verb begins its transaction
        # itself, which takes three round trips.
        self.explicit = False

    def text(self, template: str) -> bytes:
        """A statement with the schema's name filled in."""
        filled = self._texts.get(template)
        if filled is None:
            filled = self._texts[template] = template.replace("{schema}", f'"{self._schema}"').encode()
        return filled

    # -- Threads -----------------------------------------------------------------------------------------------------

    def run(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run a verb in this thread."""
        if self.holders and not verb.reading:
            self.holders.check()
        return self.carry_out(verb, args, kwargs)

    def carry_out(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """``run`` whoever holds a transaction."""
        if not verb.transaction and (verb.reading or not self.explicit):
            try:
                return self._run_alone(verb, args, kwargs)
            except _TooStrict:
                self.explicit = True
        return self._run_transaction(verb, args, kwargs)

    def _run_alone(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Each statement a transaction of its own."""
        op = verb.op(*args, **kwargs)
        session = None
        try:
            block, values = next(op)
            session = self.pool.take()
            while True:
                try:
                    reply = self.reply(session, block, values)
                except psycopg.Error as error:
                    session, reply = self._again(session, block, values, verb.reading, error)
                block, values = op.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            op.close()
            if session is not None:
                self.pool.give(session)

    def reply(self, session: Session, block: Block, values: Any) -> Any:
        """Carry out one statement."""
        text = self._texts.get(block.text) or self.text(block.text)
        cursor = session.cursor
        if type(values) is list:
            if not values:
                return 0
            cursor.executemany(text, values)
            return cursor.rowcount
        cursor.execute(text, values)
        return cursor.fetchall() if block.rows else cursor.rowcount

    def _again(
        self, session: Session, block: Block, values: Any, reading: bool, error: psycopg.Error
    ) -> tuple[Session, Any]:
        retrying = _Retrying(self.errors, reading)
        first = session
        try:
            while True:
                at_stake = not did_nothing(error, session.cursor.answered)
                pause = retrying.after(error, is_lost(error, session.connection), at_stake=at_stake)
                if pause is None:
                    session = self.pool.fresh(session)
                else:
                    time.sleep(pause)
                try:
                    return session, self.reply(session, block, values)
                except psycopg.Error as next_error:
                    error = next_error
        except BaseException:
            if session is not first:
                # The caller does not know of it.
                self.pool.give(session)
            raise

    def _run_transaction(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        retrying = _Retrying(self.errors, verb.reading)
        session = self.pool.take()
        try:
            while True:
                op = verb.op(*args, **kwargs)
                committing = False
                try:
                    session.cursor.execute(_BEGIN_READING if verb.reading else BEGIN)
                    result = self._drive(session, op)
                    committing = True
                    session.cursor.execute(b"COMMIT")
                    return result
                except psycopg.Error as error:
                    self.roll_back(session)
                    pause = retrying.after(error, is_lost(error, session.connection), at_stake=committing)
                except BaseException:
                    self.roll_back(session)
                    raise
                finally:
                    op.close()
                if pause is None:
                    session = self.pool.fresh(session)
                else:
                    time.sleep(pause)
        finally:
            self.pool.give(session)

    def _drive(self, session: Session, op: Op[T]) -> T:
        reply: Any = None
        try:
            while True:
                reply = self.reply(session, *op.send(reply))
        except StopIteration as end:
            result: T = end.value
            return result

    def roll_back(self, session: Session) -> None:
        """Leave the session usable; if that fails it is closed when given back."""
        if session.connection.pgconn.transaction_status in _OPEN:
            try:
                session.cursor.execute(b"ROLLBACK")
            except psycopg.Error:
                pass

    # -- Event loops -------------------------------------------------------------------------------------------------

    async def arun(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run a verb on the running loop. A statement that was sent is always waited for (see ``loops``)."""
        if self.holders and not verb.reading:
            self.holders.check()
        return await self.acarry_out(verb, args, kwargs)

    async def acarry_out(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """``arun`` whoever holds a transaction."""
        if not verb.transaction and (verb.reading or not self.explicit):
            try:
                return await self._arun_alone(verb, args, kwargs)
            except _TooStrict:
                self.explicit = True
        return await self._arun_transaction(verb, args, kwargs)

    async def _arun_alone(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Each statement a transaction of its own."""
        pool = self.loops.pool()
        op = verb.op(*args, **kwargs)
        session = None
        try:
            block, values = next(op)
            session = await pool.take()
            while True:
                try:
                    reply = await self.areply(session, block, values)
                except psycopg.Error as error:
                    session, reply = await self._aagain(session, block, values, verb.reading, error)
                block, values = op.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            op.close()
            if session is not None:
                pool.give(session)

    async def areply(self, session: LoopSession, block: Block, values: Any) -> Any:
        """Carry out one statement."""
        text = self._texts.get(block.text) or self.text(block.text)
        cursor = session.cursor
        if type(values) is list:
            if not values:
                return 0
            await cursor.executemany(text, values)
            return cursor.rowcount
        await cursor.execute(text, values)
        return await cursor.fetchall() if block.rows else cursor.rowcount

    async def _aagain(
        self, session: LoopSession, block: Block, values: Any, reading: bool, error: psycopg.Error
    ) -> tuple[LoopSession, Any]:
        retrying = _Retrying(self.errors, reading)
        first = session
        try:
            while True:
                at_stake = not did_nothing(error, session.cursor.answered)
                pause = retrying.after(error, is_lost(error, session.connection), at_stake=at_stake)
                if pause is None:
                    session = await self.loops.pool().fresh(session)
                else:
                    await asyncio.sleep(pause)
                try:
                    return session, await self.areply(session, block, values)
                except psycopg.Error as next_error:
                    error = next_error
        except BaseException:
            if session is not first:
                # The caller does not know of it.
                self.loops.pool().give(session)
            raise

    async def _arun_transaction(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        retrying = _Retrying(self.errors, verb.reading)
        pool = self.loops.pool()
        session = await pool.take()
        try:
            while True:
                op = verb.op(*args, **kwargs)
                committing = False
                try:
                    await session.cursor.execute(_BEGIN_READING if verb.reading else BEGIN)
                    result = await self._adrive(session, op)
                    committing = True
                    await session.cursor.execute(b"COMMIT")
                    return result
                except psycopg.Error as error:
                    await self.aroll_back(session)
                    pause = retrying.after(error, is_lost(error, session.connection), at_stake=committing)
                except BaseException:
                    await self.aroll_back(session)
                    raise
                finally:
                    op.close()
                if pause is None:
                    session = await pool.fresh(session)
                else:
                    await asyncio.sleep(pause)
        finally:
            pool.give(session)

    async def _adrive(self, session: LoopSession, op: Op[T]) -> T:
        reply: Any = None
        try:
            while True:
                reply = await self.areply(session, *op.send(reply))
        except StopIteration as end:
            result: T = end.value
            return result

    async def aroll_back(self, session: LoopSession) -> None:
        """Leave the session usable; if that fails it is closed when given back."""
        if session.connection.pgconn.transaction_status in _OPEN:
            try:
                await session.cursor.execute(b"ROLLBACK")
            except psycopg.Error:
                pass


_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class _TooStrict(Exception):
    """A function refused to run under an isolation stricter than READ COMMITTED; it did nothing."""


class _Retrying:
    """Decides after each failure of one statement or transaction."""

    def __init__(self, errors: Translator, reading: bool) -> None:
        self._errors = errors
        self._reading = reading
        self._tries = 1
        self._lost = False

    def after(self, error: psycopg.Error, lost: bool, *, at_stake: bool) -> float | None:
        """Seconds to pause before another try, None: try on another connection. Raises where neither may be done."""
        if lost:
            if at_stake and not self._reading:
                raise self._errors.unknown(error)
            if self._lost:
                raise self._errors.unavailable(error)
            self._lost = True
            return None
        if error.sqlstate == TOO_STRICT:
            raise _TooStrict
        if not is_conflict(error) or self._tries >= _TRIES:
            raise self._errors.refused(error)
        pause: float = min(_FIRST_PAUSE * 2 ** min(self._tries, 10), _LONGEST_PAUSE)
        self._tries += 1
        return pause * random.uniform(0.5, 1.0)
