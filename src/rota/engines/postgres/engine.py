"""``rota.contract.Engine`` on PostgreSQL: pools of connections, the schema's version, the server's clock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota.clock import wall_clock
from rota.engines.postgres import address as addresses
from rota.engines.postgres import facts, forks, migrating
from rota.engines.postgres.connecting import Connector
from rota.engines.postgres.failures import Translator
from rota.engines.postgres.listening import PostgresWakeups, hashed, notification
from rota.engines.postgres.loops import LoopPools, cancellation
from rota.engines.postgres.running import Runner
from rota.engines.postgres.sending import SEND, SEND_ONE
from rota.engines.postgres.sessions import Pool
from rota.engines.postgres.verbs import BoundVerb, reading_verb, verb
from rota.holders import Holders
from rota.sql.drive import Block, Op
from rota.wakeups import ChannelQueue, Wakeups

if TYPE_CHECKING:
    from rota.contract import EngineTransaction
    from rota.engines.postgres.queue import PostgresQueue
    from rota.engines.postgres.transactions import PostgresTransaction
    from rota.engines.postgres.transport import PostgresTransport

P = ParamSpec("P")
T = TypeVar("T")

_TRANSPORTS = Block("transports", 'SELECT name FROM {schema}.transports ORDER BY name COLLATE "C"', True)
_QUEUES = Block("queues", 'SELECT name FROM {schema}.queues ORDER BY name COLLATE "C"', True)
_NOTIFY = Block("notify", "SELECT pg_notify(%s, %s)", True)
_WHERE = Block(
    "where",
    "SELECT current_database()::text, extract(epoch FROM pg_postmaster_start_time())::text,"
    " to_regclass('{schema}.jobs')::oid::bigint",
    True,
)
_CLOCK = Block("clock", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", True)


class PostgresEngine:
    """One schema of one database, opened."""

    durable = True

    def __init__(
        self,
        location: str,
        query: dict[str, str],
        *,
        now: Callable[[], int] | None,
        schema: str,
        migrate: bool,
        create: bool,
        notify: bool,
        prepared: bool,
        pool_size: int,
        connect_timeout: float,
        busy_timeout: float,
        listen_url: str | None,
    ) -> None:
        address = addresses.parse(location, query, schema)
        self.address = address
        self.url = address.shown
        self.place = address.place
        self.notifies = notify
        self.closed = False
        self._injected = now
        self.now: Callable[[], int] = now or self._about_now
        self._offset = 0
        # For the verbs: queues that are there for sure, and from where claims need to look.
        self.known_queues: set[str] = set()
        self.frontiers: dict[tuple[str, str], Any] = {}
        # Under an injected clock, which may go anywhere, claims always look at everything.
        self.bounded = now is None
        self.errors = Translator(address.shown, schema, address.secrets)
        self._connector = Connector(address, self.errors, connect_timeout, prepared)
        listening = address if listen_url is None else addresses.of_url(listen_url, schema)
        listening_errors = Translator(listening.shown, schema, (*listening.secrets, *address.secrets))
        self._listening_connector = Connector(listening, listening_errors, connect_timeout, False)
        self._size, self._patience = pool_size, busy_timeout
        self.transactions_at_once: int | None = pool_size
        self.holders = Holders()
        self.known_whereabouts: tuple[Any, ...] | None = None
        self._start()
        try:
            self._check_schema(migrate, create)
            self._measure_clock()
        except BaseException:
            self.pool.close()
            raise
        forks.watch(self)

    def _start(self) -> None:
        """All that belongs to this process alone; a forked child does it again."""
        self.pool = Pool(self._connector.connect, self._size, self._patience, self.url)
        self.loops = LoopPools(self._connector.aconnect, self._size, self._patience, self.url)
        # Transactions have connections of their own: a verb never waits for one of these, however many are open.
        self.held_pool = Pool(self._connector.connect, self._size, self._patience, self.url)
        self.held_loops = LoopPools(self._connector.aconnect, self._size, self._patience, self.url)
        self.runner = Runner(self.address.schema, self.pool, self.loops, self.errors, self.holders)

    def _check_schema(self, migrate: bool, create: bool) -> None:
        session = self.pool.take()
        try:
            if migrate or create:
                migrating.migrate(session.connection, self.address, self.errors, only_fresh=not migrate)
            migrating.check(migrating.read(session.connection, self.address, self.errors), self.address)
        finally:
            self.pool.give(session)
        self._listening = PostgresWakeups(self)
        self.wakeups: Wakeups = self._listening

    def connect_listener(self) -> Any:
        """A connection of the listener's own."""
        return self._listening_connector.connect()

    @property
    def listening(self) -> str:
        """How wake-ups from other processes come in: for people."""
        return self._listening.state

    # -- Time --------------------------------------------------------------------------------------------------------

    def injected_now(self) -> int | None:
        """The store's own clock, None where the server's decides (C3)."""
        return None if self._injected is None else self._injected()

    def _about_now(self) -> int:
        """About what the server's clock shows: for pauses and people, never for decisions."""
        return wall_clock() + self._offset

    def _measure_clock(self) -> None:
        began = wall_clock()
        server = self._server_clock()
        self.clock_read(began, server)

    def clock_read(self, began: int, server: int) -> None:
        """The server's clock was asked at ``began`` and its answer has just come."""
        self._offset = server - (began + wall_clock()) // 2

    @property
    def clock_ahead(self) -> int:
        """Microseconds the server's clock is ahead of this host's, as last measured."""
        return self._offset

    # -- Place -------------------------------------------------------------------------------------------------------

    @reading_verb
    def where(self) -> Op[tuple[Any, ...]]:
        """Which database of which running server a connection leads to, and which schema there."""
        return tuple((yield _WHERE, ())[0])

    def whereabouts(self, *, again: bool = False) -> tuple[Any, ...]:
        """Where this engine's connections lead."""
        if self.known_whereabouts is None or again:
            self.known_whereabouts = self.where()
        return self.known_whereabouts

    async def awhereabouts(self, *, again: bool = False) -> tuple[Any, ...]:
        """``whereabouts`` on the running loop."""
        if self.known_whereabouts is None or again:
            self.known_whereabouts = await self.where.arun()
        return self.known_whereabouts

    @reading_verb
    def _server_clock(self) -> Op[int]:
        ((instant,),) = yield _CLOCK, ()
        return int(instant)

    # -- The contract ------------------------------------------------------------------------------------------------

    def transport(self, name: str, declared: dict[str, Any]) -> PostgresTransport:
        """A handle's transport; does no I/O."""
        from rota.engines.postgres.transport import PostgresTransport

        return PostgresTransport(self, name, declared)

    def queue(self, name: str) -> PostgresQueue:
        """A handle's queue; does no I/O."""
        from rota.engines.postgres.queue import PostgresQueue

        return PostgresQueue(self, name)

    @reading_verb
    def transports(self) -> Op[list[str]]:
        """Names of the transports that exist, sorted."""
        return [name for (name,) in (yield _TRANSPORTS, ())]

    @reading_verb
    def queues(self) -> Op[list[str]]:
        """Names of the queues that exist, sorted."""
        return [name for (name,) in (yield _QUEUES, ())]

    @verb
    def notify(self, channel: str, payload: str | None) -> Op[None]:
        """Tell everyone who is subscribed (X6), by NOTIFY."""
        yield _NOTIFY, self.notification(channel, payload)

    def notification(self, channel: str, payload: str | None, number: int = 0) -> tuple[str, str]:
        """What is said to NOTIFY."""
        return self._listening.channel, notification(channel, payload, number)

    @verb
    def send(self, addresses: list[str]) -> Op[int]:
        """Wake waiters at these addresses in other processes; how many notifications it took."""
        told = [f"w{self._listening.mark}{hashed(address)}" for address in addresses]
        lock_key, channel = self._listening.lock_key, self._listening.channel
        if len(told) == 1:
            return len((yield SEND_ONE, (channel, told[0], lock_key)))
        ((count,),) = yield SEND, (lock_key, channel, told)
        return int(count)

    @verb
    def send_test(self, text: str) -> Op[None]:
        """A notification from the listener to itself."""
        yield _NOTIFY, (self._listening.channel, text)

    def subscribe(self, channel: str) -> ChannelQueue:
        """A place in a channel: what is notified from here on."""
        return self._listening.subscribe(channel)

    def begin(self) -> PostgresTransaction:
        """A transaction on a connection of its own."""
        from rota.engines.postgres import transactions

        return transactions.begin(self)

    async def abegin(self) -> PostgresTransaction:
        """``begin`` on the running loop."""
        from rota.engines.postgres import transactions

        return await transactions.abegin(self)

    def adopt(self, connection: Any, *, asynchronous: bool) -> EngineTransaction:
        """A transaction on the caller's own connection (X4)."""
        from rota.engines.postgres import foreign

        return foreign.adopt(self, connection, asynchronous=asynchronous)

    async def acall(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb on the running loop. A statement under way is waited for when the task is cancelled."""
        if not isinstance(verb, BoundVerb):
            return await asyncio.to_thread(verb, *args, **kwargs)
        try:
            result: T = await verb.arun(*args, **kwargs)
            return result
        finally:
            cancelled = cancellation()
            if cancelled is not None:
                raise cancelled

    async def acall_or_undo(self, verb: Callable[..., T], undo: Callable[[T], object], *args: Any) -> T:
        """``acall`` for claims: when the awaiting task is cancelled, ``undo`` gets the verb's result."""
        if not isinstance(verb, BoundVerb):
            raise TypeError(f"a claim is a verb of this engine, got {verb!r}")
        try:
            result: T = await verb.arun(*args)
        except BaseException:
            cancelled = cancellation()
            if cancelled is not None:
                raise cancelled from None
            raise
        cancelled = cancellation()
        if cancelled is None:
            return result
        await _outlast(asyncio.get_running_loop().run_in_executor(None, partial(undo, result)))
        raise cancelled

    def facts(self) -> dict[str, Any]:
        """What ``rota doctor`` prints."""
        session = self.pool.take()
        try:
            return facts.gather(self, session.connection)
        finally:
            self.pool.give(session)

    def close(self) -> None:
        """Let running verbs end, then close; waiters wake and raise ``StoreClosed``. Quiet when repeated."""
        if self.closed:
            return
        self.closed = True
        forks.forget(self)
        self.wakeups.close()
        for loops in (self.loops, self.held_loops):
            loops.close()
        for pool in (self.pool, self.held_pool):
            pool.close()

    def forked(self) -> None:
        """In a forked child: the parent's connections are left alone, and new ones made."""
        for pool in (self.pool, self.held_pool, self.loops, self.held_loops):
            pool.leak(forks.leak)
        self.holders.forked()
        self._listening.forked()
        self._start()

    def place_of(self, kind: str, name: str) -> str:
        """Names a queue's or transport's data."""
        return f"{self.place}:{kind}:{name}"

    def __repr__(self) -> str:
        return f"<PostgresEngine {self.url} pid={os.getpid()}>"


async def _outlast(waiting: asyncio.Future[object]) -> None:
    """Wait through further cancellations: what was claimed must not be lost."""
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            continue
        except Exception:
            break
    # An undo that failed leaves a lease that lapses; the cancellation is what the caller has to hear of.
    if not waiting.cancelled():
        waiting.exception()
