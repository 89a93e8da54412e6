"""What an engine does, its transactions and its listeners: the clauses X."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from rota.contract.queues import QueueEngine
from rota.contract.transports import TransportEngine
from rota.holders import Holders
from rota.wakeups import Wakeups

P = ParamSpec("P")
T = TypeVar("T")


class Subscription(Protocol):
    """One listener's place in a channel (X6)."""

    def take(self) -> list[str | None]:
        """The payloads that arrived since the last call, oldest first; never blocks."""

    def close(self) -> None: ...


class EngineTransaction(Protocol):
    """Where the verbs of one transaction run, for the async facade through ``acall`` (X1, X4)."""

    @property
    def connection(self) -> Any:
        """The driver's own connection, None on memory."""

    def queue(self, queue: Any) -> QueueEngine:
        """A queue of this engine with the very same verbs, in this transaction."""

    def transport(self, transport: Any) -> TransportEngine: ...

    def notify(self, channel: str, payload: str | None) -> None: ...

    def savepoint(self, name: str) -> None: ...

    def release(self, name: str) -> None: ...

    def rollback_to(self, name: str) -> None:
        """Undo what was done since the savepoint, and forget it."""

    def commit(self, then: Callable[[], None]) -> None:
        """Commit, then call ``then``. ``OutcomeUnknown`` or ``TransactionAborted`` where it did not come to that."""

    def rollback(self) -> None:
        """Quiet when it is over already."""

    def abandon(self) -> None:
        """Undo it without a loop: the one it was used on has ended."""

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run one of this transaction's verbs for the async facade."""

    def on_commit(self, act: Callable[[], None]) -> None:
        """On a caller's connection: have ``act`` called after its commit, where somebody tells when that is."""


class Engine(Protocol):
    r"""One opened engine, shared by its sync and async facades.

    ## X. Transactions, notifications, wake-ups

    - **X1 one commit.** `with store.transaction() as tx:` (async: `async with`): everything done with `tx=tx` (enqueue,
      publish, every settlement, notify) becomes visible together at commit or not at all; wake-ups fire after the
      commit only. An exception in the block rolls back, and so does `tx.rollback()`, which ends the transaction. `with
      tx.savepoint():` undoes its block alone. `tx.connection` is the driver's own connection on the SQL engines, for
      statements of your own. Memory is atomic and isolated too. Reads without `tx=` go on and do not see what is not
      committed. A write, or a claim, on the same store without `tx=` from the thread or task that holds the transaction
      raises `TransactionError` on every engine, as does a second `store.transaction()` there; nothing hangs. Others are
      not refused because of it (SQLite has one writer: they wait, and get `EngineBusy` after `busy_timeout`).
    - **X2 pins.** A settlement inside a transaction is judged when called, by the clock of that moment, and then *pins*
      its item: nobody can claim, sweep or cancel it until the transaction ends, however late. Who tries to settle or
      cancel it meanwhile waits for that or gets `EngineBusy`; claims pass it over. "Spent" is the store's state, not
      the handle's: a rollback restores it. Where the engine aborts a transaction, `TransactionAborted` says so.
    - **X3 lost leases.** With `tx=`, a settlement that is not valid raises `LeaseLost` instead of returning `False`, a
      batch if any in it is not, and changes nothing: an ignored result cannot commit an effect without its ack.
    - **X4 your own connection.** `tx=` accepts the caller's own open connection too: `sqlite3.Connection`,
      `psycopg.Connection` and `AsyncConnection`, `asyncpg.Connection`, SQLAlchemy `Connection` and `Session` and their
      async forms, Django's `connection`. The sync facade takes sync ones, the async facade async ones, else
      `TypeError`. It has to be in a transaction, or to begin one by itself, and to lead to the store's own database,
      else `TransactionError`. Rota never commits, rolls back, retries or changes settings on it; if the database aborts
      the transaction, `TransactionAborted` is raised.
    - **X5 outbox.** `store.outbox(name, deliver)`: a queue with the outbox stamp (60 s visibility, 5 attempts, 5 s
      backoff base, dead letters kept for ever), for what has to reach another system after the commit. `.worker()` of
      it is a `rota.Worker` that calls `deliver` with each payload.
    - **X6 channels.** `store.notify(channel, payload=None)` and `store.listen(channel)` (an iterator, sync and async):
      fan-out to everyone listening, at most once, not replayed, payload of at most 7,000 bytes on every engine.
    - **X7 wake-ups are hints.** They make `wait=` fast; polling makes it right. A waiting claim returns within a second
      of something becoming claimable (published, released, a delay over, a lease lapsed, a group resumed), also when
      the wake-up was lost, also when a due job was missed once because of a lock.
    - **X8 idle and closing.** Idle waiting costs a bounded, small number of statements. `store.close()` makes waiters
      raise `StoreClosed` within a second.
    """

    url: str
    """For people: never contains a password."""
    wakeups: Wakeups
    holders: Holders
    """Who holds a transaction; every write and claim of theirs outside of it is refused (X1)."""
    durable: bool
    """Durable engines always encode events (T8, P1)."""
    transactions_at_once: int | None
    """So many transactions of ``begin`` and ``abegin`` are open in this process at once, others wait and may get
    ``EngineBusy``; None: any number."""

    now: Callable[[], int]

    def transport(self, name: str, declared: dict[str, Any]) -> TransportEngine: ...

    def queue(self, name: str) -> QueueEngine: ...

    def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""

    def queues(self) -> list[str]: ...

    def notify(self, channel: str, payload: str | None) -> None: ...

    def subscribe(self, channel: str) -> Subscription: ...

    def begin(self) -> EngineTransaction:
        """Begin a transaction for the sync facade (X1)."""

    def abegin(self) -> Awaitable[EngineTransaction]:
        """Begin a transaction for the async facade; when the awaiting task is cancelled, it is rolled back."""

    def adopt(self, connection: Any, *, asynchronous: bool) -> EngineTransaction:
        """A transaction on the caller's own connection (X4). No I/O: what is wrong with it the first verb tells.

        ``TypeError`` for what is no connection to such an engine, or one of the other colour.
        """

    def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run one of this engine's verbs for the async facade without blocking the loop."""

    def acall_or_undo(self, verb: Callable[..., T], undo: Callable[[T], object], *args: Any) -> Awaitable[T]:
        """``acall`` for claims: when the awaiting task is cancelled while the verb runs, ``undo`` gets its result."""

    def facts(self) -> dict[str, Any]:
        """What ``rota doctor`` prints of this engine."""

    def close(self) -> None:
        """Let running verbs end, then release everything; later verbs raise ``StoreClosed``. Quiet when repeated."""
