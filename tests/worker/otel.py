"""An application that uses OpenTelemetry, for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rota.telemetry import API


class Telemetry:
    """What was exported."""

    def __init__(self, exporter: Any, reader: Any) -> None:
        self._exporter = exporter
        self._reader = reader

    def spans(self, name: str | None = None) -> list[Any]:
        """The spans that ended, in that order; those of a name."""
        return [span for span in self._exporter.get_finished_spans() if name in (None, span.name)]

    def one(self, name: str) -> Any:
        """The only span of a name."""
        (span,) = self.spans(name)
        return span

    def points(self, metric: str) -> dict[tuple[Any, ...], Any]:
        """A metric's points by operation, destination and error."""
        data = self._reader.get_metrics_data()
        found: dict[tuple[Any, ...], Any] = {}
        for resource in data.resource_metrics if data else []:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "rota"
                for one in scope.metrics:
                    for point in one.data.data_points if one.name == metric else []:
                        attributes = dict(point.attributes)
                        assert attributes.pop("messaging.system") == "rota"
                        names = ("messaging.operation.name", "messaging.destination.name", "error.type")
                        key = tuple(attributes.pop(name, None) for name in names)
                        assert not attributes
                        found[key] = point
        return found


@contextmanager
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The application has imported the API, and set nothing up. Afterwards nobody has, for the other tests."""
    from opentelemetry import trace

    monkeypatch.setitem(sys.modules, API, trace)
    yield
    del sys.modules[API]


@contextmanager
def sdk(monkeypatch: pytest.MonkeyPatch, sampler: Any = None) -> Iterator[Telemetry]:
    """The application has set up tracing and metrics."""
    from opentelemetry import trace
    from opentelemetry.metrics import _internal as metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    metering = MeterProvider([reader], shutdown_on_exit=False)
    # Set for good they could be only once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracing)
    monkeypatch.setattr(metrics, "_METER_PROVIDER", metering)
    with api(monkeypatch):
        yield Telemetry(exporter, reader)
    tracing.shutdown()
    metering.shutdown()


def parent_of(headers: dict[str, str]) -> tuple[int, int]:
    """Trace and span of a ``traceparent``."""
    version, trace_id, span_id, _ = headers["traceparent"].split("-")
    assert version == "00"
    return int(trace_id, 16), int(span_id, 16)


def ids(span: Any) -> tuple[int, int]:
    """Trace and span of a span or its context."""
    context = span.get_span_context() if hasattr(span, "get_span_context") else span
    return context.trace_id, context.span_id
