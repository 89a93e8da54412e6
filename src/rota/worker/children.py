"""Handlers in processes of their own: a child handles one item at a time, and can be killed and replaced.

Children are spawned, never forked. They ignore SIGINT and SIGTERM, which a terminal or a service manager sends to the
whole group: their parent decides. When the parent is gone, they end at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from rota.worker.logs import WARNING, item_fields, tell
from rota.worker.outcomes import CannotRun, Fail, OutsideError, Retry, Snooze, error_text, qualified, ran
from rota.worker.registry import Handler
from rota.worker.signature import label_of
from rota.worker.sources import Held

# How often a child's thread looks whether its item was taken from it.
_LOOK = 0.1
_STARTING, _ENDING = 60.0, 2.0


class ChildDied(OutsideError):
    """The child ended in the middle of an item. ``status``: as it ended by itself, negative for a signal."""

    def __init__(self, text: str, kind: str, status: int | None = None) -> None:
        super().__init__(text, kind)
        self.status = status


class RaisedInChild(OutsideError):
    """Stands for an exception of the handler; its text is the child's traceback."""


class Child:
    """A process for one handler; belongs to one thread."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        # Never written to: its end tells the child that its parent is gone.
        living, self._alive = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_main, args=(handler.function, handler.takes_payload, there, living), daemon=True
        )
        self._process.start()
        self._ready = False
        there.close()
        living.close()

    @property
    def alive(self) -> bool:
        """Whether it can take an item."""
        return self._process.is_alive()

    def start(self, held: Held) -> None:
        """Wait until it can take its first item. Raises ``ChildDied``; kills the child when ``why`` is set.

        One that ends by itself before it could take any (what it imports fails there) raises ``CannotRun``: the next
        one would fare no better, nor would any item.
        """
        end = time.monotonic() + _STARTING
        try:
            while not self._ready and not self._wait(held, "started for this"):
                if time.monotonic() >= end:
                    self.kill()
                    raise ChildDied(
                        f"the process of {self._handler.label} did not start in {_STARTING:g} s", "not started"
                    )
            if not self._ready:
                self._receive("started for this")
                self._ready = True
        except ChildDied as error:
            if error.status is None or error.status < 0:
                raise
            raise CannotRun(
                f"a process of {self._handler.label} cannot start, it ended with exit status {error.status}: "
                "see what it wrote to stderr"
            ) from None

    def handle(self, held: Held) -> Any:
        """Handle one item. Raises what the handler raised, or ``ChildDied``; kills the child when ``why`` is set."""
        payload = held.handle.payload if held.source.kind == "queue" else held.handle.event
        try:
            self._here.send(payload)
        except OSError:
            self._died("handled this")
        while not self._wait(held, "handled this"):
            pass
        kind, *values = self._receive("handled this")
        if kind == "returned":
            return self._result(held, *values)
        if kind == "retry":
            raise Retry(*values)
        if kind == "fail":
            raise Fail(*values)
        if kind == "snooze":
            raise Snooze(*values)
        raise RaisedInChild(*values)

    def _result(self, held: Held, sent: bytes | None, error: str | None) -> Any:
        """What came of a result; one that cannot be carried is dropped, as in any handler: its work is done."""
        if sent is not None:
            try:
                return ForkingPickler.loads(sent)
            except Exception as failure:
                error = type(failure).__name__
        if error is not None and held.source.kind == "queue":
            tell(WARNING, "result_dropped", error=error, **item_fields(held.source, held.claim))
        return None

    def _wait(self, held: Held, doing: str) -> bool:
        """Wait a moment for its word; whether there is one."""
        if self._here.poll(0):
            return True
        if held.why is not None:
            self.kill()
            timeout = self._handler.timeout
            raise ChildDied(
                f"timed out after {timeout:g} s" if held.why == "timeout" else f"ended: {held.why}", held.why
            )
        ready = wait([self._here, self._process.sentinel], _LOOK)
        if self._process.sentinel in ready and not self._here.poll(0):
            self._died(doing)
        return False

    def _receive(self, doing: str) -> Any:
        try:
            return self._here.recv()
        except (EOFError, OSError):
            return self._died(doing)

    def _died(self, doing: str) -> Any:
        self._process.join(_ENDING)
        status = self._process.exitcode
        self.kill()
        how = f"exit status {status}"
        if status is not None and status < 0:
            try:
                how = f"killed by {signal.Signals(-status).name}"
            except ValueError:
                how = f"killed by signal {-status}"
        raise ChildDied(f"the process of {self._handler.label} died while it {doing}: {how}", how, status)

    def kill(self) -> None:
        """Kill it and clean up."""
        self._process.kill()
        self._process.join(_ENDING)
        self._here.close()
        self._alive.close()

    def close(self) -> None:
        """End it while it has nothing to do."""
        self._here.close()
        self._alive.close()
        self._process.join(_ENDING)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_ENDING)
        self._process.close()


def _main(function: Any, takes_payload: bool, work: Connection, living: Connection) -> None:
    """A child's whole life."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(living,), daemon=True).start()
    try:
        work.send(None)
    except OSError:
        return
    while True:
        try:
            sent = work.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            work.send(_answer(function, takes_payload, sent))
        except OSError:
            return


def _answer(function: Any, takes_payload: bool, sent: bytes) -> tuple[Any, ...]:
    try:
        payload = ForkingPickler.loads(sent)
        result = ran(label_of(function), function(payload) if takes_payload else function())
    except Retry as how:
        return ("retry", how.delay, how.reason)
    except Fail as how:
        return ("fail", how.reason)
    except Snooze as how:
        return ("snooze", how.delay)
    except BaseException as error:
        return ("raised", *_told(error))
    try:
        return ("returned", None if result is None else bytes(ForkingPickler.dumps(result)), None)
    except Exception as error:
        return ("returned", None, type(error).__name__)


def _told(error: BaseException) -> tuple[str, str, str]:
    kind = type(error)
    return error_text(error), kind.__name__, qualified(kind)


def _end_with_parent(living: Connection) -> None:
    try:
        living.recv()
    except (EOFError, OSError):
        os._exit(1)
