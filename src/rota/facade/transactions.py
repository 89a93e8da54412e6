"""Transactions without I/O (X1-X4): what ``tx=`` may be, and who is woken after the commit."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rota.errors import LeaseLost, OutcomeUnknown, TransactionError
from rota.facade.core import Core
from rota.facade.settled import remembering
from rota.holders import current_task

if TYPE_CHECKING:
    from rota.contract import EngineTransaction

# What ``tx=`` takes: a transaction of the store, or the caller's own connection (X4), whose type Rota does not import.
Tx = Any


class Scope:
    """Where verbs with ``tx=`` run."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def _running(self) -> EngineTransaction:
        raise NotImplementedError

    def _changed(self, address: str) -> None:
        """Wake who waits at the address, after the commit."""
        raise NotImplementedError

    def _settled(self, held: Any) -> None:
        """A job or lease was settled here, which a worker's handles remember."""
        raise NotImplementedError


class Foreign(Scope):
    """One call on the caller's own connection."""

    def __init__(self, core: Core, connection: Any, *, asynchronous: bool) -> None:
        super().__init__(core)
        self._adopted = core.engine.adopt(connection, asynchronous=asynchronous)

    @property
    def _running(self) -> EngineTransaction:
        return self._adopted

    def _changed(self, address: str) -> None:
        wakeups = self._core.wakeups
        self._adopted.on_commit(lambda: wakeups.wake(address))

    def _settled(self, held: Any) -> None:
        # Whether the caller commits is for nobody here to know.
        handle = remembering(held)
        if handle is not None:
            handle.settled = True


class TransactionBase(Scope):
    """A transaction of a store: new, then open, then ended."""

    _asynchronous: bool
    _engine: EngineTransaction | None = None

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._engine = None
        self._ended: str | None = None
        self._holder: Any = None
        self._savepoints = 0
        self._nested: list[SavepointBase] = []
        # Whom to wake after the commit, in order.
        self._addresses: dict[str, None] = {}
        # Whose ``settled`` counts only if it is committed.
        self._handles: dict[Any, None] = {}

    @property
    def connection(self) -> Any:
        """The driver's own connection, for statements of your own in this transaction; ``None`` on memory."""
        return self._running.connection

    @property
    def _running(self) -> EngineTransaction:
        if self._ended is not None:
            raise TransactionError(f"this transaction {self._ended}: begin another one with store.transaction()")
        if self._engine is None:
            word = "async with" if self._asynchronous else "with"
            raise TransactionError(f"this transaction has not begun: write {word} store.transaction() as tx")
        return self._engine

    def _changed(self, address: str) -> None:
        self._addresses[address] = None

    def _settled(self, held: Any) -> None:
        handle = remembering(held)
        if handle is not None:
            handle.settled = True
            self._handles[handle] = None

    def _unsettled(self, kept: dict[Any, None]) -> None:
        """What was settled was undone, but for those kept."""
        for held in self._handles:
            held.settled = held in kept
        self._handles = kept

    # -- Begin and end -------------------------------------------------------------------------------------------------

    def _check_new(self) -> None:
        """Whether this one can begin, here and now."""
        if self._engine is not None or self._ended is not None:
            raise TransactionError("a transaction is entered once: begin another one with store.transaction()")
        self._core.check_open()
        self._core.engine.holders.check_free()

    def _beginning(self) -> None:
        """From here on this thread or task holds a transaction."""
        self._holder = current_task() if self._asynchronous else threading.get_ident()
        self._core.engine.holders.enter(self._holder)

    def _failed_to_begin(self) -> None:
        self._core.engine.holders.leave(self._holder)
        self._ended = "could not begin"

    def _ending(self, how: str) -> EngineTransaction:
        """What to commit or roll back; no verb is accepted from here on."""
        engine = self._running
        self._ended = how
        return engine

    def _not_committed(self, error: BaseException) -> None:
        """Committing failed. Where nobody knows whether it did, what was settled is not settled once more."""
        self._ended = "failed to commit"
        if isinstance(error, Exception) and not isinstance(error, OutcomeUnknown):
            self._unsettled({})

    def _over(self) -> None:
        """Whoever held it holds it no more."""
        self._core.engine.holders.leave(self._holder)
        self._engine = None

    def _wake(self) -> None:
        for address in self._addresses:
            self._core.wakeups.wake(address)

    def __repr__(self) -> str:
        state = self._ended or ("is open" if self._engine is not None else "has not begun")
        return f"<{type(self).__name__} that {state}>"


class SavepointBase:
    """Part of a transaction that can be undone alone."""

    def __init__(self, transaction: TransactionBase) -> None:
        self._transaction = transaction
        self._name = ""
        self._addresses: dict[str, None] = {}
        self._handles: dict[Any, None] = {}

    def _beginning(self) -> EngineTransaction:
        transaction = self._transaction
        engine = transaction._running
        if self._name:
            raise TransactionError("a savepoint is entered once: make another one with tx.savepoint()")
        transaction._savepoints += 1
        transaction._nested.append(self)
        self._name = f"rota_{transaction._savepoints}"
        self._addresses = dict(transaction._addresses)
        self._handles = dict(transaction._handles)
        return engine

    def _ending(self, *, undone: bool) -> EngineTransaction | None:
        """None: the transaction itself is over. What is nested in it ends with it."""
        transaction = self._transaction
        if transaction._ended is not None:
            return None
        nested = transaction._nested
        if self not in nested:
            raise TransactionError("this savepoint is over, or ended with the one around it: end the inner one first")
        del nested[nested.index(self) :]
        if undone:
            transaction._addresses = self._addresses
            transaction._unsettled(self._handles)
        return transaction._engine


def scope(core: Core, tx: Tx, *, asynchronous: bool) -> Scope:
    """Where a verb with this ``tx=`` runs (X4). ``TypeError``, ``TransactionError``, ``StoreClosed``."""
    core.check_open()
    if not isinstance(tx, TransactionBase):
        return Foreign(core, tx, asynchronous=asynchronous)
    if tx._asynchronous is not asynchronous:
        mine, other = ("async", "sync") if asynchronous else ("sync", "async")
        raise TypeError(f"tx= is a transaction of the {other} facade, this verb is one of the {mine} facade")
    if tx._core.engine is not core.engine:
        raise TransactionError(f"tx= is a transaction of {tx._core.engine.url}, this verb is one of {core.engine.url}")
    return tx


def lost(handles: Iterable[object]) -> LeaseLost:
    """X3."""
    told = ", ".join(map(repr, handles))
    return LeaseLost(f"not held any more, so nothing was changed: {told}; roll back, somebody else has it or will")
