"""The end of a race: work off what is left, and say what cannot be."""

from __future__ import annotations

import time
from typing import Any

from .actors import Claimer
from .log import Log


class Drainer(Claimer):
    """A claimer that acks everything."""

    def work(self, kind: str, held: Any) -> None:
        self.settle(kind, held, "ack")


def drain(store: Any, log: Log, patience: float = 5.0, limit: float = 30.0) -> tuple[list[str], list[tuple[str, int]]]:
    """Ack until nothing is stored, or nothing came for ``patience`` seconds; the values that stay, and the letters.

    A store that always has something to give out is left after ``limit`` seconds.
    """
    actor = Drainer(store, log, "drain", visibility=5.0)
    begin = time.monotonic()
    silent_until = begin + patience
    while time.monotonic() < min(silent_until, begin + limit):
        found = actor.claim_messages() + actor.claim_jobs()
        for kind, held in found:
            actor.work(kind, held)
        if found:
            silent_until = time.monotonic() + patience
        elif not stored(store):
            break
        else:
            time.sleep(0.02)
    return stored(store), letters(store)


def stored(store: Any) -> list[str]:
    """The values of all live messages and jobs, read without claiming."""
    transport, queue = store.transport("race"), store.queue("race")
    values = [
        message.event
        for group in transport.groups(limit=100_000)
        for message in transport.peek(group.group_id, 100_000)
    ]
    for state in ("pending", "processing"):
        values += [job.payload for job in queue.jobs(state, limit=1_000_000)]
    return values


def letters(store: Any) -> list[tuple[str, int]]:
    """The values of all dead letters with the instant of their death."""
    dead = [(letter.event, letter.died_at) for letter in store.transport("race").dead_letters(limit=1_000_000)]
    dead += [(letter.payload, letter.died_at) for letter in store.queue("race").dead_letters(limit=1_000_000)]
    return [(value, round(died_at * 1_000_000)) for value, died_at in dead]
