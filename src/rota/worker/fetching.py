"""Claiming for one source, on a thread of its own: as much as there is room for, and no sooner than there is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.errors import EngineBusy, EngineUnavailable, RotaError, SchemaMismatch, StoreClosed
from rota.facade.waiting import POLL, pause_until
from rota.worker import plan
from rota.worker.logs import INFO, WARNING, tell
from rota.worker.sources import Held, Source
from rota.worker.tracing import received

if TYPE_CHECKING:
    from rota.worker.beats import Beats
    from rota.worker.settling import Settler

_monotonic = time.monotonic
# After a claim that took all there was, the handlers get the interpreter's lock before the next look.
_BREATH = 0.001
# While there is no room, what waits for a slot is looked at this often.
_LOOK = 0.25


class Fetcher:
    """The thread of one source."""

    def __init__(
        self,
        source: Source,
        give: Callable[[Source, list[Held]], None],
        settler: Settler,
        beats: Beats,
        broken: Callable[[BaseException], None],
    ) -> None:
        self._source = source
        self._give = give
        self._settler = settler
        self._beats = beats
        self._broken = broken
        self._stopped = False
        self._failures = 0
        self.failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"rota-fetch-{source.label}", daemon=True)
        self.start = self._thread.start

    @property
    def running(self) -> bool:
        """Whether it may still claim."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Claim no more. A claim under way gives back what it gets."""
        self._stopped = True
        self._source.waiter.wake()
        self._source.room_made.set()

    def join(self, patience: float) -> None:
        """Wait for its end."""
        self._thread.join(patience)

    def _run(self) -> None:
        wakeups, waiter = self._source.core.wakeups, self._source.waiter
        # Registered before the first look: from here on nothing is missed.
        wakeups.add(waiter)
        try:
            while not self._stopped:
                self._round()
        except BaseException as error:
            self._broken(error)
        finally:
            wakeups.remove(waiter)

    def _round(self) -> None:
        source = self._source
        n, limits = source.room(self._settler.backlog), source.limits
        if limits is not None:
            n = limits.take(source, n)
        if n <= 0:
            self._wait_for_room()
            return
        source.waiter.clear()
        since = _monotonic()
        helds: list[Held] = []
        failure: Exception | None = None
        try:
            try:
                helds = source.claim(n)
            except (StoreClosed, SchemaMismatch, ValueError, TypeError):
                # Nothing that passes.
                raise
            except Exception as error:
                if isinstance(error, EngineUnavailable) and error.lasting:
                    raise
                failure = error
            if helds:
                self._hand_over(helds, since)
        finally:
            if limits is not None:
                limits.claimed(n, len(helds))
        if failure is not None:
            self._failed(failure)
            return
        if helds:
            received(source, _monotonic() - since)
        if self._failures:
            self._failures, self.failing_since = 0, None
            tell(INFO, "store_back", source=source.label)
        if not helds:
            self._wait_for_work()
        elif len(helds) < n and not self._stopped:
            source.waiter.wait(_BREATH)

    def _hand_over(self, helds: list[Held], since: float) -> None:
        source = self._source
        handled = helds
        if any(held.handler is None for held in helds):
            handled = [held for held in helds if held.handler is not None]
            source.counters.claimed += len(helds) - len(handled)
            self._settler.put_all(held for held in helds if held.handler is None)
        if self._stopped:
            source.counters.claimed += len(handled)
            self._give_back(handled)
        elif handled:
            source.arrived(handled)
            self._give(source, handled)
            self._beats.arrived(source, since)

    def _wait_for_room(self) -> None:
        source = self._source
        source.room_made.clear()
        source.hungry = True
        # Room that was made before we said so was told to nobody.
        if not self._has_room() and not self._stopped:
            source.room_made.wait(_LOOK)
        source.hungry = False
        surplus = source.surplus()
        if surplus:
            for held in surplus:
                source.live.discard(held)
            self._give_back(surplus)

    def _has_room(self) -> bool:
        source = self._source
        room = source.room(self._settler.backlog) > 0
        return room and (source.limits is None or source.limits.may_take(source))

    def _give_back(self, helds: list[Held]) -> None:
        for held in helds:
            held.settlement = plan.RELEASE
        self._settler.put_all(helds)

    def _wait_for_work(self) -> None:
        """Until something is due, or we are woken; at most ``POLL`` (X7)."""
        source = self._source
        pause = POLL
        if source.core.steered is None:
            try:
                due = source.next_due()
            except RotaError:
                due = None
            pause = pause_until(source.core, due)
        if not self._stopped:
            source.waiter.wait(pause)

    def _failed(self, error: Exception) -> None:
        """Not the end: it is asked again, less and less often, at least every second."""
        if isinstance(error, EngineBusy):
            self._source.waiter.wait(plan.outage_pause(1, self._source.core.rng.random()))
            return
        self._failures += 1
        if self.failing_since is None:
            self.failing_since = time.time()
            tell(WARNING, "store_failing", source=self._source.label, error=f"{type(error).__name__}: {error}")
        if not self._stopped:
            self._source.waiter.clear()
            self._source.waiter.wait(plan.outage_pause(self._failures, self._source.core.rng.random()))
