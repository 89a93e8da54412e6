"""``AsyncStore`` and ``rota.aopen``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from rota import names
from rota.aio.outbox import AsyncOutbox
from rota.aio.queue import AsyncQueue
from rota.aio.transaction import AsyncTransaction
from rota.aio.transport import AsyncTransport
from rota.aio.waiting import LoopWaiter
from rota.clock import Clock
from rota.codecs import Codec
from rota.facade import listening
from rota.facade.core import Chance, Core
from rota.facade.opening import DEFAULT_URL, check_codec, open_core
from rota.facade.queues import stamp
from rota.facade.stores import StoreBase, declared
from rota.facade.transports import OptionChanges
from rota.records import NewGroups, Poison
from rota.units import Duration
from rota.wakeups import channel_address

if TYPE_CHECKING:
    from rota.sync.store import Store


def aopen(
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
) -> Opening:
    """``rota.open`` for asyncio: ``store = await rota.aopen(url)`` or ``async with rota.aopen(url) as store``."""
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
    return Opening(partial(open_core, url, clock, rng, max_payload_bytes, codec, settings), url)


class Opening:
    """A store about to be opened: await it, or enter it."""

    def __init__(self, open_it: Callable[[], Core], url: str) -> None:
        self._open_it = open_it
        self._inline = url.lower().startswith("memory:")
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._opened().__await__()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(
                f"the store is not opened yet, so it has no {name!r}: write store = await rota.aopen(…), or "
                "async with rota.aopen(…) as store"
            )

    async def _opened(self) -> AsyncStore:
        core = self._open_it() if self._inline else await asyncio.to_thread(self._open_it)
        return AsyncStore(core)

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._opened()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


class AsyncStore(StoreBase):
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
    ) -> AsyncTransport:
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
        return AsyncTransport(self._core, name, check_codec(codec), named)

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
    ) -> AsyncQueue:
        """A handle on a queue; no I/O. Its options are stamped on the jobs it enqueues (Q1).

        Defaults: 300 s ``visibility``, 3 ``max_attempts``, 5 s ``backoff_base``, letters kept for ever, nothing kept of
        done jobs, 300 s ``key_ttl``.
        """
        stamped = stamp(visibility, max_attempts, backoff_base, dead_letter_retention, keep_done, key_ttl)
        return AsyncQueue(self._core, name, check_codec(codec), stamped)

    def outbox(
        self, name: str, deliver: Callable[..., Any] | None = None, *, codec: Codec | None = None
    ) -> AsyncOutbox:
        """A queue with the outbox stamp (X5), for what is to be delivered to another system after the commit.

        60 s ``visibility``, 5 ``max_attempts``, 5 s ``backoff_base``, letters kept for ever. ``deliver``: the handler,
        sync or async, that ``outbox.worker()`` calls with each payload; whoever only enqueues names none.
        """
        return AsyncOutbox(self._core, name, check_codec(codec), deliver)

    def transaction(self) -> AsyncTransaction:
        """A context manager: what verbs do with ``tx=`` of it is committed together, or not at all (X1)."""
        return AsyncTransaction(self._core)

    async def configure_transport(self, name: str, **options: Unpack[OptionChanges]) -> None:
        """Change stored options of a transport (T11); None means the default. Handles in use obey the new ones."""
        transport, changes = self._to_configure(name, options)
        await self._core.engine.acall(transport.configure, changes)
        self._core.configured(name, changes)

    async def transports(self) -> list[str]:
        """Names of the transports that exist, sorted."""
        engine = self._open().engine
        return await engine.acall(engine.transports)

    async def queues(self) -> list[str]:
        """Names of the queues that exist, sorted."""
        engine = self._open().engine
        return await engine.acall(engine.queues)

    async def notify(self, channel: str, payload: str | None = None) -> None:
        """Tell everyone who listens on ``channel`` now (X6): at most once, at most 7,000 bytes, not replayed."""
        engine = self._open().engine
        await engine.acall(engine.notify, names.name(channel, "channel"), names.channel_payload(payload))
        self._core.wakeups.wake(channel_address(channel))

    def listen(self, channel: str, *, timeout: Duration | None = None) -> AsyncListener:
        """Payloads notified on ``channel`` from now on (X6); ends after ``timeout`` seconds of silence, else never."""
        return AsyncListener(self._open(), channel, timeout)

    async def engine_facts(self) -> dict[str, Any]:
        """What the engine says of itself: versions, durability, known faults (as ``rota doctor`` prints them)."""
        engine = self._open().engine
        return await engine.acall(engine.facts)

    def as_async(self) -> AsyncStore:
        """This store itself."""
        return self

    def as_sync(self) -> Store:
        """The sync facade on the same engine; closing either closes both."""
        from rota.sync.store import Store

        return Store(self._core)

    async def close(self) -> None:
        """Close the store; waiters raise ``StoreClosed`` within a second (X8). Quiet when repeated."""
        engine = self._core.engine
        if engine.holders:
            engine.holders.check()
        if engine.durable:
            # The file is closed once running verbs are over, which may take a while.
            await asyncio.to_thread(self._core.close)
        else:
            self._core.close()

    async def __aenter__(self) -> AsyncStore:
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncListener(AsyncIterator[str | None]):
    """An async iterator over what is notified on a channel, from the moment it was made until it is closed."""

    def __init__(self, core: Core, channel: str, timeout: Duration | None) -> None:
        self._ear = listening.Ear(core, channel, timeout, LoopWaiter)

    async def __anext__(self) -> str | None:
        self._ear.begin()
        while True:
            arrived, payload, pause = self._ear.next()
            if arrived:
                return payload
            if pause <= 0:
                raise StopAsyncIteration
            await self._ear.waiter.wait(pause)

    async def close(self) -> None:
        """Stop listening; quiet when repeated."""
        self._ear.close()

    async def __aenter__(self) -> AsyncListener:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
