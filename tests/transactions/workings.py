"""A store with a connection to its database, and what is done with both in one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import rota
from rota.testing.colours import Colour

from .lenders import Lender, Memory

MADE, DONE, HEARD = "made", "done", "heard"
HOWS = ("commit", "commit", "rollback", "savepoint", "exception")


class Place:
    """One store, in the colour of one lender."""

    def __init__(self, url: str, lender: type[Lender], **options: Any) -> None:
        self.url = url
        self.colour = Colour("async" if lender.asynchronous else "sync")
        if not url.startswith("memory"):
            options.setdefault("busy_timeout", 20)
        self.store = self.colour.open(rota.open, rota.aopen, url=url, **options)
        self.lender = lender(url, self.store, self.colour._runner)
        self.queue = self.store.queue("q")
        self.transport = self.store.transport("t")

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            self.lender.close()
        finally:
            self.colour.close()

    def note(self, kind: str, number: int) -> None:
        """A row of the caller's own."""
        self.lender.note(kind, number)

    def one(self, number: int, chance: random.Random, ended: Callable[[bool], None] | None = None) -> None:
        """One transaction of a random kind: makes a job and a message, or works some off, and notes that.

        ``ended`` is called right after it: was it committed?
        """
        how = chance.choice(HOWS)
        job = self.queue.claim_one("w", visibility=3600) if chance.random() < 0.5 else None
        lease = self.transport.claim("w", visibility=3600) if chance.random() < 0.3 else None
        committed = self.within(number, how, job, lease)
        if ended is not None:
            ended(committed)
        if not committed:
            for held in filter(None, (job, lease)):
                assert held.release()

    def within(self, number: int, how: str, job: Any, lease: Any) -> bool:
        """The transaction itself: committed?"""
        lender = self.lender
        lender.begin()
        try:
            self._work(number, job, lease)
            if how == "savepoint":
                undo = lender.savepoint()
                self.note(MADE, -number)
                self.queue.enqueue(-number, tx=lender.tx)
                self.store.transport("undone").publish("undone", -number, tx=lender.tx)
                undo()
            elif how == "exception":
                raise ArithmeticError
        except ArithmeticError:
            lender.rollback()
        except BaseException:
            try:
                lender.rollback()
            except Exception:
                pass
            raise
        else:
            if how != "rollback":
                lender.commit()
                return True
            lender.rollback()
        return False

    def _work(self, number: int, job: Any, lease: Any) -> None:
        tx = self.lender.tx
        self.note(MADE, number)
        self.queue.enqueue(number, tx=tx)
        self.transport.publish(f"g{number % 50}", number, tx=tx)
        if job is not None:
            self.note(DONE, job.payload)
            job.ack(tx=tx)
        if lease is not None:
            self.note(HEARD, lease.event)
            lease.ack(tx=tx)


def judge(url: str) -> dict[str, int]:
    """Jobs without a commit, commits without a job, and how much there was of both. Whatever happened before."""
    noted = effects(url)
    made, done, heard = ({n for kind, n in noted if kind == wanted} for wanted in (MADE, DONE, HEARD))
    with rota.open(url) as store:
        jobs = [one.payload for one in store.queue("q").jobs(limit=10**6)]
        transport = store.transport("t")
        messages = [
            one.event for group in transport.groups(limit=1000) for one in transport.peek(group.group_id, 10**6)
        ]
        messages += [group.group_id for group in store.transport("undone").groups()]
    twice = len(noted) - len(set(noted)) + len(jobs) - len(set(jobs)) + len(messages) - len(set(messages))
    return {
        "jobs without a commit": len(set(jobs) - (made - done)),
        "commits without a job": len(made - done - set(jobs)),
        "messages without a commit": len(set(messages) - (made - heard)),
        "commits without a message": len(made - heard - set(messages)),
        "anything twice": twice,
        "made": len(made),
        "done": len(done) + len(heard),
    }


def effects(url: str) -> list[tuple[str, int]]:
    """What was noted, and committed."""
    if url.startswith("memory"):
        return Memory.committed.get(url, [])
    if url.startswith("sqlite"):
        import sqlite3

        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)
    else:
        import psycopg

        connection = psycopg.connect(url)
    rows: list[tuple[str, int]] = connection.execute("SELECT kind, n FROM effects").fetchall()
    connection.close()
    return rows
