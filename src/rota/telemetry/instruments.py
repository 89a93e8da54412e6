"""Metrics by OpenTelemetry's messaging conventions. Attributes are few and of few values: no ids, no groups."""

from __future__ import annotations

from typing import Any

from opentelemetry import metrics

from rota.telemetry import LOADED

_VERSION: str = LOADED["rota"].__version__
# What the conventions advise, in seconds.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_SILENT = ("_ProxyMeterProvider", "NoOpMeterProvider")


class Instruments:
    """The instruments of the meter that the application has set at the moment, if it has."""

    def __init__(self) -> None:
        self._provider: Any = None
        self._made: tuple[Any, Any, Any, Any] | None = None

    def operation(self, operation: str, destination: str, seconds: float, error_type: str | None) -> None:
        """An operation on the store took so long."""
        made = self._instruments()
        if made is not None:
            made[0].record(seconds, _attributes(operation, destination, error_type))

    def sent(self, destination: str, count: int, error_type: str | None) -> None:
        """So many items were stored, or were not for an error."""
        made = self._instruments()
        if made is not None and count:
            made[1].add(count, _attributes("send", destination, error_type))

    def consumed(self, destination: str) -> None:
        """An item is handed to its handler."""
        made = self._instruments()
        if made is not None:
            made[2].add(1, _attributes("process", destination, None))

    def processed(self, destination: str, seconds: float, error_type: str | None) -> None:
        """A handler took so long."""
        made = self._instruments()
        if made is not None:
            made[3].record(seconds, _attributes("process", destination, error_type))

    def _instruments(self) -> tuple[Any, Any, Any, Any] | None:
        provider = metrics.get_meter_provider()
        if provider is not self._provider:
            self._made = None if type(provider).__name__ in _SILENT else _make(provider)
            self._provider = provider
        return self._made


def _make(provider: Any) -> tuple[Any, Any, Any, Any]:
    meter = provider.get_meter("rota", _VERSION)
    return (
        _histogram(
            meter, "messaging.client.operation.duration", "Duration of a messaging operation initiated by a client."
        ),
        meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Number of messages a producer attempted to send."
        ),
        meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Number of messages delivered to the application."
        ),
        _histogram(meter, "messaging.process.duration", "Duration of processing a message."),
    )


def _histogram(meter: Any, name: str, description: str) -> Any:
    try:
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_BOUNDS)
    except TypeError:
        # An API from before there were such advices.
        return meter.create_histogram(name, "s", description)


def _attributes(operation: str, destination: str, error_type: str | None) -> dict[str, Any]:
    attributes = {
        "messaging.system": "rota",
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }
    if error_type is not None:
        attributes["error.type"] = error_type
    return attributes
