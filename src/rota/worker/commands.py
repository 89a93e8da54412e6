"""A worker whose items are handled by executors, for ``rota work``: the same runtime, other hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.sync.store import Store
from rota.units import Duration
from rota.worker.limits import Limits
from rota.worker.registry import Executor
from rota.worker.signature import SourceKind
from rota.worker.sources import Held
from rota.worker.worker import Worker


class CommandWorker(Worker):
    """Its sources share ``at_once`` places; after ``at_most`` items, where that is given, it finishes.

    ``on_settled`` is told of items that were settled together and of how many really were; it is called in a thread of
    the runtime.
    """

    def __init__(
        self,
        store: Store,
        *,
        grace: Duration,
        worker_id: str,
        housekeeping: bool,
        at_once: int,
        at_most: int | None,
        on_settled: Callable[[Sequence[Held], int], None],
    ) -> None:
        super().__init__(store, grace=grace, worker_id=worker_id, housekeeping=housekeeping)
        self._at_once = at_once
        self._limits = Limits(at_once, at_most)
        self._on_settled = on_settled

    def execute(
        self,
        kind: SourceKind,
        name: str,
        executor: Executor,
        *,
        timeout: Duration | None,
        visibility: Duration | None,
        min_priority: int | None,
    ) -> None:
        """Hand what is in this queue or transport to an executor."""
        self._registry.add(
            kind,
            name,
            executor.handle,
            None,
            {"timeout": timeout, "executor": executor},
            {"concurrency": self._at_once, "visibility": visibility, "min_priority": min_priority},
        )
