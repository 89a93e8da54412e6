"""``/healthz``, ``/readyz`` and ``/metrics`` of one run of a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING

import rota
from rota.worker import metrics
from rota.worker.endpoint import Address, Answer, Endpoint
from rota.worker.figures import Asker, Figures
from rota.worker.health import WorkerHealth

if TYPE_CHECKING:
    from rota.worker.signature import SourceKind

# Less than what probes usually wait (1 s), and than what scrapers do (10 s).
_PROBE, _SCRAPE = 0.8, 2.0


class Probes:
    """A context manager: within it the server answers."""

    def __init__(
        self,
        address: Address,
        sources: Iterable[tuple[SourceKind, str]],
        health: Callable[[], WorkerHealth],
    ) -> None:
        self._health = health
        self._asker = Asker(sources)
        self._endpoint = Endpoint(address, self._answer)
        self.bind = self._asker.bind

    @property
    def address(self) -> Address | None:
        """Where the server listens, None while it cannot."""
        return self._endpoint.address

    def __enter__(self) -> Probes:
        self._asker.start()
        self._endpoint.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._endpoint.close()
        self._asker.close()

    def _answer(self, path: str) -> Answer | None:
        if path == "/healthz":
            return Answer(200, "alive\n")
        if path == "/readyz":
            return self._ready()
        if path == "/metrics":
            return self._metrics()
        return None

    def _ready(self) -> Answer:
        health = self._health()
        if health.state != "working":
            return Answer(503, f"not ready: {health.state}\n")
        if health.store_failing_since is None and _answered(self._asker.latest(_PROBE)):
            return Answer(200, "ready\n")
        return Answer(503, "not ready: the store does not answer\n")

    def _metrics(self) -> Answer:
        figures, health = self._asker.latest(_SCRAPE), self._health()
        up = _answered(figures) and health.store_failing_since is None
        text = metrics.page(health, figures, version=rota.__version__, store_up=up, now=time.monotonic())
        return Answer(200, text, metrics.CONTENT_TYPE)


def _answered(figures: Figures | None) -> bool:
    return figures is not None and figures.error is None
