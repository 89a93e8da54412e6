"""``store.transaction()``, sync (X1)."""

from __future__ import annotations

import _thread
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota import names, rules
from rota.errors import RotaError
from rota.facade.transactions import SavepointBase, TransactionBase
from rota.sync.queue import Queue
from rota.sync.transport import Transport
from rota.units import Duration, Instant
from rota.wakeups import channel_address

if TYPE_CHECKING:
    from rota.contract import EngineTransaction


class Transaction(TransactionBase):
    """Everything done with ``tx=`` becomes visible together at commit or not at all (X1).

    A context manager: it commits when its block ends, and rolls back when an exception leaves it. Committing raises
    ``TransactionAborted`` where the database rolled back instead, ``OutcomeUnknown`` where nobody knows.
    """

    _asynchronous = False

    def enqueue(
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
        return Queue(self._core, queue, None, rules.DEFAULT_STAMP).enqueue(
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

    def publish(
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
        handle = Transport(self._core, transport, None, {})
        return handle.publish(group_id, event, priority, key=key, headers=headers, tx=self)

    def notify(self, channel: str, payload: str | None = None) -> None:
        """``store.notify`` at commit (X6)."""
        self._running.notify(names.name(channel, "channel"), names.channel_payload(payload))
        self._changed(channel_address(channel))

    def savepoint(self) -> Savepoint:
        """``with tx.savepoint():`` an exception that leaves the block undoes the block alone."""
        return Savepoint(self)

    def rollback(self) -> None:
        """Undo everything and end the transaction; verbs that name it raise ``TransactionError`` from here on."""
        engine = self._ending("was rolled back")
        try:
            engine.rollback()
        finally:
            self._unsettled({})
            self._over()

    def _commit(self) -> None:
        engine = self._ending("was committed")
        try:
            engine.commit(self._wake)
        except BaseException as error:
            self._not_committed(error)
            # Interrupted before it came to that, it is still open.
            engine.rollback()
            raise
        finally:
            self._over()

    def __enter__(self) -> Transaction:
        self._check_new()
        try:
            self._beginning()
            self._engine = self._core.engine.begin()
        except BaseException:
            self._failed_to_begin()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ended is not None:
            return
        if error is None:
            self._commit()
        else:
            self.rollback()

    def __del__(self) -> None:
        """A signal that interrupted the very beginning of ``__exit__`` left it open: not for ever."""
        engine = self._engine
        if engine is not None:
            self._over()
            # Elsewhere: this may be the garbage collector, in the middle of anything.
            _thread.start_new_thread(_abandoned, (engine,))


def _abandoned(engine: EngineTransaction) -> None:
    try:
        engine.rollback()
    except RotaError:
        pass


class Savepoint(SavepointBase):
    """A part of a transaction that can be undone alone: a context manager."""

    def __enter__(self) -> Savepoint:
        engine = self._beginning()
        engine.savepoint(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        engine = self._ending(undone=error is not None)
        if engine is None:
            return
        if error is None:
            engine.release(self._name)
        else:
            engine.rollback_to(self._name)
