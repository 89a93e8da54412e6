"""Telling other processes that there is work: NOTIFY from a connection beside the verbs, coalesced.

A transaction that notifies commits under one lock of the whole server, and eight producers whose inserts notify reach
a third of their rate. So verbs do not notify. A thread sends each address, at once where little happens, at most 20
times a second where much does, and nothing while nobody listens. What a crash keeps from being sent, polling finds.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg

from rota.errors import RotaError
from rota.sql.drive import Block

if TYPE_CHECKING:
    from rota.engines.postgres.listening import PostgresWakeups

# Seconds between two sendings while somebody listens: doubled each time there is more to tell when they are over.
_SHORTEST, _LONGEST = 0.002, 0.05
# And while nobody listens.
_ALONE = 0.2
# A sender with nothing to send for this long ends.
_LINGERING = 5.0
# Bytes of "rotb", to tell our advisory locks from others'.
LOCK_CLASS = int.from_bytes(b"rotb", "big")

# Takes the lock exclusively for a moment if no listener shares it. Two senders at once may take each other for one.
SEND = Block(
    "send",
    f"SELECT CASE WHEN pg_try_advisory_xact_lock({LOCK_CLASS}, %s::int) THEN 0"
    " ELSE (SELECT count(pg_notify(%s, text)) FROM unnest(%s::text[]) AS text) END",
    True,
)

# For one address, as where little happens and it matters how soon: planned in half the time.
SEND_ONE = Block(
    "send_one", f"SELECT pg_notify(%s, %s) WHERE NOT pg_try_advisory_xact_lock({LOCK_CLASS}, %s::int)", True
)


class Sender:
    """The addresses of one engine that are to be told."""

    def __init__(self, wakeups: PostgresWakeups) -> None:
        self._wakeups = wakeups
        self._pending: set[str] = set()
        self._posted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def post(self, address: str) -> None:
        """Have an address told soon. Costs next to nothing while it is waiting to be told already."""
        if address in self._pending:
            return
        self._pending.add(address)
        self._posted.set()
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Tell what is left, then end."""
        self._ending.set()
        self._posted.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._ending.is_set():
                thread = threading.Thread(target=self._run, name="rota-postgres-sender", daemon=True)
                self._thread = thread
                thread.start()

    def _run(self) -> None:
        interval = _SHORTEST
        while True:
            interval = min(interval * 2, _LONGEST) if self._posted.is_set() else _SHORTEST
            if not self._posted.wait(_LINGERING):
                with self._starting:
                    self._thread = None
                    # Posted meanwhile: either it found no thread, or it is found here.
                    if not self._pending:
                        return
                    self._thread = threading.current_thread()
            self._posted.clear()
            if self._ending.wait(interval if self._send() else _ALONE):
                self._send()
                return

    def _send(self) -> int:
        """Tell everything that is pending; to how many notifications that came."""
        addresses = list(self._pending)
        # Whoever posts from here on posts anew.
        self._pending.difference_update(addresses)
        engine = self._wakeups.engine()
        if engine is None:
            self._ending.set()
        elif addresses:
            try:
                return engine.send(addresses)
            except (RotaError, psycopg.Error):
                # The listeners poll.
                time.sleep(_ALONE)
        return 0
