"""One item at a time, in the calling thread: for tests, and for programs with a loop of their own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from rota.worker import plan, transactional
from rota.worker.coroutines import note_end
from rota.worker.health import WorkerHealth
from rota.worker.logs import WARNING, item_fields, tell
from rota.worker.outcomes import ran
from rota.worker.registry import Handler, Registry
from rota.worker.sources import Held, Source, make_source
from rota.worker.tracing import handling

if TYPE_CHECKING:
    from rota.sync.store import Store


# Microseconds: an application's own clock may round.
_AS_GOOD_AS_DUE = 1_000


class MovableClock(Protocol):
    """A clock that a test moves: ``rota.testing.ManualClock``."""

    def jump_to(self, microseconds: int) -> None: ...


class Stepper:
    """A worker on a store, moved by its caller."""

    def __init__(self, registry: Registry, store: Store, worker_id: str) -> None:
        self.store = store
        self._registry = registry
        self._worker_id = worker_id
        self._sources: list[Source] = []
        self._known = 0
        self._loop: asyncio.Runner | None = None
        # Several threads may step: each handles its own item, on the one loop one after the other.
        self._turning, self._on_loop = threading.Lock(), threading.Lock()

    def step(self) -> bool:
        """Handle at most one item; whether there was one."""
        return self._step() is not None

    def drain(self, clock: MovableClock | None, limit: int) -> int:
        """Step until nothing is left, with a clock also what is due later; how many were handled."""
        if clock is not None and not hasattr(clock, "jump_to"):
            raise TypeError(f"advance must be the ManualClock the store was opened with, got {clock!r}")
        last: Held | None = None
        unknown = set[tuple[Source, int]]()
        for count in range(limit):
            while (held := self._step()) is None:
                due = min((due for source in self._sources if (due := source.next_due()) is not None), default=None)
                if clock is None or due is None:
                    return count
                clock.jump_to(due)
                if due - self.store._core.engine.now() > _AS_GOOD_AS_DUE:
                    raise ValueError(f"advance must be the clock the store was opened with, got another one: {clock!r}")
            last = held
            if clock is not None and held.handler is None and held.settlement.kind == "release":
                # It comes again and again. What else was due by then is done when it does.
                if (held.source, held.claim.id) in unknown:
                    raise AssertionError(_nobody_knows(held))
                unknown.add((held.source, held.claim.id))
        shown = "" if last is None else ", the last one was " + _shown(last)
        raise AssertionError(f"not drained after {limit} items: does a handler fail or snooze for ever{shown}?")

    def _step(self) -> Held | None:
        """What was handled, None if there was nothing. The source that gave it goes last."""
        self._look_at_registry()
        if asyncio._get_running_loop() is not None and any(
            handler.runs == "loop" for one in self._sources for handler in one.spec.handlers
        ):
            raise RuntimeError("step() and drain() run async handlers on a loop of their own: call them outside of one")
        for source in list(self._sources):
            helds = source.claim(1)
            if helds:
                with self._turning:
                    if source in self._sources:
                        self._sources.remove(source)
                        self._sources.append(source)
                source.counters.claimed += 1
                self._work(helds[0])
                return helds[0]
        return None

    def _look_at_registry(self) -> None:
        """Handlers may be named between two steps. What was counted stays."""
        if self._known == self._registry.changes:
            return
        counters = {source.label: source.counters for source in self._sources}
        order = list(counters)
        sources = [make_source(spec, self.store, self._worker_id) for spec in self._registry.sources.values()]
        for source in sources:
            source.counters = counters.get(source.label, source.counters)
        sources.sort(key=lambda source: order.index(source.label) if source.label in counters else len(order))
        self._sources, self._known = sources, self._registry.changes

    def health(self) -> WorkerHealth:
        """Its numbers."""
        return WorkerHealth("idle", self._worker_id, None, 0, None, tuple(source.health() for source in self._sources))

    def close(self) -> None:
        """End the event loop of async handlers, if there was one."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _work(self, held: Held) -> None:
        handler = held.handler
        if handler is not None:
            result: Any = None
            error: BaseException | None = None
            held.began = time.monotonic()
            try:
                result = self._call(handler, held)
            except BaseException as raised:
                error = raised
            if isinstance(error, TimeoutError) and held.why == "timeout":
                error = None
            held.settlement = plan.settlement(error, held.why, handler.timeout, result, settled=held.handle.settled)
            held.source.counters.handled += 1
            held.source.counters.took(time.monotonic() - held.began)
            note_end(held, error)
            self._settle(held)
            if isinstance(error, KeyboardInterrupt):
                # In a test, or at a prompt, somebody may have meant us.
                raise error
        else:
            self._settle(held)

    def _call(self, handler: Handler, held: Held) -> Any:
        # A copy of the caller's context for each item, as in a run.
        within = contextvars.copy_context()
        if handler.runs != "loop":
            with handling(held, within.run):
                if handler.transactional:
                    return transactional.run(held, within, _begun)
                return within.run(handler.invoke, held.handle)
        with self._on_loop:
            if self._loop is None:
                self._loop = asyncio.Runner()
            return self._loop.run(self._within_time(handler, held), context=within)

    async def _within_time(self, handler: Handler, held: Held) -> Any:
        if handler.transactional:
            with handling(held):
                return await transactional.arun(held, _canceller())
        work: Coroutine[Any, Any, Any] = handler.invoke(held.handle)
        with handling(held):
            if handler.timeout is None:
                return ran(handler.label, await work)
            try:
                async with asyncio.timeout(handler.timeout) as limit:
                    return ran(handler.label, await work)
            finally:
                if limit.expired():
                    held.why = "timeout"

    def _settle(self, held: Held) -> None:
        source, counters, kind = held.source, held.source.counters, held.settlement.kind
        if kind == "nothing":
            return
        done = source.settle(held)
        if not done:
            if not held.handle.settled:
                counters.lost += 1
                tell(WARNING, "claim_lost", count=1, outcome=kind, **item_fields(source, held.claim))
        elif kind == "ack":
            counters.acked += 1
        elif kind == "retry":
            counters.retried += 1
        elif kind == "fail":
            counters.failed += 1
        else:
            counters.released += 1


def _begun(held: Held) -> None:
    held.began = time.monotonic()


def _canceller() -> Callable[[Held], None]:
    """Ends this task when its handler's time is over."""
    task = asyncio.current_task()

    def timed_out(held: Held) -> None:
        held.why = "timeout"
        assert task is not None
        task.cancel()

    return timed_out


def _shown(held: Held) -> str:
    claim = held.claim
    if held.source.kind == "transport":
        return f"message {claim.seq} of group {claim.group_id!r} in {held.source.label}"
    return f"job {claim.id} in {held.source.label}"


def _nobody_knows(held: Held) -> str:
    queue, job = held.source.name, held.claim
    if job.name is None:
        return (
            f"queue {queue!r}: job {job.id} has no name, and this worker has only handlers for names there: "
            f"decorate one with worker.queue({queue!r}), or enqueue it with name=…"
        )
    return (
        f"queue {queue!r}: this worker has no handler for job {job.id} with the name {job.name!r}: decorate one with "
        f"worker.task({queue!r}, name={job.name!r}) or worker.queue({queue!r})"
    )
