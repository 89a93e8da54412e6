"""A running worker: its threads, and the one that ends them in good order."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from rota.worker import plan
from rota.worker.beats import Beats
from rota.worker.coroutines import LoopRunner
from rota.worker.fetching import Fetcher
from rota.worker.health import State, WorkerHealth
from rota.worker.housekeeping import Housekeeping
from rota.worker.limits import Limits
from rota.worker.logs import INFO, WARNING, tell
from rota.worker.plan import Why
from rota.worker.registry import Registry
from rota.worker.settling import Settler
from rota.worker.sources import Held, Source, make_source
from rota.worker.threads import ThreadRunner

if TYPE_CHECKING:
    from rota.sync.store import Store

Order = Literal["finish", "stop", "signal", "now", "loop closed"]
_LOOK = 0.02
# How often it is looked whether the loop is closed.
_LOOP_LOOK = 1.0
# For recording what ended last, and for claims under way.
_PATIENCE = 5.0
# A loop that does not answer for so long is blocked by a handler.
_ANSWER = 1.0


class Runtime:
    """One run of a worker on an opened store and an event loop."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        worker_id: str,
        grace: float | None,
        housekeeping: bool,
        limits: Limits | None = None,
        on_settled: Callable[[Sequence[Held], int], None] | None = None,
    ) -> None:
        self._grace = grace
        self._loop = loop
        self._worker_id = worker_id
        self.state: State = "idle"
        # A SimpleQueue may be written from a signal handler, whatever that interrupted.
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._started_at: float | None = None
        self.broken: BaseException | None = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self.is_cancelled: Callable[[], bool] = lambda: False
        """Whether the task that runs us is being cancelled."""
        self.heard = threading.Event()
        self.on_blocked: Callable[[], None] | None = None
        """Called when everything is given back and a handler still blocks the loop."""
        self.sources = [make_source(spec, store, worker_id) for spec in registry.sources.values()]
        self._settler = Settler()
        if limits is not None:
            limits.watch(self.sources, lambda: self._settler.backlog, lambda: self.orders.put("finish"))
            self._settler.on_round = limits.feed
            for source in self.sources:
                source.limits = limits
        self._settler.on_settled = on_settled
        # What handlers see of it are copies, one for each item.
        context = contextvars.copy_context()
        self._coroutines = LoopRunner(loop, context, self._settler.put, self._cancelled_outside)
        self._beats = Beats(self.sources, self._end)
        self._threads: dict[Source, ThreadRunner] = {
            source: ThreadRunner(source, context, self._settler.put, self._beats.watch, self._on_broken)
            for source in self.sources
            if any(handler.runs != "loop" for handler in source.spec.handlers)
        }
        self._fetchers = [
            Fetcher(source, self._give, self._settler, self._beats, self._on_broken) for source in self.sources
        ]
        executors = [handler.executor for source in self.sources for handler in source.spec.handlers]
        self._words = max(plan.LAST_WORDS, *(one.last_words for one in executors if one is not None), 0.0)
        self._housekeeping = Housekeeping(store, self.sources, worker_id) if housekeeping else None
        self._supervisor = threading.Thread(target=self._supervise, name="rota-supervisor", daemon=True)

    def start(self) -> None:
        """Begin."""
        self.state = "working"
        self._started_at = time.time()
        tell(INFO, "worker_started", worker_id=self._worker_id, sources=[source.label for source in self.sources])
        self._settler.start()
        self._beats.start()
        for fetcher in self._fetchers:
            fetcher.start()
        if self._housekeeping is not None:
            self._housekeeping.start()
        self._supervisor.start()

    async def until_ended(self) -> None:
        """Cancelled meanwhile: stop now, wait for everything to be given back, then let the cancellation go on."""
        cancelled: asyncio.CancelledError | None = None
        while not self.ended.done():
            try:
                await asyncio.shield(self.ended)
            except asyncio.CancelledError as error:
                cancelled = error
                self.orders.put("now")
                self.orders.put("now")
        self._supervisor.join(_PATIENCE)
        if cancelled is not None:
            raise cancelled

    def forked(self) -> None:
        """In a forked child: a handler that forked must not come back here, where nothing of us is but its thread."""
        self._coroutines.forked = True
        for threads in self._threads.values():
            threads.forked = True

    def health(self) -> WorkerHealth:
        """Its numbers at this moment."""
        failing = [fetcher.failing_since for fetcher in self._fetchers]
        if self._settler.backlog:
            # What failed there last may have been given up, and nothing come since that could show it works again.
            failing.append(self._settler.failing_since)
        since = [instant for instant in failing if instant is not None]
        return WorkerHealth(
            state=self.state,
            worker_id=self._worker_id,
            started_at=self._started_at,
            unsettled=self._settler.backlog,
            store_failing_since=min(since, default=None),
            sources=tuple(source.health() for source in self.sources),
        )

    # -- Items -------------------------------------------------------------------------------------------------------

    def _give(self, source: Source, helds: list[Held]) -> None:
        threads = self._threads.get(source)
        if threads is None:
            self._coroutines.give(source, helds)
        elif source.ahead_allowed:
            threads.give(helds)
        else:
            self._give_apart(source, threads, helds)

    def _give_apart(self, source: Source, threads: ThreadRunner, helds: list[Held]) -> None:
        """Handlers of both kinds in one queue: none waits, since no more are claimed than there are free slots."""
        coroutines = [held for held in helds if held.handler is not None and held.handler.runs == "loop"]
        others = [held for held in helds if held.handler is not None and held.handler.runs != "loop"]
        if coroutines:
            self._coroutines.begin(source, coroutines)
        if others:
            threads.give(others)

    def _end(self, held: Held, why: Why) -> None:
        """A handler is to end: cancelled, told or killed, as it can be."""
        handler = held.handler
        assert handler is not None
        if not held.began and why == "lost":
            self._drop_lost(held)
        elif handler.runs == "loop":
            self._coroutines.end(held, why, cancel=why != "lost" or handler.cancel_on_lost)
        else:
            self._threads[held.source].end(held, why)

    def _drop_lost(self, held: Held) -> None:
        """It waits for a slot, and must not begin under a claim that is gone."""
        held.why = "lost"
        try:
            held.source.waiting.remove(held)
        except ValueError:
            # It just begins: its runner sees why not to.
            return
        held.source.live.discard(held)
        held.source.feed()

    def _cancelled_outside(self) -> bool:
        return self.state == "stopping" or self.is_cancelled()

    def _on_broken(self, error: BaseException) -> None:
        """Something that does not pass by itself: stop, and let whoever runs us know."""
        first, self.broken = self.broken is None, self.broken or error
        for fetcher in self._fetchers:
            fetcher.stop()
        if first:
            self.orders.put("stop")

    # -- Ending ------------------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            self._stop(self._first_order())
        except BaseException as error:
            self.broken = self.broken or error
        finally:
            self.state = "idle"
            tell(INFO, "worker_stopped", worker_id=self._worker_id)
            try:
                self._loop.call_soon_threadsafe(self._tell_ended)
            except RuntimeError:
                self.heard.set()
            if not self.heard.wait(_ANSWER) and self.on_blocked is not None:
                self.on_blocked()

    def _first_order(self) -> Order:
        """Wait to be told to stop. A loop that was closed under us will never tell: nothing of it runs any more."""
        while True:
            try:
                return self.orders.get(timeout=_LOOP_LOOK)
            except queue.Empty:
                if self._loop.is_closed():
                    return "loop closed"

    def _tell_ended(self) -> None:
        self.heard.set()
        if not self.ended.done():
            self.ended.set_result(None)

    def _stop(self, order: Order) -> None:
        self.state = "stopping"
        for fetcher in self._fetchers:
            fetcher.stop()
        if self._housekeeping is not None:
            self._housekeeping.stop()
        if order == "finish":
            order = self._let_finish()
        began = time.monotonic()
        for source in self.sources:
            self._give_back(source, source.take_waiting())
            source.closing = True
            self._coroutines.leave_row(source)
        tell(INFO, "worker_stopping", order=order, running=self._held(), grace=self._grace)
        self._wait_for_handlers(began, urgent=order in ("now", "loop closed"))
        self._leave_behind()
        for fetcher in self._fetchers:
            fetcher.join(_PATIENCE)
        for threads in self._threads.values():
            threads.close()
        self._settler.close(_PATIENCE)
        self._beats.close()
        if self._housekeeping is not None:
            self._housekeeping.join(_PATIENCE)
        until = time.monotonic() + _PATIENCE / 2
        for source, threads in self._threads.items():
            if not source.in_threads or any(handler.executor for handler in source.spec.handlers):
                threads.join(until)

    def _let_finish(self) -> Order:
        """Wait until everything claimed was handled, as long as it takes, or until another order comes."""
        while self._held():
            try:
                order = self.orders.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if order != "finish":
                return order
        return "finish"

    def _held(self) -> int:
        # In this order: what leaves ``live`` is ending already.
        return sum(len(source.live) + source.ending + source.ending_on_loop for source in self.sources)

    def _wait_for_handlers(self, began: float, *, urgent: bool) -> None:
        urgent_at = 0.0 if urgent else None
        cancelled = False
        while True:
            elapsed = time.monotonic() - began
            phase = plan.phase(self._held(), elapsed, self._grace, urgent_at, self._words)
            if phase == "leaving":
                return
            if phase == "cancelling" and not cancelled:
                cancelled = True
                self._cancel_all()
            try:
                order = self.orders.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if order in ("finish", "stop"):
                # Said more than once in a program, by different parts of it, that is no hurry.
                continue
            # Told again by a signal, or to stop now.
            if urgent_at is None:
                urgent_at = time.monotonic() - began
                tell(INFO, "worker_stopping_now", running=self._held())

    def _cancel_all(self) -> None:
        tell(INFO, "worker_cancelling", running=self._held())
        for source in self.sources:
            for held in list(source.live):
                handler = held.handler
                assert handler is not None
                if handler.runs == "thread":
                    # It cannot be ended: what it holds is given back now, and it is told.
                    self._leave(source, held)
                else:
                    self._end(held, "stopped")

    def _leave_behind(self) -> None:
        """What has not ended by now is given back, whatever it still does."""
        left = [(source, held) for source in self.sources for held in list(source.live)]
        for source, held in left:
            self._leave(source, held)
        if left:
            tell(WARNING, "handlers_left_behind", count=len(left))

    def _leave(self, source: Source, held: Held) -> None:
        if held.why in ("lost", "overdue"):
            # Nothing to give back, or nothing to be sure of.
            source.live.discard(held)
            return
        self._end(held, "left")
        held.why = "left"
        self._give_back(source, [held], copies=True)

    def _give_back(self, source: Source, helds: list[Held], *, copies: bool = False) -> None:
        for held in helds:
            source.live.discard(held)
            returned = held
            if copies:
                # Its handler, still running, may yet write its own settlement into the original.
                returned = Held(source, held.handler, held.handle, held.claim, held.since)
            returned.settlement = plan.RELEASE
            self._settler.put(returned)
