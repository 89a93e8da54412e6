"""Wake-ups and channels across processes (X6, X7): LISTEN on a connection of its own, in one thread per engine.

What arrives: ``w`` + the sender's mark + a hash of an address, ``n`` + a hash of a channel + a number + the payload,
``t`` + a mark when the listener tests itself. Sizes are fixed but for a channel's number and payload.

A listener holds a shared advisory lock, by which senders see that somebody listens. It belongs to the session, so it
cannot outlive its listener; a row somewhere would have to be refreshed, and could.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import socket
import threading
import time
import weakref
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

import psycopg
from psycopg.pq import ExecStatus

from rota.clock import wall_clock
from rota.engines.postgres.sending import LOCK_CLASS, Sender
from rota.errors import EngineUnavailable, RotaError, StoreClosed
from rota.wakeups import ChannelQueue, Waiter, Wakeups, channel_address

if TYPE_CHECKING:
    from rota.engines.postgres.engine import PostgresEngine

_log = logging.getLogger("rota.postgres")

# The listener asks the server for its clock this often, and gives a silent connection up after the patience: a
# half-open one is noticed within 13 seconds. In seconds.
_TEST_EVERY, _TEST_PATIENCE = 8.0, 5.0
# How long the notification it sends itself may take; none comes through a transaction-mode pooler.
_CIRCLE_PATIENCE = 2.0
# Pauses between tries to connect: they double, with jitter; and where listening cannot work.
_FIRST_PAUSE, _LONGEST_PAUSE, _DEAF_PAUSE = 0.2, 15.0, 300.0
# A listener nobody has needed for this long ends.
_LINGERING = 30.0
_ENDING_PATIENCE = 1.0


@lru_cache(maxsize=4096)
def hashed(address: str) -> str:
    """An address in sixteen characters."""
    return blake2b(address.encode(), digest_size=8).hexdigest()


def notification(channel: str, payload: str | None, number: int = 0) -> str:
    """What is sent for a channel; at most 7,037 bytes of the 8,000 there may be.

    ``number``: which one of its transaction it is. Of those that say the same the server passes on one.
    """
    return f"n{hashed(channel_address(channel))}{number or ''}{'-' if payload is None else '+' + payload}"


class PostgresWakeups(Wakeups):
    """The waiters of one engine, woken by this process and by others."""

    def __init__(self, engine: PostgresEngine) -> None:
        super().__init__()
        # The listening thread must not keep a forgotten engine alive.
        self.engine = weakref.ref(engine)
        self.notifies = engine.notifies
        schema = engine.address.schema
        self.channel = f"rota_{schema}" if len(schema) <= 58 else f"rota_{hashed(schema)}"
        self.lock_key = crc32(schema.encode()) - 2**31
        self._begin()

    def _begin(self) -> None:
        self.mark = secrets.token_hex(4)
        self._starting = threading.Lock()
        self._listener: _Listener | None = None
        self._sender = Sender(self)
        self._subscribed: dict[str, tuple[str, list[ChannelQueue]]] = {}
        self._warned = False

    @property
    def state(self) -> str:
        """For people."""
        listener = self._listener
        return listener.state if listener is not None else "nobody waits" if self.notifies else "off"

    def add(self, waiter: Waiter) -> None:
        """Register a waiter; from here on wake-ups of its address arrive."""
        super().add(waiter)
        if self._listener is None and self.notifies:
            self._start()

    def wake(self, address: str) -> None:
        """Wake whoever waits at the address, in every process."""
        if self._waiters:
            self.wake_here(address)
        # A channel's payload has told the others already.
        if self.notifies and not address.startswith("c:"):
            self._sender.post(address)

    def subscribe(self, channel: str) -> ChannelQueue:
        """A place in a channel. Returns once the server knows that we listen."""
        address = channel_address(channel)
        queue = ChannelQueue(lambda queue: self._unsubscribe(address, queue))
        with self._lock:
            self._subscribed.setdefault(hashed(address), (address, []))[1].append(queue)
        try:
            listener = self._start()
            if listener is None:
                raise StoreClosed("the store is closed: open it again with rota.open(url)")
            listener.wait_until_ready()
        except BaseException:
            queue.close()
            raise
        return queue

    def _unsubscribe(self, address: str, queue: ChannelQueue) -> None:
        with self._lock:
            _, queues = self._subscribed.get(hashed(address), (address, []))
            if queue in queues:
                queues.remove(queue)
            if not queues:
                self._subscribed.pop(hashed(address), None)

    def arrived(self, text: str) -> None:
        """A notification from the server."""
        kind, rest = text[:1], text[1:]
        if kind == "w":
            mark, wanted = rest[:8], rest[8:]
            if mark != self.mark:
                for address in list(self._waiters):
                    if hashed(address) == wanted:
                        self.wake_here(address)
        elif kind == "n":
            with self._lock:
                address, queues = self._subscribed.get(rest[:16], ("", []))
                told = rest[16:].lstrip("0123456789")
                for queue in queues:
                    queue.put(told[1:] if told[:1] == "+" else None)
            if address:
                self.wake_here(address)

    def busy(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters or self._subscribed)

    def leave(self, listener: _Listener) -> bool:
        """Whether the listener may end: nobody waits."""
        with self._starting:
            # In this order: a waiter added meanwhile either finds no listener, or is found here.
            self._listener = None
            if self.busy() and not self.closed:
                self._listener = listener
                return False
        return True

    def warn_once(self, text: str) -> None:
        """Say once per store what keeps wake-ups from arriving."""
        if not self._warned:
            self._warned = True
            _log.warning(text)

    def close(self) -> None:
        """Wake everybody for good, end the listener, send what is still to be sent."""
        super().close()
        with self._starting:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()
        self._sender.close()

    def forked(self) -> None:
        """In a forked child: waiters, threads and connection are the parent's."""
        self._lock = threading.Lock()
        self._waiters = {}
        if self._listener is not None:
            self._listener.forked()
        self._begin()

    def _start(self) -> _Listener | None:
        with self._starting:
            if self._listener is None and not self.closed:
                listener = _Listener(self)
                listener.start()
                self._listener = listener
            return self._listener


