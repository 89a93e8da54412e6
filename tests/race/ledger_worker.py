"""A worker that moves money between accounts, until its standard input ends, or it is killed.

``transactional``: each transfer is one commit with its ack. ``apart``, the saboteur: a commit of its own, then the ack.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import rota

QUEUE = "transfers"
# Seconds between the two halves of a transfer, and between a saboteur's commit and its return.
PAUSE = 0.002


def statements(url: str, transfer: dict[str, int], attempt: int) -> list[tuple[str, tuple[int, ...]]]:
    """Take, give, note; the accounts in order, so that two transfers never wait for each other."""
    moves = sorted([(transfer["source"], -transfer["amount"]), (transfer["target"], transfer["amount"])])
    found: list[tuple[str, tuple[int, ...]]] = [
        ("UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, account)) for account, amount in moves
    ]
    values = (transfer["transfer"], transfer["source"], transfer["target"], transfer["amount"], attempt)
    found.append(("INSERT INTO journal (transfer, source, target, amount, attempt) VALUES (?, ?, ?, ?, ?)", values))
    return found if url.startswith("sqlite") else [(text.replace("?", "%s"), given) for text, given in found]


def move(url: str, connection: Any, job: Any) -> None:
    """One transfer."""
    take, give, note = statements(url, job.payload, job.attempts)
    connection.execute(*take)
    time.sleep(PAUSE)
    connection.execute(*give)
    connection.execute(*note)


async def amove(url: str, connection: Any, job: Any) -> None:
    """``move``; psycopg's connection is awaited."""
    asynchronous = not url.startswith("sqlite")
    for number, statement in enumerate(statements(url, job.payload, job.attempts)):
        if number == 1:
            await asyncio.sleep(PAUSE)
        done = connection.execute(*statement)
        if asynchronous:
            await done


def make(url: str, how: str, colour: str, note: Callable[[bytes], object]) -> rota.Worker:
    """The worker. ``note``: told of each beginning and end of what a kill may cut in two."""
    worker = rota.Worker(url, grace=5)
    options: Any = {"concurrency": 4, "visibility": 2, "transactional": how == "transactional"}

    def transfer(job: rota.Job, tx: rota.Transaction) -> None:
        note(b"(")
        move(url, tx.connection, job)
        note(b")")

    async def atransfer(job: rota.AsyncJob, tx: rota.AsyncTransaction) -> None:
        note(b"(")
        await amove(url, tx.connection, job)
        note(b")")

    def apart(job: rota.Job) -> None:
        note(b"(")
        assert worker.store is not None
        with worker.store.transaction() as tx:
            move(url, tx.connection, job)
        time.sleep(PAUSE)
        note(b")")

    async def aapart(job: rota.AsyncJob) -> None:
        note(b"(")
        assert worker.store is not None
        async with worker.store.as_async().transaction() as tx:
            await amove(url, tx.connection, job)
        await asyncio.sleep(PAUSE)
        note(b")")

    handlers: dict[tuple[str, str], Any] = {
        ("transactional", "thread"): transfer,
        ("transactional", "async"): atransfer,
        ("apart", "thread"): apart,
        ("apart", "async"): aapart,
    }
    worker.queue(QUEUE, **options)(handlers[how, colour])
    return worker


def main(url: str, how: str, colour: str, log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    worker = make(url, how, colour, lambda mark: os.write(file, mark))

    def until_told() -> None:
        sys.stdin.buffer.read()
        worker.stop()

    threading.Thread(target=until_told, daemon=True).start()
    worker.run(signals=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
