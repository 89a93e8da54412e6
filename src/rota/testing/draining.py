"""``drain``: work a queue or transport off in a test, its delays and retries included, without sleeping."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, Protocol

from rota import units
from rota.testing.clock import ManualClock

# Seconds by which a store that rounds may be behind its clock.
_ROUNDED = 0.001


class _Stats(Protocol):
    @property
    def oldest_ready_age(self) -> float | None: ...

    @property
    def next_due_at(self) -> float | None: ...


def drain(
    source: Any,
    handler: Callable[[Any], object],
    *,
    clock: ManualClock | None = None,
    limit: int = 10_000,
    worker_id: str = "drain",
) -> list[Any]:
    """Call ``handler`` with each job or lease of a queue or transport until nothing is left; return those it handled.

    A handler that returns gets its item acked (unless it settled it itself); one that raises gets it retried with the
    exception as the error, by the rules of the queue. An ``AssertionError`` is not swallowed: it is the test's own.

    When nothing is claimable, the store's ``ManualClock`` (or ``clock``) is moved to the next instant at which
    something may be: a delay over, a retry due, somebody else's lease lapsed. With a real clock the drain ends there.
    After ``limit`` deliveries it raises ``AssertionError``, since a handler that always fails can go on for ever.
    ``TypeError`` for a handler that is async or cannot be called with one argument, ``ValueError`` for a ``clock`` that
    is not the store's.
    """
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        raise TypeError("the handler is async and would never run: give it to adrain, which is awaited")
    _check(handler)
    work = _plan(source, clock, limit)
    handled: list[Any] = []
    answer: Any = None
    while True:
        try:
            step = work.send(answer)
        except StopIteration:
            return handled
        if step == "claim":
            item = answer = _claim(source, worker_id)
        elif step == "stats":
            answer = source.stats()
        else:
            try:
                _check_ran(handler, handler(item))
            except AssertionError:
                raise
            except Exception as error:
                item.retry(error)
            else:
                item.ack()
                handled.append(item)


async def adrain(
    source: Any,
    handler: Callable[[Any], object],
    *,
    clock: ManualClock | None = None,
    limit: int = 10_000,
    worker_id: str = "drain",
) -> list[Any]:
    """``drain`` for an async queue or transport; the handler may be a coroutine function."""
    _check(handler)
    work = _plan(source, clock, limit)
    handled: list[Any] = []
    answer: Any = None
    while True:
        try:
            step = work.send(answer)
        except StopIteration:
            return handled
        if step == "claim":
            item = answer = await _claim(source, worker_id)
        elif step == "stats":
            answer = await source.stats()
        else:
            try:
                result = handler(item)
                if inspect.isawaitable(result):
                    result = await result
                _check_ran(handler, result)
            except AssertionError:
                raise
            except Exception as error:
                await item.retry(error)
            else:
                await item.ack()
                handled.append(item)


def _check(handler: Callable[[Any], object]) -> None:
    """Every call would fail, and be taken for a failure of the work."""
    try:
        signature = inspect.signature(handler)
    except ValueError:
        # Some of those written in C have none.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"handler is called with one argument, the job or lease, and takes {signature}: {error}"
        ) from None


def _plan(source: Any, clock: ManualClock | None, limit: int) -> Generator[str, Any, None]:
    """What to do next: asks for a claim, for the handler to be called, or for stats, and moves the clock."""
    clock = _clock_of(source) if clock is None else clock
    for _ in range(limit):
        while (yield "claim") is None:
            stats: _Stats = yield "stats"
            if clock is None or stats.next_due_at is None:
                return
            before = clock.now()
            clock.set(max(stats.next_due_at, before))
            if clock.now() <= before:
                # Far from now a float is coarser than the microseconds of the store.
                clock.advance(0.000001)
            if clock.now() - units.seconds(source._core.engine.now()) > _ROUNDED:
                raise ValueError(f"clock= must be the clock the store was opened with, got another one: {clock!r}")
        yield "handle"
    left: _Stats = yield "stats"
    if left.oldest_ready_age is not None or left.next_due_at is not None:
        raise AssertionError(f"not drained after {limit} deliveries: does the handler fail for ever?")


def _check_ran(handler: Callable[[Any], object], result: object) -> None:
    """A handler that returned its work not begun has failed, here as with a worker."""
    if result is not None:
        from rota.worker.outcomes import ran
        from rota.worker.signature import label_of

        ran(label_of(handler), result)


def _claim(source: Any, worker_id: str) -> Any:
    """One claim: queues say ``claim_one``, transports ``claim``."""
    return source.claim_one(worker_id) if hasattr(source, "claim_one") else source.claim(worker_id)


def _clock_of(source: Any) -> ManualClock | None:
    clock = source._core.steered
    return clock if isinstance(clock, ManualClock) else None