class _Listener:
    """The thread that listens for one engine."""

    def __init__(self, wakeups: PostgresWakeups) -> None:
        self.state = "connecting"
        self._wakeups = wakeups
        self._ready = threading.Event()
        self._failed: RotaError | None = None
        self._ending = False
        self._bell, self._ear = socket.socketpair()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="rota-postgres-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending = True
        try:
            self._bell.send(b"!")
        except OSError:
            pass
        if self._thread is not threading.current_thread():
            self._thread.join(_ENDING_PATIENCE)

    def wait_until_ready(self) -> None:
        """Return once the server sends notifications here; ``EngineUnavailable`` when it does not."""
        while not self._ready.wait(0.05):
            if self._failed is not None:
                raise self._failed
            if self._ending or not self._thread.is_alive():
                raise StoreClosed("the store was closed while a listener was being set up")

    def forked(self) -> None:
        """In a forked child: close descriptors, say nothing to the server."""
        from rota.engines.postgres import forks

        connection = self._connection
        if connection is not None:
            forks.leak(connection)
            try:
                os.close(connection.pgconn.socket)
            except (psycopg.Error, OSError):
                pass
        self._bell.close()
        self._ear.close()

    # -- The thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while not self._ending:
                try:
                    connection = self._connect()
                    if connection is None:
                        return
                    if self._listen(connection):
                        return
                    pause = _FIRST_PAUSE
                except _Deaf:
                    pause = _DEAF_PAUSE
                except (RotaError, psycopg.Error, OSError) as error:
                    self._failed = error if isinstance(error, RotaError) else self._translated(error)
                    if self._ready.is_set():
                        # It worked until now: begin anew with short pauses.
                        pause = _FIRST_PAUSE
                finally:
                    self._ready.clear()
                    self._disconnect()
                self.state = "not connected"
                if self._rest(pause * (0.75 + secrets.randbelow(500) / 1000)):
                    return
                pause = min(pause * 2, max(_LONGEST_PAUSE, pause))
        finally:
            self.state = "ended"
            self._bell.close()
            self._ear.close()

    def _connect(self) -> Any:
        engine = self._wakeups.engine()
        if engine is None:
            return None
        self._connection = engine.connect_listener()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _translated(self, error: BaseException) -> RotaError:
        engine = self._wakeups.engine()
        return EngineUnavailable(type(error).__name__) if engine is None else engine.errors.unavailable(error)

    def _listen(self, connection: Any) -> bool:
        """Listen until the connection breaks (raises) or nobody needs it any more (True)."""
        wakeups = self._wakeups
        self._ask(connection, f'LISTEN "{wakeups.channel}"')
        self._test_circle(connection)
        self._ask(connection, f"SELECT pg_advisory_lock_shared({LOCK_CLASS}, {wakeups.lock_key})")
        self._failed = None
        self.state = "listening"
        self._ready.set()
        # What came while nobody listened was not told.
        wakeups.wake_all()
        needed_at = tested_at = time.monotonic()
        while not self._ending:
            self._hear(connection, max(tested_at + _TEST_EVERY - time.monotonic(), 0))
            now = time.monotonic()
            if wakeups.busy():
                needed_at = now
            elif now - needed_at > _LINGERING and wakeups.leave(self):
                return True
            if now - tested_at >= _TEST_EVERY:
                if wakeups.engine() is None:
                    return True
                self._read_clock(connection)
                tested_at = time.monotonic()
        return True

    def _test_circle(self, connection: Any) -> None:
        """A notification sent over another connection has to arrive here."""
        engine = self._wakeups.engine()
        if engine is None:
            return
        mark = "t" + secrets.token_hex(8)
        engine.send_test(mark)
        deadline = time.monotonic() + _CIRCLE_PATIENCE
        while (left := deadline - time.monotonic()) > 0 and not self._ending:
            if mark in self._hear(connection, left):
                return
        if self._ending:
            return
        self.state = "deaf"
        text = (
            f"{engine.url}: notifications do not arrive (a pooler in transaction mode?), so workers poll; name the "
            "server's own address with listen_url=, or open the store with notify=False"
        )
        self._failed = EngineUnavailable(text)
        self._wakeups.warn_once(text)
        self._ask(connection, "UNLISTEN *")
        raise _Deaf

    def _read_clock(self, connection: Any) -> None:
        """The self-test: an answer shows that the connection lives, and what time it is there."""
        began = wall_clock()
        value = self._ask(connection, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        engine = self._wakeups.engine()
        if engine is not None and value is not None:
            engine.clock_read(began, int(value))

    def _ask(self, connection: Any, text: str) -> bytes | None:
        """One statement with a patience of our own, as a silent connection never answers; its first value."""
        pgconn = connection.pgconn
        pgconn.send_query(text.encode())
        deadline = time.monotonic() + _TEST_PATIENCE
        value: bytes | None = None
        while True:
            pgconn.flush()
            while pgconn.is_busy():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise psycopg.OperationalError(f"no answer to the listener for {_TEST_PATIENCE} seconds")
                if self._ending:
                    raise psycopg.OperationalError("the listener ends")
                self._wait(pgconn, left)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                self._deliver(pgconn)
                return value
            if result.status == ExecStatus.TUPLES_OK and result.ntuples:
                value = result.get_value(0, 0)
            elif result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.OperationalError(result.get_error_message())

    def _hear(self, connection: Any, seconds: float) -> list[str]:
        """Wait for notifications and pass them on."""
        pgconn = connection.pgconn
        if self._wait(pgconn, seconds):
            pgconn.consume_input()
            if pgconn.status != psycopg.pq.ConnStatus.OK:
                raise psycopg.OperationalError("the listener's connection was closed")
        return self._deliver(pgconn)

    def _deliver(self, pgconn: Any) -> list[str]:
        heard: list[str] = []
        while (notify := pgconn.notifies()) is not None:
            text = notify.extra.decode(errors="replace")
            heard.append(text)
            self._wakeups.arrived(text)
        return heard

    def _wait(self, pgconn: Any, seconds: float) -> bool:
        """Whether something came from the server; the bell ends the wait."""
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        poll.register(self._ear, select.POLLIN)
        ear = self._ear.fileno()
        return any(descriptor != ear for descriptor, _ in poll.poll(max(seconds * 1000, 0)))

    def _rest(self, seconds: float) -> bool:
        """Pause; True if the listener is to end. Nobody waiting ends it too."""
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        poll.poll(seconds * 1000)
        return self._ending or (not self._wakeups.busy() and self._wakeups.leave(self))


class _Deaf(Exception):
    """Connected, but no notification arrives."""
