"""Sync handlers: up to ``concurrency`` daemon threads for each source, made as they are needed."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from rota.worker import plan, transactional
from rota.worker.children import Child, ChildDied
from rota.worker.coroutines import end_child, note_end
from rota.worker.logs import WARNING, item_fields, tell
from rota.worker.outcomes import CannotRun, OutsideError
from rota.worker.plan import Why
from rota.worker.sources import Held, Source
from rota.worker.tracing import handling

_monotonic = time.monotonic


class ThreadRunner:
    """The threads of one source. With processes and commands each thread waits for what does the work."""

    def __init__(
        self,
        source: Source,
        context: contextvars.Context,
        put: Callable[[Held], None],
        watch: Callable[[float], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._source = source
        self._context = context
        self._put = put
        # Told when a handler's time will be over.
        self._watch = watch
        self._broken = broken
        # One token for each item that waits: the items themselves can be taken back.
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.forked = False

    def give(self, helds: list[Held]) -> None:
        """Handle these as threads get free."""
        self._source.waiting.extend(helds)
        missing = min(self._source.concurrency, len(self._source.live)) - len(self._threads)
        for _ in range(missing):
            thread = threading.Thread(target=self._run, name=f"rota-{self._source.label}", daemon=True)
            thread.start()
            self._threads.append(thread)
        for _ in helds:
            self._tokens.put(True)

    def _run(self) -> None:
        source = self._source
        children: dict[Any, Child] = {}
        try:
            while self._tokens.get():
                try:
                    held = source.waiting.popleft()
                except IndexError:
                    continue
                with source.lock:
                    source.in_threads += 1
                self._work(held, children)
        finally:
            for child in children.values():
                child.close()

    def _work(self, held: Held, children: dict[Any, Child]) -> None:
        handler = held.handler
        assert handler is not None
        result: Any = None
        error: BaseException | None = None
        try:
            # That a process has to start first is not on the handler's time.
            child = self._child(held, children) if handler.runs == "process" else None
            if not handler.transactional:
                self._begun(held)
            if child is not None:
                with handling(held):
                    result = child.handle(held)
            elif handler.executor is not None:
                with handling(held):
                    handler.executor.handle(held)
            else:
                # Its own copy of the run's context: nothing a handler sets there reaches the next one.
                within = self._context.copy()
                with handling(held, within.run):
                    if handler.transactional:
                        result = transactional.run(held, within, self._begun)
                    else:
                        result = within.run(handler.invoke, held.handle)
        except BaseException as raised:
            error = raised
            if isinstance(error, ChildDied):
                children.pop(handler, None)
        if self.forked:
            end_child(held)
        self._ended(held, result, error)

    def _begun(self, held: Held) -> None:
        """From here on its handler has the time it was given."""
        held.began = _monotonic()
        assert held.handler is not None
        if held.handler.timeout is not None:
            self._watch(held.began + held.handler.timeout)

    def _child(self, held: Held, children: dict[Any, Child]) -> Child:
        """A process that can take the item."""
        handler = held.handler
        assert handler is not None
        child = children.get(handler)
        if child is None or not child.alive:
            child = children[handler] = Child(handler)
        child.start(held)
        return child

    def _ended(self, held: Held, result: Any, error: BaseException | None) -> None:
        source, now = held.source, _monotonic()
        handler = held.handler
        assert handler is not None
        if isinstance(error, CannotRun):
            # First, so that what is given back is not claimed again.
            self._broken(error)
        held.settlement = plan.settlement(error, held.why, handler.timeout, result, settled=held.handle.settled)
        if isinstance(error, OutsideError) and held.settlement.kind == "retry":
            held.settlement = held.settlement._replace(error=str(error))
        with source.lock:
            source.in_threads -= 1
            source.counters.handled += 1
            source.counters.took(now - (held.began or now))
            source.ending += 1
            source.live.discard(held)
            if not source.live:
                source.idle_since = now
            note_end(held, error)
        if held.settlement is not plan.NOTHING:
            self._put(held)
        with source.lock:
            source.ending -= 1
        source.feed()

    def end(self, held: Held, why: Why) -> None:
        """From any thread: its claim is lost, its time over, or the worker stops. Threads are told, children killed."""
        if held not in held.source.live:
            return
        handler = held.handler
        assert handler is not None
        outside = handler.ends_for_sure
        if held.why is None or (outside and why in ("lost", "left")):
            held.why = "overdue" if why == "timeout" and not outside else why
        if outside:
            # Its thread looks every tenth of a second; it ends what does the work and is there to tell.
            if why == "left" and handler.executor is not None:
                handler.executor.kill(held)
            return
        if held.why == "overdue" and why == "timeout":
            # It may never return: what there is to say is said now.
            with held.source.lock:
                held.source.counters.timed_out += 1
            tell(WARNING, "handler_given_up", why=held.why, **item_fields(held.source, held.claim))
        held.handle.lost.set()

    def close(self) -> None:
        """Let the threads end as they get free."""
        for _ in self._threads:
            self._tokens.put(False)

    def join(self, deadline: float) -> None:
        """Wait for those that are free."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - _monotonic()))
