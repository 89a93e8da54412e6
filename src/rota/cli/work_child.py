"""The process of one command: its input, its environment, its process group, its end."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rota.worker.outcomes import CannotRun
from rota.worker.plan import Why

# Between SIGTERM and SIGKILL.
KILL_AFTER = 5.0
# So much of the end of stderr is kept as the error.
TAIL_BYTES = 8 * 1024
_CHUNK = 64 * 1024
_LAST_READS = 32
# How often its thread looks whether it is to end.
_LOOK = 0.1
# The system refuses longer single variables; headers beyond this stay in the store.
_LONGEST_VARIABLE = 64 * 1024

# Everything that may be set about an item.
ITEM_VARIABLES = frozenset(
    f"ROTA_{name}"
    for name in (
        *("KIND", "QUEUE", "TRANSPORT", "ID", "SEQ", "GROUP", "NAME", "ATTEMPT", "MAX_ATTEMPTS"),
        *("TOKEN", "WORKER", "PRIORITY", "HEADERS"),
    )
)

_POSIX = os.name == "posix"
_stderr_lock = threading.Lock()


class Ended(NamedTuple):
    """How a command ended: its exit status (negative: a signal), why we ended it if we did, its last words."""

    status: int
    ended_by_us: Why | None
    tail: str


class TooLarge(Exception):
    """This item's variables are too large for a process; others may be fine."""


class Child:
    """A running command. ``kill`` may be called from any thread, everything else belongs to the thread that runs it.

    ``why`` says whether it is to end: ``left`` means now, anything else SIGTERM first and SIGKILL later.
    """

    def __init__(
        self, command: list[str], payload: bytes, variables: Mapping[str, str], why: Callable[[], Why | None]
    ) -> None:
        self._tail = b""
        self._why = why
        self._reason: Why | None = None
        self._kill_at = float("inf")
        self._process = _start(command, payload, variables)
        self.how = ""
        """For people: how it ended."""

    def kill(self) -> None:
        """SIGKILL, to it and to what it started."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL if _POSIX else signal.SIGTERM)

    def run(self) -> Ended:
        """Pass its stderr on until it has ended."""
        process = self._process
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        with process.stderr, selectors.DefaultSelector() as selector:
            selector.register(process.stderr, selectors.EVENT_READ)
            watch = _watch_exit(process, selector)
            try:
                while process.poll() is None:
                    self._obey()
                    ready = selector.select(_LOOK if watch is not None else _LOOK / 5)
                    for key, _ in ready:
                        if key.fileobj is process.stderr and self._read() == b"":
                            selector.unregister(process.stderr)
                # What it wrote last. Not to the end of the file: something it left behind may hold the pipe open.
                for _ in range(_LAST_READS):
                    if not self._read():
                        break
            finally:
                if watch is not None:
                    os.close(watch)
        if self._reason is not None:
            # Whatever it started and that did not care for SIGTERM.
            self._signal(signal.SIGKILL if _POSIX else signal.SIGTERM)
        # One that ended before our signal reached it ended by itself.
        return Ended(process.returncode, self._reason, self._tail.decode("utf-8", "replace").strip())

    def _obey(self) -> None:
        why = self._why()
        if why is None:
            return
        if self._reason is None:
            self._kill_at = time.monotonic() + KILL_AFTER
        if why == "left" or time.monotonic() >= self._kill_at:
            self._signal(signal.SIGKILL if _POSIX else signal.SIGTERM)
        elif self._reason is None:
            self._signal(signal.SIGTERM)
        self._reason = why

    def _signal(self, number: signal.Signals) -> None:
        try:
            if _POSIX:
                os.killpg(self._process.pid, number)
            else:
                self._process.terminate()
        except (ProcessLookupError, PermissionError):
            pass

    def _read(self) -> bytes | None:
        """Take what is there of its stderr and pass it on: None when there is nothing now, empty when it is over."""
        assert self._process.stderr is not None
        try:
            chunk = os.read(self._process.stderr.fileno(), _CHUNK)
        except BlockingIOError:
            return None
        if chunk:
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            _pass_on(chunk)
        return chunk


def _start(command: list[str], payload: bytes, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A file, not a pipe: a command that never reads its input can neither block us nor break a pipe.
    with tempfile.TemporaryFile() as source:
        source.write(payload)
        source.seek(0)
        options: dict[str, Any] = {"env": _environment(variables)}
        if _POSIX:
            # Its own group: Ctrl-C at the terminal reaches us alone, and what the command starts is ended with it.
            options["process_group"] = 0
        try:
            return subprocess.Popen(command, stdin=source, stderr=subprocess.PIPE, **options)
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise TooLarge(f"its variables are too large for a process: {error.strerror}") from None
            raise CannotRun(f"cannot start {command[0]!r}: {error.strerror}") from None


def _environment(variables: Mapping[str, str]) -> dict[Any, Any]:
    """Our own environment with the item's variables, and none of an item that we ourselves may be run for."""
    fresh = {name: value for name, value in variables.items() if len(value) <= _LONGEST_VARIABLE}
    if not _POSIX:
        return {name: value for name, value in os.environ.items() if name not in ITEM_VARIABLES} | fresh
    stale = {name.encode() for name in ITEM_VARIABLES}
    inherited = {name: value for name, value in os.environb.items() if name not in stale}
    # UTF-8 whatever the locale is: a group id may be any text.
    return inherited | {name.encode(): value.encode() for name, value in fresh.items()}


def _watch_exit(process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> int | None:
    """Make the selector wake when the process ends, where the system can."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        descriptor = opener(process.pid)
    except OSError:
        return None
    selector.register(descriptor, selectors.EVENT_READ)
    return descriptor


def _pass_on(chunk: bytes) -> None:
    """To our own stderr, in whole chunks. Its reader may be gone; the command's outcome does not hang on that."""
    try:
        with _stderr_lock:
            buffer = getattr(sys.stderr, "buffer", None)
            if buffer is None:
                sys.stderr.write(chunk.decode("utf-8", "replace"))
            else:
                buffer.write(chunk)
            sys.stderr.flush()
    except (OSError, ValueError):
        pass
