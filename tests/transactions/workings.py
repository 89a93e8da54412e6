"""A store with a connection to its database, and what is done with both in one transaction."""

from __future__ import annotations

import random
from typing import Any

import rota
from rota.testing.colours import Colour

from .lenders import Lender

MADE, DONE = "made", "done"


class Place:
    """One store, in the colour of one lender."""

    def __init__(self, url: str, lender: type[Lender], **options: Any) -> None:
        self.url = url
        self.colour = Colour("async" if lender.asynchronous else "sync")
        self.store = self.colour.open(rota.open, rota.aopen, url=url, busy_timeout=20, **options)
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
        self.lender.execute(f"INSERT INTO effects (kind, n) VALUES ('{kind}', {number})")

    def one(self, number: int, chance: random.Random) -> None:
        """One transaction of a random kind: makes a job and notes it, or works one off and notes that."""
        how = chance.choice(("commit", "commit", "rollback", "savepoint", "exception"))
        job = self.queue.claim_one("w", visibility=3600) if chance.random() < 0.5 else None
        lender, tx = self.lender, self.lender
        lender.begin()
        try:
            self.note(MADE, number)
            self.queue.enqueue(number, tx=tx.tx)
            self.transport.publish(f"g{number % 5}", number, tx=tx.tx)
            if job is not None:
                self.note(DONE, job.payload)
                job.ack(tx=tx.tx)
            if how == "savepoint":
                undo = lender.savepoint()
                self.note(MADE, -number)
                self.queue.enqueue(-number, tx=tx.tx)
                self.transport.publish("undone", -number, tx=tx.tx)
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
            if how == "rollback":
                lender.rollback()
            else:
                lender.commit()


def judge(url: str) -> dict[str, int]:
    """Jobs without a commit, commits without a job, and how much there was of both. Whatever happened before."""
    made, done = effects(url)
    with rota.open(url) as store:
        jobs = [one.payload for one in store.queue("q").jobs(limit=10**6)]
        transport = store.transport("t")
        messages = [
            one.event for group in transport.groups(limit=1000) for one in transport.peek(group.group_id, 10**6)
        ]
    assert len(jobs) == len(set(jobs))
    assert len(messages) == len(set(messages))
    living = made - done
    return {
        "jobs without a commit": len(set(jobs) - living),
        "commits without a job": len(living - set(jobs)),
        "messages without a commit": len(set(messages) - made),
        "commits without a message": len(made - set(messages)),
        "made": len(made),
        "done": len(done),
    }


def effects(url: str) -> tuple[set[int], set[int]]:
    """What was noted as made and as done."""
    if url.startswith("sqlite"):
        import sqlite3

        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)
    else:
        import psycopg

        connection = psycopg.connect(url)
    rows = connection.execute("SELECT kind, n FROM effects").fetchall()
    connection.close()
    return {n for kind, n in rows if kind == MADE}, {n for kind, n in rows if kind == DONE}
