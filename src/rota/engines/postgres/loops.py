"""Connections for event loops: one pool per loop, since a connection's socket is watched by one loop only."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from rota.engines.postgres.sessions import IDLE_LIMIT, Attentive, is_alive
from rota.errors import EngineBusy, StoreClosed

T = TypeVar("T")

# A cancelled task waits this long for the reply to its statement, in seconds; then the connection is given up.
_PATIENCE_AFTER_CANCEL = 5.0


class LoopConnection(psycopg.AsyncConnection[Any]):
    """A connection whose statements run to their end even when the awaiting task is cancelled.

    psycopg would ask the server to cancel the statement and throw its reply away, and a claim that the server had
    committed by then would be held by nobody. Here the reply is waited for, then handed over: ``acall_or_undo`` gives
    back what was claimed. A second task per statement would cost 20 µs, and itself be cancelled when the loop ends.
    """

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Drive one of psycopg's generators by callbacks of the loop."""
        try:
            wanted = next(gen)
        except StopIteration as end:
            return end.value
        driver = _Driver(gen, self.pgconn.socket, asyncio.get_running_loop())
        driver.watch(wanted)
        while True:
            try:
                await driver.ended
                break
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None:
                    _cancellations.setdefault(task, error)
                if driver.done:
                    break
                # The future was cancelled with the task: wait for another, but not for ever.
                driver.ended = driver.loop.create_future()
                driver.loop.call_later(_PATIENCE_AFTER_CANCEL, driver.give_up, self.pgconn)
        return driver.result()


# Tasks that were cancelled while a statement of theirs ran: told at the end of the verb.
_cancellations: weakref.WeakKeyDictionary[asyncio.Task[Any], asyncio.CancelledError] = weakref.WeakKeyDictionary()


def cancellation() -> asyncio.CancelledError | None:
    """The cancellation that came to the current task while a statement ran, once."""
    task = asyncio.current_task()
    return None if task is None or not _cancellations else _cancellations.pop(task, None)


