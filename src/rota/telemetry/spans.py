"""Spans and metrics by OpenTelemetry's messaging conventions. Imported only by ``rota.telemetry.active``.

An item's producer context is stored in its headers by the application's propagators (by default W3C ``traceparent``,
``tracestate`` and ``baggage``). Whatever goes wrong here must not keep an item from being stored or handled: it is
logged and passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Literal, ParamSpec

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NoOpTracerProvider, ProxyTracerProvider, Span, SpanKind, StatusCode, Tracer

from rota import names
from rota.records import NewJob, NewMessage
from rota.telemetry import LOADED
from rota.telemetry.instruments import Instruments

_perf_counter = time.perf_counter
_VERSION: str = LOADED["rota"].__version__
SYSTEM = "rota"
_SILENT = (ProxyTracerProvider, NoOpTracerProvider)

Headers = dict[str, str] | None
Error = type[BaseException] | None
P = ParamSpec("P")


def _harmless(function: Callable[P, None]) -> Callable[P, None]:
    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:
            import logging

            logging.getLogger("rota.telemetry").warning("OpenTelemetry failed, going on without", exc_info=True)

    return guarded


class Spans:
    """Everything for the tracer and meter that the application has set at the moment."""

    def __init__(self) -> None:
        self._provider: Any = None
        self._known_tracer: Tracer | None = None
        self.instruments = Instruments()

    def tracer(self) -> Tracer | None:
        """The application's tracer, None while it has none: then contexts are passed on and no spans made."""
        provider = trace.get_tracer_provider()
        if provider is not self._provider:
            silent = isinstance(provider, _SILENT)
            self._known_tracer = None if silent else provider.get_tracer("rota", _VERSION)
            self._provider = provider
        return self._known_tracer

    def send(self, destination: str, count: int | None = None, group: str | None = None) -> Send:
        """A context manager around storing items; ``count`` of them when they are a batch."""
        return Send(self, destination, count, group)

    def process(self, destination: str, headers: Headers, attributes: dict[str, Any]) -> Process:
        """A context manager around handling an item."""
        return Process(self, destination, headers, attributes)

    def received(self, destination: str, seconds: float) -> None:
        """A claim gave items after so many seconds."""
        self.instruments.operation("receive", destination, seconds, None)


class _Operation:
    """A span that is current within the block, and its end."""

    _operation: Literal["send", "process"]

    def __init__(self, spans: Spans, destination: str) -> None:
        self._spans = spans
        self._destination = destination
        self._span: Span | None = None
        self._token: Any = None
        self._began = 0.0

    def _attributes(self) -> dict[str, Any]:
        return {
            "messaging.system": SYSTEM,
            "messaging.operation.name": self._operation,
            "messaging.operation.type": self._operation,
            "messaging.destination.name": self._destination,
        }

    @_harmless
    def _close(self, error: BaseException | None, error_type: str | None) -> None:
        token, self._token = self._token, None
        span, self._span = self._span, None
        try:
            if span is not None:
                if error_type is not None:
                    span.set_attribute("error.type", error_type)
                    span.set_status(StatusCode.ERROR, error_type if error is None else _described(error))
                    if error is not None:
                        span.record_exception(error)
                span.end()
        finally:
            if token is not None:
                context.detach(token)
        self._count(_perf_counter() - self._began, error_type)

    def _count(self, seconds: float, error_type: str | None) -> None:
        raise NotImplementedError


class Send(_Operation):
    """Around storing items: a producer span whose context goes into their headers."""

    _operation = "send"

    def __init__(self, spans: Spans, destination: str, count: int | None, group: str | None) -> None:
        super().__init__(spans, destination)
        self._batch = count
        self._group = group
        self._carrier: dict[str, str] = {}
        self._off = destination == names.HOUSEKEEPING

    def __enter__(self) -> Send:
        if not self._off:
            self._open()
        return self

    @_harmless
    def _open(self) -> None:
        self._began = _perf_counter()
        tracer = self._spans.tracer()
        if tracer is not None:
            attributes = self._attributes()
            if self._batch is not None:
                attributes["messaging.batch.message_count"] = self._batch
            if self._group is not None:
                attributes["messaging.rota.message.group"] = self._group
            span = tracer.start_span(f"send {self._destination}", kind=SpanKind.PRODUCER, attributes=attributes)
            self._span = span
            self._token = context.attach(trace.set_span_in_context(span))
        if trace.get_current_span().get_span_context().is_valid:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            self._carrier = names.headers(carrier) or {}

    def __exit__(self, kind: Error, error: BaseException | None, traceback: TracebackType | None) -> None:
        if not self._off:
            self._close(error, None if error is None else type_name(error))

    def _count(self, seconds: float, error_type: str | None) -> None:
        self._spans.instruments.operation("send", self._destination, seconds, error_type)
        self._spans.instruments.sent(self._destination, 1 if self._batch is None else self._batch, error_type)

    def headers(self, given: Headers) -> Headers:
        """The headers of an item with the context; those of a caller who names one of them himself stay as they are."""
        carrier = self._carrier
        if not carrier:
            return given
        if not given:
            return dict(carrier)
        return given if any(key in given for key in carrier) else given | carrier

    def job(self, job: NewJob) -> NewJob:
        """A job with the context."""
        return job._replace(headers=self.headers(job.headers)) if self._carrier else job

    def jobs(self, jobs: list[NewJob]) -> list[NewJob]:
        """Jobs with the context."""
        return [self.job(job) for job in jobs] if self._carrier else jobs

    def messages(self, messages: list[NewMessage]) -> list[NewMessage]:
        """Messages with the context."""
        if not self._carrier:
            return messages
        return [message._replace(headers=self.headers(message.headers)) for message in messages]

    def stored(self, id: int) -> int:
        """Note the id of the one item; the id."""
        if self._span is not None:
            self._span.set_attribute("messaging.message.id", str(id))
        return id


class Process(_Operation):
    """Around handling an item: a consumer span, the root of a trace of its own, linked to the producer's context.

    The producer's baggage is current for the handler. Without a tracer the producer's context is, so that what the
    handler sends belongs to the same trace.
    """

    _operation = "process"

    def __init__(self, spans: Spans, destination: str, headers: Headers, attributes: dict[str, Any]) -> None:
        super().__init__(spans, destination)
        self._headers = headers or {}
        self._more = attributes

    @_harmless
    def open(self) -> None:
        """Begin. ``close`` must follow, in the same context of ``contextvars``."""
        self._began = _perf_counter()
        current = propagate.extract(self._headers, context=Context())
        tracer = self._spans.tracer()
        if tracer is not None:
            producer = trace.get_current_span(current).get_span_context()
            span = tracer.start_span(
                f"process {self._destination}",
                context=trace.set_span_in_context(trace.INVALID_SPAN, current),
                kind=SpanKind.CONSUMER,
                attributes=self._attributes() | self._more,
                links=[Link(producer)] if producer.is_valid else None,
            )
            self._span = span
            current = trace.set_span_in_context(span, current)
        self._token = context.attach(current)
        self._spans.instruments.consumed(self._destination)

    def close(self, error: BaseException | None, error_type: str | None) -> None:
        """End; with an ``error_type`` it has failed."""
        self._close(error, error_type)

    def _count(self, seconds: float, error_type: str | None) -> None:
        self._spans.instruments.processed(self._destination, seconds, error_type)


def type_name(error: BaseException) -> str:
    """The value of ``error.type``."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


SPANS = Spans()
