"""``Store`` and ``rota.open``, sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from rota import names
from rota.clock import Clock
from rota.codecs import Codec
from rota.facade import listening
from rota.facade.core import Chance, Core
from rota.facade.opening import DEFAULT_URL, check_codec, open_core
from rota.facade.queues import stamp
from rota.facade.stores import StoreBase, declared
from rota.facade.transports import OptionChanges
from rota.records import NewGroups, Poison
from rota.sync.outbox import Outbox
from rota.sync.queue import Queue
from rota.sync.transaction import Transaction
from rota.sync.transport import Transport
from rota.units import Duration
from rota.wakeups import ThreadWaiter, channel_address

if TYPE_CHECKING:
    from rota.aio.store import AsyncStore


def open(
    url: str = DEFAULT_URL,
    *,
    clock: Clock | None = None,
    rng: Chance | None = None,
    max_payload_bytes: int | None = None,
    codec: Codec | None = None,
    durability: Literal["full", "normal"] | None = None,
    busy_timeout: Duration | None = None,
    max_items: int | None = None,
    create: bool | None = None,
    schema: str | None = None,
    migrate: bool | None = None,
    notify: bool | None = None,
    prepare: bool | None = None,
    pool_size: int | None = None,
    connect_timeout: Duration | None = None,
    listen_url: str | None = None,
) -> Store:
    """Open a store: ``memory://``, ``memory://name``, ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or
    ``postgresql://user:password@host:port/database``.

    ``clock`` overrides the engine's clock (C3), ``rng`` the chance in the backoff (Q8), ``codec`` how payloads are
    stored (P3). SQLite takes ``durability``, ``busy_timeout`` (seconds) and ``create=False`` (refuse a file that does
    not exist); memory takes ``max_items``, its cap. PostgreSQL takes ``schema``, ``migrate=True`` (bring the schema up
    to date; ``create=True`` only makes a missing one), ``notify=False`` (poll only), ``prepare=True`` (prepared
    statements, not behind a transaction-mode pooler), ``pool_size``, ``connect_timeout`` and ``busy_timeout`` (seconds
    until a connection is there, or free) and ``listen_url`` (the server's own address, where the URL names a pooler).

    Raises ``ValueError`` for a URL or setting that is not understood, ``EngineUnavailable`` or ``SchemaMismatch`` where
    the engine cannot be used.
    """
    settings = {
        "durability": durability,
        "busy_timeout": busy_timeout,
        "max_items": max_items,
        "create": create,
        "schema": schema,
        "migrate": migrate,
        "notify": notify,
        "prepare": prepare,
        "pool_size": pool_size,
        "connect_timeout": connect_timeout,
        "listen_url": listen_url,
    }
    return Store(open_core(url, clock, rng, max_payload_bytes, codec, settings))


class Store(StoreBase):
    """An opened engine. Close it, or use it as a context manager."""

    def transport(
        self,
        name: str = "default",
        *,
        max_deliveries: int | None = None,
        poison: Poison | None = None,
        new_groups: NewGroups | None = None,
        backoff_base: Duration | None = None,
        dead_letter_retention: Duration | None = None,
        key_ttl: Duration | None = None,
        codec: Codec | None = None,
    ) -> Transport:
        """A handle on a transport; no I/O. Options belong to the transport: the first to name one stores it (T11).

        Defaults: no ``max_deliveries``, ``poison="dead-letter"``, ``new_groups="first"``, 5 s ``backoff_base``, letters
        kept for ever, 300 s ``key_ttl``. An option in conflict with the stored one raises ``ValueError`` naming both,
        here or at the first verb.
        """
        named = declared(
            max_deliveries=max_deliveries,
            poison=poison,
            new_groups=new_groups,
            backoff_base=backoff_base,
            dead_letter_retention=dead_letter_retention,
            key_ttl=key_ttl,
        )
        return Transport(self._core, name, check_codec(codec), named)

    def queue(
        self,
        name: str,
        *,
        visibility: Duration | None = None,
        max_attempts: int | None = None,
        backoff_base: Duration | None = None,
        dead_letter_retention: Duration | None = None,
        keep_done: Duration | None = None,
        key_ttl: Duration | None = None,
        codec: Codec | None = None,
    ) -> Queue:
        """A handle on a queue; no I/O. Its options are stamped on the jobs it enqueues (Q1).

        Defaults: 300 s ``visibility``, 3 ``max_attempts``, 5 s ``backoff_base``, letters kept for ever, nothing kept of
        done jobs, 300 s ``key_ttl``.
        """
        stamped = stamp(visibility, max_attempts, backoff_base, dead_letter_retention, keep_done, key_ttl)
        return Queue(self._core, name, check_codec(codec), stamped)

    def outbox(self, name: str, deliver: Callable[..., Any] | None = None, *, codec: Codec | None = None) -> Outbox:
        """A queue with the outbox stamp (X5), for what is to be delivered to another system after the commit.

        60 s ``visibility``, 5 ``max_attempts``, 5 s ``backoff_base``, letters kept for ever. ``deliver``: the handler,
        sync or async, that ``outbox.worker()`` calls with each payload; whoever only enqueues names none.
        """
        return Outbox(self._core, name, check_codec(codec), deliver)

    def transaction(self) -> Transaction:
        """A context manager: what verbs do with ``tx=`` of it is committed together, or not at all (X1)."""
        return Transaction(self._core)

    def configure_transport(self, name: str, **options: Unpack[OptionChanges]) -> None:
        """Change stored options of a transport (T11); None means the default. Handles in use obey the new ones."""
        transport, changes = self._to_configure(name, options)
        transport.configure(changes)
        self._core.configured(name, changes)

    def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""
        return self._open().engine.transports()

    def queues(self) -> list[str]:
        """Names of the queues that exist, sorted."""
        return self._open().engine.queues()

    def notify(self, channel: str, payload: str | None = None) -> None:
        """Tell everyone who listens on ``channel`` now (X6): at most once, at most 7,000 bytes, not replayed."""
        self._open().engine.notify(names.name(channel, "channel"), names.channel_payload(payload))
        self._core.wakeups.wake(channel_address(channel))

    def listen(self, channel: str, *, timeout: Duration | None = None) -> Listener:
        """Payloads notified on ``channel`` from now on (X6); ends after ``timeout`` seconds of silence, else never."""
        return Listener(self._open(), channel, timeout)

    def engine_facts(self) -> dict[str, Any]:
        """What the engine says of itself: versions, durability, known faults (as ``rota doctor`` prints them)."""
        return self._open().engine.facts()

    def as_async(self) -> AsyncStore:
        """The async facade on the same engine; closing either closes both."""
        from rota.aio.store import AsyncStore

        return AsyncStore(self._core)

    def as_sync(self) -> Store:
        """This store itself."""
        return self

    def close(self) -> None:
        """Close the store; waiters raise ``StoreClosed`` within a second (X8). Quiet when repeated."""
        self._core.close()

    def __enter__(self) -> Store:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Listener(Iterator[str | None]):
    """An iterator over what is notified on a channel, from the moment it was made until it is closed."""

    def __init__(self, core: Core, channel: str, timeout: Duration | None) -> None:
        self._ear = listening.Ear(core, channel, timeout, ThreadWaiter)

    def __next__(self) -> str | None:
        self._ear.begin()
        while True:
            arrived, payload, pause = self._ear.next()
            if arrived:
                return payload
            if pause <= 0:
                raise StopIteration
            self._ear.waiter.wait(pause)

    def close(self) -> None:
        """Stop listening; quiet when repeated."""
        self._ear.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
