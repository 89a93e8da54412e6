"""Transactional handlers of both kinds and colours, told step by step what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import rota

Step = Callable[[Any, Any], Any]
EFFECTS = "effects"


def effect(what: Any = "effect") -> Step:
    """Something that shows when it is committed, on every engine."""
    return lambda handle, tx: tx.enqueue(EFFECTS, what)


def give(value: Any) -> Step:
    return lambda handle, tx: value


def fail(error: BaseException) -> Step:
    def step(handle: Any, tx: Any) -> None:
        raise error

    return step


class Trial:
    """One queue or transport with a transactional handler that takes these steps, each time from the first."""

    def __init__(self, store: rota.Store, kind: str, colour: str, **options: Any) -> None:
        self.store, self.kind, self.colour, self.options = store, kind, colour, options
        self.worker = rota.Worker(store)
        self.tries: list[int] = []
        self.handles: list[Any] = []
        self.queue = store.queue("q", keep_done=3600)
        self.transport = store.transport("t")

    def handler(self, *steps: Step) -> Trial:
        """Register it."""

        def begin(handle: Any) -> None:
            self.handles.append(handle)
            self.tries.append(handle.attempts if self.kind == "queue" else handle.deliveries)

        def run(handle: Any, tx: rota.Transaction) -> Any:
            begin(handle)
            result = None
            for step in steps:
                result = step(handle, tx)
            return result

        async def arun(handle: Any, tx: rota.AsyncTransaction) -> Any:
            begin(handle)
            result = None
            for step in steps:
                result = step(handle, tx)
                if inspect.isawaitable(result):
                    result = await result
            return result

        def of_job(job: rota.Job, tx: Any) -> Any:
            return run(job, tx)

        async def of_async_job(job: rota.AsyncJob, tx: Any) -> Any:
            return await arun(job, tx)

        def of_lease(lease: rota.Lease, tx: Any) -> Any:
            return run(lease, tx)

        async def of_async_lease(lease: rota.AsyncLease, tx: Any) -> Any:
            return await arun(lease, tx)

        asynchronous = self.colour == "async"
        if self.kind == "queue":
            self.worker.queue("q", transactional=True, **self.options)(of_async_job if asynchronous else of_job)
        else:
            self.worker.transport("t", transactional=True, **self.options)(of_async_lease if asynchronous else of_lease)
        return self

    def add(self, count: int = 1, **options: Any) -> list[int]:
        """Items, of different groups."""
        if self.kind == "queue":
            return self.queue.enqueue_many([rota.Item(number, **options) for number in range(count)])
        return self.transport.publish_many([(f"g{number}", number) for number in range(count)])

    @property
    def effects(self) -> list[Any]:
        """What was committed."""
        return [job.payload for job in self.store.queue(EFFECTS).jobs(limit=10_000)]

    @property
    def live(self) -> int:
        """How many items are not done with."""
        if self.kind == "queue":
            stats = self.queue.stats()
            return stats.pending + stats.processing
        return self.transport.stats().messages

    @property
    def dead(self) -> list[Any]:
        """Errors of the dead letters."""
        letters: list[Any] = [*(self.queue if self.kind == "queue" else self.transport).dead_letters()]
        return [letter.last_error for letter in letters]

    @property
    def counts(self) -> dict[str, int]:
        """What the worker counted, but for zeros."""
        source = self.worker.health().sources[0]
        names = ("acked", "retried", "failed", "released", "lost", "timed_out")
        return {name: getattr(source, name) for name in names if getattr(source, name)}
