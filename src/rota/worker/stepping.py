"""One item at a time, in the calling thread: for tests, and for programs with a loop of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from rota.worker import plan
from rota.worker.coroutines import note_end
from rota.worker.health import WorkerHealth
from rota.worker.logs import WARNING, item_fields, tell
from rota.worker.registry import Handler, Registry
from rota.worker.sources import Held, make_source
from rota.worker.tracing import handling

if TYPE_CHECKING:
    from rota.sync.store import Store


class MovableClock(Protocol):
    """A clock that a test moves: ``rota.testing.ManualClock``."""

    def jump_to(self, microseconds: int) -> None: ...


class Stepper:
    """A worker on a store, moved by its caller."""

    def __init__(self, registry: Registry, store: Store, worker_id: str) -> None:
        self.store = store
        self._worker_id = worker_id
        self._sources = [make_source(spec, store, worker_id) for spec in registry.sources.values()]
        self._has_async = any(handler.runs == "loop" for one in self._sources for handler in one.spec.handlers)
        self._loop: asyncio.Runner | None = None

    def step(self) -> bool:
        """Handle at most one item; whether there was one. The source that gave it goes last."""
        if asyncio._get_running_loop() is not None and self._has_async:
            raise RuntimeError("step() and drain() run async handlers on a loop of their own: call them outside of one")
        for source in list(self._sources):
            helds = source.claim(1)
            if helds:
                self._sources.remove(source)
                self._sources.append(source)
                source.counters.claimed += 1
                self._work(helds[0])
                return True
        return False

    def drain(self, clock: MovableClock | None, limit: int) -> int:
        """Step until nothing is left, with a clock also what is due later; how many were handled."""
        for count in range(limit):
            while not self.step():
                due = min((due for source in self._sources if (due := source.next_due()) is not None), default=None)
                if clock is None or due is None:
                    return count
                clock.jump_to(due)
        raise AssertionError(
            f"not drained after {limit} items: does a handler fail for ever, or a job have no handler?"
        )

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
        if handler.runs != "loop":
            with handling(held):
                return handler.invoke(held.handle)
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(self._within_time(handler, held))

    async def _within_time(self, handler: Handler, held: Held) -> Any:
        work: Coroutine[Any, Any, Any] = handler.invoke(held.handle)
        with handling(held):
            if handler.timeout is None:
                return await work
            try:
                async with asyncio.timeout(handler.timeout) as limit:
                    return await work
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
