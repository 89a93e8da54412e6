"""Handlers in a transaction: what they do in it is committed together with their item's ack, or not at all.

The handler's exceptions pass: it is rolled back by then, and what they mean for the item is recorded outside of it, as
for any other handler. So is the ack, where the handler itself has rolled back and returned.

Whether the commit succeeded decides. A claim that was lost shows at the ack at the latest; nobody else can take the
item from there until the commit (X2).
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rota.aio.transaction import AsyncTransaction
from rota.errors import LeaseLost, OutcomeUnknown
from rota.sync.transaction import Transaction
from rota.worker import plan
from rota.worker.logs import DEBUG, ERROR, WARNING, item_fields, tell
from rota.worker.outcomes import Snooze, ran
from rota.worker.sources import Held
from rota.worker.turns import turns


class _Unwanted(BaseException):
    """Its item was lost or given up meanwhile: ``why`` says how it ends."""


# -- Threads -----------------------------------------------------------------------------------------------------------


def run(held: Held, within: contextvars.Context, begun: Callable[[Held], None]) -> Any:
    """Call an item's handler in a transaction; what it returned. ``begun``: told when its time begins."""
    row = turns(held.source.core.engine)
    if row is None:
        return _run(held, within, begun)
    turn = row.wait(lambda: held.why is None and not held.source.closing)
    if turn is None:
        raise _given_up(held)
    try:
        return _run(held, within, begun)
    finally:
        row.leave(turn)


def _run(held: Held, within: contextvars.Context, begun: Callable[[Held], None]) -> Any:
    handler = held.handler
    assert handler is not None
    tx = Transaction(held.source.core)
    try:
        tx.__enter__()
    except Exception as error:
        raise _not_begun(held, error) from error
    try:
        _check_wanted(held)
        begun(held)
        result = within.run(handler.invoke, held.handle, tx)
        _check_wanted(held)
        ours = _is_ours_to_ack(held, tx)
        if ours:
            held.handle.ack(*held.source.ack_arguments(held, result), tx=tx)
    except BaseException as error:
        tx.__exit__(type(error), error, error.__traceback__)
        return _without_effect(held, error)
    if tx._ended is None:
        try:
            tx._commit()
        except OutcomeUnknown as error:
            return _unknown(held, error)
        _committed(held, ours)
    return result


# -- Event loops -------------------------------------------------------------------------------------------------------


async def arun(held: Held, timed_out: Callable[[Held], None]) -> Any:
    """``run`` on the running loop. ``timed_out``: called when the handler's time is over; it cancels this task."""
    row = turns(held.source.core.engine)
    if row is None:
        return await _arun(held, timed_out)
    if held.source.closing:
        raise _given_up(held)
    held.in_row = True
    try:
        turn = await row.await_turn()
    finally:
        held.in_row = False
    try:
        return await _arun(held, timed_out)
    finally:
        row.leave(turn)


async def _arun(held: Held, timed_out: Callable[[Held], None]) -> Any:
    tx = AsyncTransaction(held.source.core)
    try:
        await tx.__aenter__()
    except Exception as error:
        raise _not_begun(held, error) from error
    try:
        _check_wanted(held)
        result = await _within_time(held, tx, timed_out)
        _check_wanted(held)
        ours = _is_ours_to_ack(held, tx)
        if ours:
            await held.handle.ack(*held.source.ack_arguments(held, result), tx=tx)
    except GeneratorExit:
        # Left behind, and now thrown away with its loop, where nothing can be awaited.
        if tx._ended is None:
            tx._abandon()
        raise
    except BaseException as error:
        await _through(tx.__aexit__(type(error), error, error.__traceback__))
        return _without_effect(held, error)
    if tx._ended is None:
        try:
            await _through(tx._commit())
        except (OutcomeUnknown, asyncio.CancelledError) as error:
            return _unknown(held, error)
        _committed(held, ours)
    return result


async def _within_time(held: Held, tx: AsyncTransaction, timed_out: Callable[[Held], None]) -> Any:
    handler = held.handler
    assert handler is not None
    held.began = time.monotonic()
    timer = None
    if handler.timeout is not None:
        timer = asyncio.get_running_loop().call_later(handler.timeout, timed_out, held)
    try:
        return ran(handler.label, await handler.invoke(held.handle, tx))
    finally:
        if timer is not None:
            timer.cancel()


async def _through(work: Coroutine[Any, Any, None]) -> None:
    """Await it to its end, however often this task is cancelled: half an end is none. ``CancelledError``: ``work``
    itself was cancelled, with all tasks of a loop that ends."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
        except Exception:
            break
    task.result()


# -- Both --------------------------------------------------------------------------------------------------------------


def _not_begun(held: Held, error: Exception) -> Snooze:
    """The handler never ran: its item is given back, and comes again soon."""
    fields = item_fields(held.source, held.claim)
    tell(WARNING, "transaction_not_begun", error=f"{type(error).__name__}: {error}", **fields)
    return Snooze(plan.begin_pause(held.source.core.rng.random()))


def _given_up(held: Held) -> _Unwanted:
    """It never had its turn, and is given back where nothing else ended it."""
    if held.why is None:
        held.why = "stopped"
    return _Unwanted()


def _check_wanted(held: Held) -> None:
    if not plan.commits(held.why):
        raise _Unwanted


def _is_ours_to_ack(held: Held, tx: Transaction | AsyncTransaction) -> bool:
    """The handler has not done what there is to do, nor rolled back by itself."""
    return not held.handle.settled and tx._ended is None


def _without_effect(held: Held, error: BaseException) -> None:
    """What follows when it was rolled back: as a rule what the exception means for any handler."""
    if isinstance(error, _Unwanted):
        return
    if not isinstance(error, LeaseLost):
        raise error
    if held.why is None:
        held.why = "lost"
        _count_lost(held)
        tell(WARNING, "claim_lost", count=1, outcome="transaction", **item_fields(held.source, held.claim))


def _unknown(held: Held, error: BaseException) -> None:
    """If it was committed the item is gone; else its claim lapses, and it is handed out again."""
    held.why = "unknown"
    _count_lost(held)
    fields = item_fields(held.source, held.claim)
    tell(ERROR, "outcome_not_recorded", count=1, outcome="ack", error=f"{type(error).__name__}: {error}", **fields)


def _count_lost(held: Held) -> None:
    with held.source.lock:
        held.source.counters.lost += 1


def _committed(held: Held, ours: bool) -> None:
    # What it settled by itself is not counted anywhere.
    if ours:
        with held.source.lock:
            held.source.counters.acked += 1
        tell(DEBUG, "settled", outcome="ack", **item_fields(held.source, held.claim))
