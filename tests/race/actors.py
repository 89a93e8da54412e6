"""Publishers and claimers of a race: they work on a store until told to stop and log everything they do.

As a program (``python -m race.actors ROLE URL LOG SEED GROUPS COLOUR``) one runs until it is killed or its standard
input ends.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rota
from rota.testing.colours import Colour

from .log import Log

GROUPS = 40
VISIBILITY = 0.25
# After an error that says the server is away.
PAUSE = 0.02


def micros(seconds: float) -> int:
    """Public seconds as whole microseconds again."""
    return round(seconds * 1_000_000)


class Actor:
    """What publishers and claimers share."""

    def __init__(self, store: Any, log: Log, seed: str) -> None:
        self.log = log
        self.rng = random.Random(seed)
        self.transport = store.transport("race")
        self.queue = store.queue("race", max_attempts=1_000, backoff_base=0.02)

    def call(self, number: int, verb: Callable[[], Any]) -> tuple[bool, Any]:
        """Call a verb and write down an error: that nothing happened, or that the outcome is unknown."""
        try:
            return True, verb()
        except (rota.EngineBusy, rota.EngineFull, rota.EngineUnavailable) as error:
            self.log.fail(number, error)
            time.sleep(PAUSE)
        except rota.OutcomeUnknown as error:
            self.log.unknown(number, error)
        return False, None

    def run(self, stop: threading.Event) -> None:
        """Step until stopped."""
        while not stop.is_set():
            self.step()

    def step(self) -> None:
        raise NotImplementedError


class Publisher(Actor):
    """Puts messages into groups and jobs into the queue, now and then cancels a job of its own."""

    def __init__(self, store: Any, log: Log, seed: str, pause: float = 0.002, groups: int = GROUPS) -> None:
        super().__init__(store, log, seed)
        self._pause = pause
        self._groups = groups
        self._made = 0
        self._jobs: list[int] = []

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.6:
            self.publish()
        elif chance < 0.95:
            self.enqueue()
        elif self._jobs:
            self.cancel()
        time.sleep(self.rng.random() * self._pause)

    def publish(self) -> None:
        group, value = f"g{self.rng.randrange(self._groups)}", self._value()
        number = self.log.invoke("put", kind="message", scope=group, value=value)
        done, seq = self.call(number, lambda: self.transport.publish(group, value))
        if done:
            self.log.ok(number, id=seq)

    def enqueue(self) -> None:
        value, priority = self._value(), self.rng.randrange(3)
        number = self.log.invoke("put", kind="job", scope="race", value=value)
        done, job = self.call(number, lambda: self.queue.enqueue(value, priority=priority))
        if done:
            self.log.ok(number, id=job)
            self._jobs.append(job)

    def cancel(self) -> None:
        job = self._jobs.pop(self.rng.randrange(len(self._jobs)))
        number = self.log.invoke("cancel", id=job)
        done, result = self.call(number, lambda: self.queue.cancel(job))
        if done:
            self.log.ok(number, result=result)

    def _value(self) -> str:
        self._made += 1
        return f"{self.log.by}:{self._made}"


class Claimer(Actor):
    """Claims messages and jobs and ends them in every way there is, also too late and not at all."""

    def __init__(self, store: Any, log: Log, seed: str, visibility: float = VISIBILITY) -> None:
        super().__init__(store, log, seed)
        self.visibility = visibility
        # Held for a while, some beyond the deadline: until when, and what.
        self._slow: list[tuple[float, str, Any]] = []

    def step(self) -> None:
        found = self.claim_messages() if self.rng.random() < 0.6 else self.claim_jobs()
        for kind, held in found:
            self.work(kind, held)
        now = time.monotonic()
        due = [one for one in self._slow if one[0] <= now]
        self._slow = [one for one in self._slow if one[0] > now]
        for _, kind, held in due:
            self.settle(kind, held, "ack")
        if not found:
            time.sleep(0.002)

    def claim_messages(self) -> list[tuple[str, Any]]:
        number = self.log.invoke("claim", kind="message")
        n = self.rng.choice((1, 1, 3))
        done, leases = self.call(number, lambda: self.transport.claim_batch(self.log.by, n, self.visibility))
        if not done:
            return []
        self.log.ok(number, got=[message_line(lease, self.visibility) for lease in leases])
        return [("message", lease) for lease in leases]

    def claim_jobs(self) -> list[tuple[str, Any]]:
        number = self.log.invoke("claim", kind="job")
        n = self.rng.choice((1, 1, 3))
        done, jobs = self.call(number, lambda: self.queue.claim_batch(self.log.by, n, visibility=self.visibility))
        if not done:
            return []
        self.log.ok(number, got=[job_line(job) for job in jobs])
        return [("job", job) for job in jobs]

    def work(self, kind: str, held: Any) -> None:
        chance = self.rng.random()
        if chance < 0.60:
            self.settle(kind, held, "ack")
        elif chance < 0.65:
            self.extend(kind, held)
            self.settle(kind, held, "ack")
        elif chance < 0.70:
            self.settle(kind, held, "retry")
        elif chance < 0.75:
            self.settle(kind, held, "release")
        elif chance < 0.78:
            self.settle(kind, held, "retry later")
        elif chance < 0.81:
            self.settle(kind, held, "fail")
        elif chance < 0.96:
            self._slow.append((time.monotonic() + self.visibility * self.rng.uniform(0.2, 2), kind, held))
        elif chance < 0.98:
            # Twice: the second one must not count.
            self.settle(kind, held, "retry")
            self.settle(kind, held, "ack")

    def settle(self, kind: str, held: Any, how: str) -> None:
        verb = how.partition(" ")[0]
        calls: dict[str, Callable[[], bool]] = {
            "ack": held.ack,
            "fail": lambda: held.fail("meant to"),
            "release": held.release,
            "retry": lambda: held.retry("again", 0),
            "retry later": lambda: held.retry("again", 0.05),
        }
        number = self.log.invoke("settle", **_of(kind, held), verb=verb)
        done, result = self.call(number, calls[how])
        if done:
            self.log.ok(number, result=result)

    def extend(self, kind: str, held: Any) -> None:
        number = self.log.invoke("extend", **_of(kind, held))
        if kind == "message":
            done, renewed = self.call(number, lambda: held.extend(self.visibility))
            if done:
                self.log.ok(number, until=None if renewed is None else micros(renewed.deadline))
        else:
            done, beaten = self.call(number, lambda: held.heartbeat(self.visibility))
            if done:
                self.log.ok(number, until=micros(held.claim_expires_at) if beaten else None)


def _of(kind: str, held: Any) -> dict[str, Any]:
    return {"kind": kind, "id": held.seq if kind == "message" else held.id, "token": held.token}


def message_line(lease: Any, visibility: float) -> dict[str, Any]:
    """A lease as the judge reads it."""
    until = micros(lease.deadline)
    return {
        "kind": "message",
        "scope": lease.group_id,
        "id": lease.seq,
        "value": lease.event,
        "token": lease.token,
        "since": until - micros(visibility),
        "exact": not lease._transport._place.startswith("postgresql:"),
        "until": until,
        "count": lease.deliveries,
    }


def job_line(job: Any) -> dict[str, Any]:
    """A claimed job as the judge reads it."""
    return {
        "kind": "job",
        "scope": job.queue,
        "id": job.id,
        "value": job.payload,
        "token": job.token,
        "since": micros(job.claimed_at),
        "exact": not job._queue._place.startswith("postgresql:"),
        "until": micros(job.claim_expires_at),
        "count": job.attempts,
    }


def main(role: str, url: str, log: str, seed: str, groups: str, colour: Any) -> None:
    """One actor as a process: it ends when its standard input does."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    facade = Colour(colour)
    store = _opened(url, facade, stop)
    if store is not None:
        lines = Log(Path(log).stem, Path(log))
        actor = (
            Publisher(store, lines, seed, groups=int(groups)) if role == "publisher" else Claimer(store, lines, seed)
        )
        actor.run(stop)
    facade.close()


def _opened(url: str, facade: Colour, stop: threading.Event) -> Any:
    """A store, also when its server is being restarted just now."""
    while not stop.is_set():
        try:
            return facade.open(lambda: rota.open(url), lambda: rota.aopen(url))
        except rota.EngineUnavailable as error:
            print(error, file=sys.stderr)
            time.sleep(PAUSE)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
