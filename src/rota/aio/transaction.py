"""``store.transaction()``, async (X1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rota import names, rules
from rota.aio.queue import AsyncQueue
from rota.aio.transport import AsyncTransport
from rota.facade.transactions import SavepointBase, TransactionBase
from rota.units import Duration, Instant
from rota.wakeups import channel_address


class AsyncTransaction(TransactionBase):
    """Everything done with ``tx=`` becomes visible together at commit or not at all (X1).

    A context manager: it commits when its block ends, and rolls back when an exception leaves it. Committing raises
    ``TransactionAborted`` where the database rolled back instead, ``OutcomeUnknown`` where nobody knows.
    """

    _asynchronous = True

    async def enqueue(
        self,
        queue: str,
        payload: Any,
        *,
        name: str | None = None,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        priority: int | None = 0,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        visibility: Duration | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """``store.queue(queue).enqueue(payload, …, tx=tx)``: with the plain stamp (Q1)."""
        return await AsyncQueue(self._core, queue, None, rules.DEFAULT_STAMP).enqueue(
            payload,
            name=name,
            delay=delay,
            run_at=run_at,
            priority=priority,
            expires=expires,
            max_attempts=max_attempts,
            visibility=visibility,
            key=key,
            headers=headers,
            tx=self,
        )

    async def publish(
        self,
        transport: str,
        group_id: str,
        event: Any,
        priority: int | None = 0,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """``store.transport(transport).publish(group_id, event, …, tx=tx)``."""
        handle = AsyncTransport(self._core, transport, None, {})
        return await handle.publish(group_id, event, priority, key=key, headers=headers, tx=self)

    async def notify(self, channel: str, payload: str | None = None) -> None:
        """``store.notify`` at commit (X6)."""
        running = self._running
        await running.acall(running.notify, names.name(channel, "channel"), names.channel_payload(payload))
        self._changed(channel_address(channel))

    def savepoint(self) -> AsyncSavepoint:
        """``with tx.savepoint():`` an exception that leaves the block undoes the block alone."""
        return AsyncSavepoint(self)

    async def rollback(self) -> None:
        """Undo everything and end the transaction; verbs that name it raise ``TransactionError`` from here on."""
        engine = self._ending("was rolled back")
        try:
            await engine.acall(engine.rollback)
        finally:
            self._unsettled({})
            self._over()

    def _abandon(self) -> None:
        """Undo it where nothing can be awaited: its task is thrown away with its loop."""
        engine = self._ending("was rolled back")
        try:
            engine.abandon()
        finally:
            self._unsettled({})
            self._over()

    async def _commit(self) -> None:
        engine = self._ending("was committed")
        try:
            await engine.acall(engine.commit, self._wake)
        except BaseException as error:
            self._not_committed(error)
            raise
        finally:
            self._over()

    async def __aenter__(self) -> AsyncTransaction:
        self._check_new()
        try:
            self._beginning()
            self._engine = await self._core.engine.abegin()
        except BaseException:
            self._failed_to_begin()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ended is not None:
            return
        if error is None:
            await self._commit()
        else:
            await self.rollback()


class AsyncSavepoint(SavepointBase):
    """A part of a transaction that can be undone alone: a context manager."""

    async def __aenter__(self) -> AsyncSavepoint:
        engine = self._beginning()
        await engine.acall(engine.savepoint, self._name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        engine = self._ending(undone=error is not None)
        if engine is None:
            return
        if error is None:
            await engine.acall(engine.release, self._name)
        else:
            await engine.acall(engine.rollback_to, self._name)
