"""A span around each handler, for applications that use OpenTelemetry; else nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota.telemetry import API, LOADED, active
from rota.worker.outcomes import OutsideError, Snooze, qualified

if TYPE_CHECKING:
    from rota.telemetry.spans import Process, Spans
    from rota.worker.sources import Held, Source

_ENDED_BY_US = {"lost": "claim_lost", "timeout": "timeout", "overdue": "timeout"}
_NOTHING = nullcontext()


def handling(held: Held, run: Callable[..., Any] | None = None) -> AbstractContextManager[None]:
    """The handler of an item runs within this block; ``run``: that of the ``contextvars.Context`` it runs in."""
    spans = active() if API in LOADED else None
    return _NOTHING if spans is None else _Handling(spans, held, run)


class _Handling(AbstractContextManager[None]):
    """No generator, which would leave its frames in the handler's tracebacks."""

    def __init__(self, spans: Spans, held: Held, run: Callable[..., Any] | None) -> None:
        self._held = held
        self._run = run
        self._process: Process = spans.process(held.source.name, held.claim.headers, _attributes(held))

    def __enter__(self) -> None:
        if self._run is None:
            self._process.open()
        else:
            self._run(self._process.open)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, GeneratorExit) and self._held.why == "left":
            # Thrown away long after its context: there is nothing to restore, and this thread is any.
            return
        how = _failure(self._held, error)
        if self._run is None:
            self._process.close(*how)
        else:
            self._run(self._process.close, *how)


def _attributes(held: Held) -> dict[str, Any]:
    claim = held.claim
    if held.source.kind == "transport":
        return {
            "messaging.message.id": str(claim.seq),
            "messaging.rota.message.delivery_count": claim.deliveries,
            "messaging.rota.message.group": claim.group_id,
        }
    attributes = {"messaging.message.id": str(claim.id), "messaging.rota.message.delivery_count": claim.attempts}
    return attributes if claim.name is None else attributes | {"messaging.rota.job.name": claim.name}


def _failure(held: Held, error: BaseException | None) -> tuple[BaseException | None, str | None]:
    """What counts as an error, and its ``error.type``: not what is given back and comes again, uncounted."""
    if held.why in _ENDED_BY_US:
        return None, _ENDED_BY_US[held.why]
    if error is None or held.why is not None or isinstance(error, Snooze):
        return None, None
    return error, error.qualified if isinstance(error, OutsideError) else qualified(type(error))


def received(source: Source, seconds: float) -> None:
    """A claim of this source gave items after so many seconds."""
    spans = active() if API in LOADED else None
    if spans is not None:
        spans.received(source.name, seconds)
