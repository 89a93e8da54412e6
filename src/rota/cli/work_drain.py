"""When ``rota work --drain`` is over: nothing may come any more of what its addresses hold."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rota.errors import EngineBusy, EngineUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from rota import Queue, Transport, Worker

_PAGE = 1_000
# The worker itself is looked at this often, the store whenever the worker ran out of work, and now and then.
_LOOK = 0.02
_LOOK_AT_STORE = 0.5


class Left(enum.Enum):
    """What there still is for somebody."""

    NOTHING = "nothing"
    WAITING = "waiting"
    SUSPENDED = "suspended"


class Drain:
    """Lets the worker finish when its addresses are drained, from a thread of its own."""

    def __init__(self, worker: Worker, looks: Sequence[Callable[[], Left]]) -> None:
        self._worker = worker
        self._looks = looks
        self._over = threading.Event()
        self.left = Left.NOTHING
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="rota-drain", daemon=True)

    def __enter__(self) -> Drain:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._wait()
        except Exception as error:
            self.error = error
        self._worker.finish()

    def _wait(self) -> None:
        claimed_before, look_at = -1, 0.0
        while not self._over.wait(_LOOK):
            health = self._worker.health()
            claimed = sum(source.claimed for source in health.sources)
            busy = health.unsettled or any(source.running or source.waiting for source in health.sources)
            if health.state != "working" or busy or (claimed == claimed_before and time.monotonic() < look_at):
                continue
            claimed_before = claimed
            try:
                self.left = self._left()
            except (EngineBusy, EngineUnavailable, OutcomeUnknown):
                self.left = Left.WAITING
            if self.left is not Left.WAITING:
                return
            look_at = time.monotonic() + _LOOK_AT_STORE

    def _left(self) -> Left:
        found = {look() for look in self._looks}
        for answer in (Left.WAITING, Left.SUSPENDED):
            if answer in found:
                return answer
        return Left.NOTHING


def left_in_queue(queue: Queue) -> Left:
    """Whether any job may still come: expired ones are buried first, they would wait for ever."""
    queue.sweep_expired()
    stats = queue.stats()
    if not stats.pending and not stats.processing:
        return Left.NOTHING
    return Left.SUSPENDED if stats.suspended and not stats.processing else Left.WAITING


def left_in_transport(transport: Transport, floor: int | None) -> Left:
    """Whether any group at or above the floor may still come."""
    stats = transport.stats()
    if not stats.messages:
        return Left.NOTHING
    if stats.suspended:
        return Left.WAITING if stats.leased else Left.SUSPENDED
    if floor is None and not stats.suspended_groups:
        return Left.WAITING
    return _left_in_groups(transport, floor)


def _left_in_groups(transport: Transport, floor: int | None) -> Left:
    found = Left.NOTHING
    after: str | None = None
    while True:
        page = transport.groups(None, _PAGE, after)
        for group in page:
            if floor is not None and group.priority < floor:
                continue
            if group.state != "suspended":
                return Left.WAITING
            found = Left.SUSPENDED
        if len(page) < _PAGE:
            return found
        after = page[-1].group_id
