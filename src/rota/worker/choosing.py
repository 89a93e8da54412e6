"""A worker whose jobs' names are not known before they come: a function says which handler each one is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.units import Duration
from rota.worker.worker import Worker


class ChoosingWorker(Worker):
    """``choose`` takes the place of names known beforehand; handlers of several kinds share a queue's slots."""

    def choose(
        self,
        queue: str,
        handlers: Mapping[str, Callable[..., Any]],
        choose: Callable[[str], str | None],
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        visibility: Duration | None = None,
    ) -> None:
        """Handle the jobs of a queue: ``choose`` is told a job's name and says which of the handlers it is for.

        None: nobody knows it here, so it is given back for a while, as any job whose name has no handler. ``choose`` is
        called in the thread that claims and must not raise.
        """
        for task, handler in handlers.items():
            self.task(queue, name=task, concurrency=concurrency, timeout=timeout, visibility=visibility)(handler)
        self._registry.sources["queue", queue].choose = choose
