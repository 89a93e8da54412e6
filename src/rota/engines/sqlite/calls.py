"""Verbs for the async facade: in a few threads of the engine's own, or inline where threads cannot be started."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

# Writes take turns at one connection anyway; the others read.
_THREADS = 4


def only_reads(verb: Method) -> Method:
    """A verb that waits for no writer, and so must not wait for threads that do."""
    verb.only_reads = True  # type: ignore[attr-defined]
    return verb


class Calls:
    """The threads of one engine; none before the first call."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._inline = False
        self._closed = False

    async def call(self, verb: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """Run a verb; once it has begun it runs to its end, whatever happens to the awaiting task."""
        return await asyncio.wrap_future(self._submit(verb, *args, **kwargs))

    async def call_or_undo(
        self, verb: Callable[..., T], undo: Callable[[T], object], /, *args: object, by: Calls | None = None
    ) -> T:
        """Run a verb; if the awaiting task is cancelled, let it end, hand its result to ``undo``, then be cancelled.

        ``by``: whose threads undo it, where all of these may be waiting for just that.
        """
        future = self._submit(verb, *args)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # Not begun yet: the future is cancelled and nothing happened.
            if not future.cancelled():
                await self._outlast(self._undone(future, undo, by or self))
            raise

    @staticmethod
    def _undone(future: Future[T], undo: Callable[[T], object], by: Calls) -> Future[None]:
        """Undo it once it has ended. No thread waits for that, which the one it waits for itself might need."""
        undone: Future[None] = Future()

        def then(ended: Future[T]) -> None:
            if ended.exception() is None:
                by._submit(undo, ended.result()).add_done_callback(lambda _: undone.set_result(None))
            else:
                undone.set_result(None)

        future.add_done_callback(then)
        return undone

    @staticmethod
    async def _outlast(future: Future[None]) -> None:
        """Wait for the future through further cancellations: what was claimed must not be lost."""
        waiting = asyncio.wrap_future(future)
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                continue
        # An undo that failed leaves a lease that lapses; the cancellation is what the caller has to hear of.
        waiting.exception()

    def _submit(self, verb: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        with self._lock:
            if self._pool is None and not self._inline and not self._closed:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="rota-sqlite")
            pool = None if self._inline else self._pool
            if pool is not None:
                try:
                    return pool.submit(verb, *args, **kwargs)
                except RuntimeError:
                    # No thread can be started here. The pool has queued the verb, but nobody will ever run it.
                    self._pool, self._inline = None, True
        return _run(verb, *args, **kwargs)

    def close(self) -> None:
        """Let the threads go; verbs called later run inline, and find the store closed."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            # Not waited for: this may be one of its threads.
            pool.shutdown(wait=False)


def _run(verb: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(verb(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
    return future