class _Driver:
    """One generator of psycopg's, sent on whenever its socket is ready."""

    def __init__(self, gen: Any, fileno: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ended: asyncio.Future[None] = loop.create_future()
        self.done = False
        self._gen = gen
        self._fileno = fileno
        self._value: Any = None
        self._error: BaseException | None = None
        self._watched = 0

    def watch(self, wanted: int) -> None:
        """Call back when the socket is as the generator wants it."""
        if wanted == self._watched:
            return
        loop, fileno = self.loop, self._fileno
        if wanted & _READ:
            loop.add_reader(fileno, self._ready, _READ)
        elif self._watched & _READ:
            loop.remove_reader(fileno)
        if wanted & _WRITE:
            loop.add_writer(fileno, self._ready, _WRITE)
        elif self._watched & _WRITE:
            loop.remove_writer(fileno)
        self._watched = wanted

    def _ready(self, state: int) -> None:
        try:
            self.watch(self._gen.send(state))
            return
        except StopIteration as end:
            self._value = end.value
        except BaseException as error:
            self._error = error
        self._end()

    def give_up(self, pgconn: Any) -> None:
        """No reply came: the server hangs, or the network does."""
        if not self.done:
            self._error = psycopg.OperationalError("no reply came after the task was cancelled")
            self._end()
            pgconn.finish()

    def _end(self) -> None:
        self.watch(0)
        self.done = True
        if not self.ended.done():
            self.ended.set_result(None)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


_READ, _WRITE = int(psycopg.waiting.Wait.R), int(psycopg.waiting.Wait.W)


class AttentiveLoopCursor(Attentive, psycopg.AsyncCursor[Any]):
    """For loops."""


class LoopSession:
    """One connection of a loop with its cursor."""

    __slots__ = ("connection", "cursor", "used_at")

    def __init__(self, connection: LoopConnection) -> None:
        self.connection = connection
        self.cursor = AttentiveLoopCursor(connection)
        self.used_at = 0.0

    def close(self) -> None:
        """Say goodbye at once: psycopg's own ``close`` is a coroutine, but does nothing else."""
        self.connection._closed = True
        finish: Any = self.connection.pgconn.finish
        finish()


class LoopPool:
    """The sessions of one loop. Its methods run on that loop, but for ``close``."""

    def __init__(
        self, connect: Callable[[], Awaitable[LoopConnection]], size: int, patience: float, shown: str
    ) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._shown = shown
        self._idle: list[LoopSession] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._count = 0
        self.all: set[LoopSession] = set()
        self.closed = False
        self._ending: AsyncGenerator[None, None] | None = None

    async def take(self) -> LoopSession:
        """A session that looked alive just now."""
        deadline = time.monotonic() + self._patience
        while True:
            if self.closed:
                raise StoreClosed(f"{self._shown} is closed: open the store again")
            while self._idle:
                session = self._idle.pop()
                if time.monotonic() - session.used_at < IDLE_LIMIT and is_alive(session.connection):
                    return session
                self._forget(session)
            if self._count < self._size:
                self._count += 1
                return await self._make()
            await self._wait(deadline - time.monotonic())

    def give(self, session: LoopSession) -> None:
        """Give a session back; a broken one, or one in the middle of something, is closed."""
        if session not in self.all:
            return
        session.used_at = time.monotonic()
        if not self.closed and session.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._idle.append(session)
            self._next()
        else:
            self._forget(session)

    async def fresh(self, session: LoopSession) -> LoopSession:
        """Another session in place of one that broke."""
        self._forget(session)
        if self.closed:
            raise StoreClosed(f"{self._shown} is closed: open the store again")
        for idle in [idle for idle in self._idle if not is_alive(idle.connection)]:
            self._idle.remove(idle)
            self._forget(idle)
        self._count += 1
        return await self._make()

    def close(self) -> None:
        """Close what is idle now, the rest as it comes back; waiters get ``StoreClosed``. On the pool's loop, or after
        its end."""
        self.closed = True
        for session in self._idle:
            self._forget(session)
        self._idle.clear()
        while self._waiting:
            self._next()

    async def end_with_loop(self) -> None:
        """Have the pool closed when ``asyncio.run`` ends: a loop closes the async generators it knows."""

        async def until_the_end() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                self.close()

        self._ending = until_the_end()
        await anext(self._ending)

    async def _wait(self, seconds: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await turn
        except TimeoutError:
            raise EngineBusy(
                f"{self._shown}: all {self._size} connections of this store were in use for {self._patience} seconds, "
                "nothing was changed; open it with a larger pool_size"
            ) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Our turn came together with the cancellation: somebody else's then.
                self._next()
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _make(self) -> LoopSession:
        try:
            if self._ending is None:
                await self.end_with_loop()
            session = LoopSession(await self._connect())
        except BaseException:
            self._count -= 1
            self._next()
            raise
        self.all.add(session)
        return session

    def _forget(self, session: LoopSession) -> None:
        if session in self.all:
            self.all.discard(session)
            self._count -= 1
            session.close()
            self._next()


class LoopPools:
    """The pools of an engine, by loop."""

    def __init__(
        self, connect: Callable[[], Awaitable[LoopConnection]], size: int, patience: float, shown: str
    ) -> None:
        self._make: Callable[[], LoopPool] = lambda: LoopPool(connect, size, patience, shown)
        self._shown = shown
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self.closed = False

    def pool(self) -> LoopPool:
        """The running loop's pool."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is not None and not pool.closed:
            return pool
        with self._lock:
            if self.closed:
                raise StoreClosed(f"{self._shown} is closed: open the store again")
            self._drop_ended()
            pool = self._pools[loop] = self._make()
        return pool

    def close(self) -> None:
        """Close every pool, each on its own loop where that still runs. From any thread."""
        with self._lock:
            self.closed = True
            pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            if loop.is_closed():
                pool.close()
                continue
            try:
                if asyncio._get_running_loop() is loop:
                    pool.close()
                elif loop.is_running():
                    loop.call_soon_threadsafe(pool.close)
                else:
                    pool.close()
            except RuntimeError:
                pool.close()

    def leak(self, keep: Callable[[object], None]) -> None:
        """In a forked child: see ``Pool.leak``."""
        keep(self._pools)
        for pool in self._pools.values():
            for session in pool.all:
                keep(session)
                keep(session.connection)
                try:
                    os.close(session.connection.pgconn.socket)
                except (psycopg.Error, OSError):
                    pass

    def _drop_ended(self) -> None:
        """Loops that ended without closing their generators."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            self._pools.pop(loop).close()
