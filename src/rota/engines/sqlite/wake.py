"""Wake-ups across processes (X7): datagrams, and beneath them a probe of the database's version.

While somebody waits, one daemon thread per engine listens. Where threads cannot be started there is none: waiting
claims look again by themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rota.engines.sqlite import mailbox
from rota.engines.sqlite.mailbox import EVERYBODY, Mailbox, Post
from rota.wakeups import Waiter, Wakeups

# Seconds between two probes: the first after something changed, the longest while nothing does. With datagrams the
# probe only finds what they missed (a lost one, another user's process); without, it is all there is.
WITH_MAIL = (0.01, 0.05)
WITHOUT_MAIL = (0.002, 0.005)
# A listener nobody has needed for this long ends, in seconds.
LINGERING = 5.0
_ENDING_PATIENCE = 1.0


class SqliteWakeups(Wakeups):
    """The waiters of one engine, woken by this process and by others."""

    def __init__(self, path: str, version: Callable[[], int | None]) -> None:
        super().__init__()
        self._version = version
        self._post = Post(path) if mailbox.available() else None
        self._listener: _Listener | None = None
        self._starting = threading.Lock()

    def add(self, waiter: Waiter) -> None:
        """Register a waiter; from here on datagrams for its address arrive."""
        super().add(waiter)
        if self._listener is None:
            self._start()

    def wake(self, address: str) -> None:
        """Wake whoever waits at the address, in every process."""
        if self._waiters:
            self.wake_here(address)
        if self._post is not None:
            self._post.send(address)

    def close(self) -> None:
        """Wake everybody for good and end the listener."""
        super().close()
        with self._starting:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()
        if self._post is not None:
            self._post.close()

    def forked(self) -> None:
        """In a forked child: the waiters and the listening thread are the parent's."""
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._waiters = {}
        listener, self._listener = self._listener, None
        if listener is not None and listener.mailbox is not None:
            listener.mailbox.close(unlink=False)
        if self._post is not None:
            self._post.own = None
            self._post.close()

    def busy(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def leave(self, listener: _Listener) -> bool:
        """Whether the listener may end: nobody waits."""
        with self._starting:
            # In this order: a waiter added meanwhile either finds no listener, or is found here.
            self._listener = None
            if self._waiters and not self.closed:
                self._listener = listener
                return False
        return True

    def _start(self) -> None:
        with self._starting:
            if self._listener is not None or self.closed:
                return
            listener = _Listener(self, self._version, self._mailbox())
            if listener.start():
                self._listener = listener

    def _mailbox(self) -> Mailbox | None:
        if self._post is None:
            return None
        try:
            box = Mailbox(self._post.folder)
        except OSError:
            # No place for a socket: the probe alone has to do.
            return None
        self._post.own = box.path
        return box


class _Listener:
    """The thread that listens for one engine."""

    def __init__(self, wakeups: SqliteWakeups, version: Callable[[], int | None], box: Mailbox | None) -> None:
        self.mailbox = box
        self._wakeups = wakeups
        self._version = version
        # Read before the waiter looks for work: a commit after its look must show. None (this process is writing just
        # now) differs from any version.
        self._seen = version()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-sqlite-listener", daemon=True)

    def start(self) -> bool:
        try:
            self._thread.start()
        except RuntimeError:
            # Threads cannot be started here.
            if self.mailbox is not None:
                self.mailbox.close()
            return False
        return True

    def end(self) -> None:
        self._ending.set()
        if self.mailbox is not None:
            self.mailbox.ring()
        if self._thread is not threading.current_thread():
            self._thread.join(_ENDING_PATIENCE)

    def _run(self) -> None:
        try:
            self._listen()
        finally:
            if self.mailbox is not None:
                self.mailbox.close()

    def _listen(self) -> None:
        shortest, longest = WITH_MAIL if self.mailbox is not None else WITHOUT_MAIL
        pause = longest
        probe_at = time.monotonic() + pause
        needed_at = time.monotonic()
        while not self._ending.is_set():
            self._hear(max(probe_at - time.monotonic(), 0))
            now = time.monotonic()
            if self._wakeups.busy():
                needed_at = now
            elif now - needed_at > LINGERING and self._wakeups.leave(self):
                return
            if now < probe_at:
                continue
            found = self._version()
            if found is not None and found != self._seen:
                # Nobody knows what it was.
                self._seen, pause = found, shortest
                self._wakeups.wake_all()
            else:
                pause = min(pause * 1.5, longest)
            probe_at = now + pause

    def _hear(self, seconds: float) -> None:
        if self.mailbox is None:
            self._ending.wait(seconds)
            return
        woken = self.mailbox.wait(seconds)
        if EVERYBODY in woken:
            self._wakeups.wake_all()
        else:
            for address in woken:
                self._wakeups.wake_here(address)
