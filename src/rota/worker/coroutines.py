"""Async handlers: each item in a task of its own on one event loop. All of this runs in the loop's thread, except
where it says otherwise."""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
from collections.abc import Callable
from typing import Any

from rota.telemetry import API, LOADED
from rota.worker import plan, transactional
from rota.worker.logs import DEBUG, ERROR, WARNING, item_fields, tell
from rota.worker.outcomes import Fail, OutsideError, Retry, ran
from rota.worker.plan import Why
from rota.worker.registry import Handler
from rota.worker.sources import Held, Source
from rota.worker.tracing import handling

_monotonic = time.monotonic


class Leave(BaseException):
    """Raised by a signal handler into a handler that blocks the loop, when everything it held was given back."""


class LoopRunner:
    """The tasks of one worker on one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        put: Callable[[Held], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._context = context
        self._put = put
        self._stopping = stopping
        self._plain_tasks = loop.get_task_factory() is None
        self.forked = False

    def give(self, source: Source, helds: list[Held]) -> None:
        """From any thread: handle these as slots get free. One hop for the whole batch."""
        source.waiting.extend(helds)
        try:
            self._loop.call_soon_threadsafe(self._fill, source)
        except RuntimeError:
            # The loop is closed: who stops the worker gives them back.
            pass

    def begin(self, source: Source, helds: list[Held]) -> None:
        """From any thread: handle these at once, without waiting for slots."""
        try:
            self._loop.call_soon_threadsafe(self._begin_all, source, helds)
        except RuntimeError:
            pass

    def _begin_all(self, source: Source, helds: list[Held]) -> None:
        for held in helds:
            self._begin(source, held)

    def _fill(self, source: Source) -> None:
        if source.filling:
            # With an eager task factory a handler may end while it is begun, and come here: who began it goes on.
            return
        waiting = source.waiting
        source.filling = True
        try:
            while source.running < source.concurrency:
                self._begin(source, waiting.popleft())
        except IndexError:
            return
        finally:
            source.filling = False

    def _begin(self, source: Source, held: Held) -> None:
        source.running += 1
        # Its own copy of the run's context: nothing a handler sets there reaches the next one.
        context = self._context.copy()
        if self._plain_tasks:
            held.runs_in = asyncio.Task(self._work(held), loop=self._loop, context=context)
        else:
            held.runs_in = self._loop.create_task(self._work(held), context=context)

    async def _work(self, held: Held) -> None:
        handler = held.handler
        assert handler is not None
        result = error = timer = None
        held.began = _monotonic()
        if held.why is None:
            if handler.timeout is not None and not handler.transactional:
                timer = self._loop.call_later(handler.timeout, self._timed_out, held)
            try:
                if API in LOADED:
                    with handling(held):
                        result = await self._call(handler, held)
                elif handler.transactional:
                    result = await transactional.arun(held, self._timed_out)
                else:
                    result = await handler.invoke(held.handle)
                    if result is not None:
                        ran(handler.label, result)
            except Leave:
                # Its item was given back, the run is over. Raised from here it would be told as nobody's exception.
                tell(WARNING, "handler_broken_off", **item_fields(held.source, held.claim))
                return
            except BaseException as raised:
                if isinstance(raised, GeneratorExit) and held.why == "left":
                    # Left behind, and now thrown away with its loop, by whatever thread collects garbage.
                    return
                error = raised
            if self.forked:
                end_child(held)
            if timer is not None:
                timer.cancel()
        else:
            error = asyncio.CancelledError()
        self._ended(held, result, error)

    async def _call(self, handler: Handler, held: Held) -> Any:
        if handler.transactional:
            return await transactional.arun(held, self._timed_out)
        return ran(handler.label, await handler.invoke(held.handle))

    def _ended(self, held: Held, result: Any, error: BaseException | None) -> None:
        source, now = held.source, _monotonic()
        live, waiting, counters = source.live, source.waiting, source.counters
        counters.handled += 1
        counters.took(now - held.began)
        if error is not None or result is not None or held.why is not None or held.handle.settled:
            self._settle_otherwise(held, result, error)
        source.ending_on_loop = 1
        live.discard(held)
        if not live:
            source.idle_since = now
        # Left behind: it was given back already, and its slot with it.
        if held.settlement is not plan.NOTHING:
            self._put(held)
        source.ending_on_loop = 0
        held.runs_in = None
        source.running -= 1
        # In a queue with handlers of several kinds, what waits is the threads'.
        if waiting and source.ahead_allowed:
            self._fill(source)
        if source.hungry:
            source.feed()

    def _settle_otherwise(self, held: Held, result: Any, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError) and held.why is None and self._stopping():
            # Somebody cancels everything on this loop, our own task included.
            held.why = "stopped"
        handler = held.handler
        assert handler is not None
        held.settlement = plan.settlement(error, held.why, handler.timeout, result, settled=held.handle.settled)
        note_end(held, error)

    def _timed_out(self, held: Held) -> None:
        if held.why is None:
            held.why = "timeout"
            self._cancel(held)

    def leave_row(self, source: Source) -> None:
        """From any thread: cancel those of a closing source that wait for their turn at a transaction."""
        try:
            self._loop.call_soon_threadsafe(self._leave_row, source)
        except RuntimeError:
            pass

    def _leave_row(self, source: Source) -> None:
        for held in list(source.live):
            if held.in_row:
                self._end(held, "stopped", True)

    def end(self, held: Held, why: Why, *, cancel: bool = True) -> None:
        """From any thread: tell a handler that it lost its claim or is to stop, and cancel it."""
        try:
            self._loop.call_soon_threadsafe(self._end, held, why, cancel)
        except RuntimeError:
            pass

    def _end(self, held: Held, why: Why, cancel: bool) -> None:
        if held not in held.source.live:
            return
        if why == "lost":
            held.handle.lost.set()
        if held.why is None or why != "stopped":
            held.why = why
        if cancel:
            self._cancel(held)

    def _cancel(self, held: Held) -> None:
        # One that has not begun yet sees ``why`` when it does: cancelled before, it would never run to its end.
        if held.runs_in is not None and held.began:
            held.runs_in.cancel()


def end_child(held: Held) -> None:
    """A handler forked, and its child returned or raised: it would go on as half a worker beside us."""
    tell(ERROR, "child_came_back", **item_fields(held.source, held.claim))
    os._exit(1)


def note_end(held: Held, error: BaseException | None) -> None:
    """Log how a handler ended, if that is worth a word."""
    what = held.settlement
    if held.why == "overdue":
        # Said when its time was over.
        return
    if held.why is not None and held.why != "stopped":
        held.source.counters.timed_out += held.why == "timeout"
        if held.why == "timeout":
            tell(WARNING, "handler_timed_out", why=held.why, **item_fields(held.source, held.claim))
        else:
            tell(WARNING, "handler_given_up", why=held.why, **item_fields(held.source, held.claim))
    elif what.kind in ("retry", "fail"):
        tell(WARNING, "handler_failed", outcome=what.kind, error=_name(error), **item_fields(held.source, held.claim))
    elif what.kind == "release":
        tell(DEBUG, "handler_released", delay=what.delay, **item_fields(held.source, held.claim))


def _name(error: BaseException | None) -> str | None:
    """What the log calls it: the type, of what failed outside of this process what that says of itself.

    Of one that only says how its item is to end, the type of what it was raised from.
    """
    if isinstance(error, Retry | Fail):
        error = error.__cause__ or error
    return None if error is None else error.kind if isinstance(error, OutsideError) else type(error).__name__
