"""Verbs with ``tx=``, async: the engine's verb, run in the transaction's scope."""

from __future__ import annotations

from typing import Any

from rota.facade.transactions import Scope, Tx, lost, scope


async def within(handle: Any, tx: Tx, verb: str, *args: Any) -> Any:
    """A verb of a queue's or transport's engine in a transaction."""
    return await _within(handle, scope(handle._core, tx, asynchronous=True), verb, *args)


async def _within(handle: Any, at: Scope, verb: str, *args: Any) -> Any:
    running = at._running
    changed = await running.acall(getattr(handle._view(running), verb), *args)
    if changed and verb in handle._waking:
        at._changed(handle._address)
    return changed


async def settle(handle: Any, tx: Tx, held: object, verb: str, claim: Any, *args: Any) -> bool:
    """A settlement, which raises ``LeaseLost`` where it is not valid (X3)."""
    if claim is None:
        raise lost([held])
    at = scope(handle._core, tx, asynchronous=True)
    if not await _within(handle, at, verb, claim, *args):
        raise lost([held])
    at._settled(held)
    return True


async def settle_all(handle: Any, tx: Tx, held: list[Any], asked: int | None, *args: Any) -> int:
    """``ack_batch``: all of them or ``LeaseLost``. ``asked``: how many different ones; None: some are another's."""
    if asked is None:
        raise lost(held)
    at = scope(handle._core, tx, asynchronous=True)
    running = at._running
    await running.acall(running.savepoint, "rota_batch")
    try:
        count: int = await running.acall(handle._view(running).ack_batch, *args)
        if count < asked:
            raise lost(held)
    except BaseException:
        await running.acall(running.rollback_to, "rota_batch")
        raise
    await running.acall(running.release, "rota_batch")
    if count and "ack_batch" in handle._waking:
        at._changed(handle._address)
    for one in held:
        at._settled(one)
    return count
