"""OpenTelemetry around handlers: consumer spans linked to their producers, what counts as an error, metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota

from .otel import Telemetry, api, ids, parent_of, sdk
from .running import Running, until

Start = Callable[..., Running]


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    with sdk(monkeypatch) as telemetry:
        yield telemetry


def current() -> tuple[int, int]:
    from opentelemetry import trace

    return ids(trace.get_current_span())


@pytest.mark.parametrize("how", ["step", "run"])
@pytest.mark.parametrize("color", ["sync", "async"])
def test_linked_to_the_producer(store: rota.Store, otel: Telemetry, running: Start, color: str, how: str) -> None:
    from opentelemetry import trace

    worker, seen = rota.Worker(store), list[Any]()

    def handle(job: rota.Job) -> None:
        seen.append(current())
        store.queue("next").enqueue(1)

    def on_message(lease: rota.Lease) -> None:
        seen.append(current())

    async def handle_async(job: rota.AsyncJob) -> None:
        seen.append(current())
        await store.as_async().queue("next").enqueue(1)

    async def on_message_async(lease: rota.AsyncLease) -> None:
        seen.append(current())

    worker.task("q", name="hello")(handle_async if color == "async" else handle)
    worker.transport("t")(on_message_async if color == "async" else on_message)
    id = store.queue("q").enqueue(1, name="hello")
    seq = store.transport("t").publish("g", 1)
    if how == "step":
        assert worker.step()
        assert worker.step()
        worker.close()
    else:
        run = running(worker)
        until(lambda: [source.acked for source in worker.health().sources] == [1, 1])
        run.stop()

    common = {"messaging.system": "rota", "messaging.operation.name": "process", "messaging.operation.type": "process"}
    for name, sent, expected in (
        (
            "process q",
            "send q",
            {
                "messaging.destination.name": "q",
                "messaging.message.id": str(id),
                "messaging.rota.job.name": "hello",
                "messaging.rota.message.delivery_count": 1,
            },
        ),
        (
            "process t",
            "send t",
            {
                "messaging.destination.name": "t",
                "messaging.message.id": str(seq),
                "messaging.rota.message.group": "g",
                "messaging.rota.message.delivery_count": 1,
            },
        ),
    ):
        span, producer = otel.one(name), otel.one(sent)
        assert span.kind is trace.SpanKind.CONSUMER
        assert span.parent is None
        assert [ids(link.context) for link in span.links] == [ids(producer)]
        assert span.context.trace_id != producer.context.trace_id
        assert dict(span.attributes) == common | expected
        assert span.status.is_unset
        assert ids(span) in seen
    assert ids(otel.one("send next").parent) == ids(otel.one("process q"))
    assert otel.spans("send rota.housekeeping") == []
    consumed = otel.points("messaging.client.consumed.messages")
    assert {key: point.value for key, point in consumed.items()} == {
        ("process", "q", None): 1,
        ("process", "t", None): 1,
    }
    assert {key: point.count for key, point in otel.points("messaging.process.duration").items()} == {
        ("process", "q", None): 1,
        ("process", "t", None): 1,
    }
    received = otel.points("messaging.client.operation.duration")
    assert (("receive", "q", None) in received) == (how == "run")


class Odd(Exception):
    """An error of the application."""


@pytest.mark.parametrize("how", ["step", "run"])
@pytest.mark.parametrize("color", ["sync", "async"])
@pytest.mark.parametrize(
    ("error", "type_", "says"),
    [
        (Odd("why"), f"{Odd.__module__}.Odd", "Odd: why"),
        (ValueError("why"), "ValueError", "ValueError: why"),
        (rota.Retry(delay=1000, reason="why"), "rota.worker.outcomes.Retry", "Retry: why"),
        (rota.Fail("why"), "rota.worker.outcomes.Fail", "Fail: why"),
        (rota.Snooze(1000), None, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors(
    otel: Telemetry, running: Start, color: str, how: str, error: Exception, type_: str | None, says: str | None
) -> None:
    def handle(payload: Any) -> None:
        raise error

    async def handle_async(payload: Any) -> None:
        raise error

    with rota.open("memory://") as store:
        worker = rota.Worker(store)
        worker.queue("q")(handle_async if color == "async" else handle)
        store.queue("q", backoff_base=1000).enqueue(1)
        if how == "step":
            assert worker.step()
            worker.close()
        else:
            run = running(worker)
            until(lambda: worker.health().sources[0].handled)
            run.stop()
    span = otel.one("process q")
    assert span.attributes.get("error.type") == type_
    assert span.status.description == says
    assert span.status.is_unset == (type_ is None)
    assert [event.name for event in span.events] == ([] if type_ is None else ["exception"])
    assert list(otel.points("messaging.process.duration")) == [("process", "q", type_)]


@pytest.mark.parametrize("how", ["step", "run"])
def test_a_handler_that_takes_too_long(otel: Telemetry, running: Start, how: str) -> None:
    with rota.open("memory://") as store:
        worker = rota.Worker(store)

        @worker.queue("q", timeout=0.05)
        async def handle(payload: Any) -> None:
            await asyncio.sleep(20)

        store.queue("q", backoff_base=1000).enqueue(1)
        if how == "step":
            assert worker.step()
            worker.close()
        else:
            run = running(worker)
            until(lambda: worker.health().sources[0].retried)
            run.stop()
    span = otel.one("process q")
    assert span.attributes["error.type"] == "timeout"
    assert not span.status.is_ok


def test_one_that_is_given_back_did_not_fail(otel: Telemetry, running: Start) -> None:
    with rota.open("memory://") as store:
        worker = rota.Worker(store, grace=0)

        @worker.queue("q")
        async def handle(payload: Any) -> None:
            await asyncio.sleep(20)

        store.queue("q").enqueue(1)
        run = running(worker)
        until(lambda: worker.health().sources[0].running)
        run.stop()
    assert otel.one("process q").status.is_unset


def works_in_a_child(payload: Any) -> None:
    if payload == "fail":
        raise ValueError("on purpose")


def test_around_a_child(otel: Telemetry, running: Start) -> None:
    with rota.open("memory://w-otel-child?codec=json") as store:
        worker = rota.Worker(store)
        worker.queue("q", processes=True, concurrency=1)(works_in_a_child)
        store.queue("q", backoff_base=1000).enqueue_many(["ok", "fail"])
        run = running(worker)
        until(lambda: worker.health().sources[0].handled == 2, 60)
        run.stop()
    ok, failed = otel.spans("process q")
    assert ok.status.is_unset
    assert "error.type" in failed.attributes
    (sent,) = otel.spans("send q")
    assert [ids(link.context) for link in (*ok.links, *failed.links)] == [ids(sent)] * 2


def test_what_surrounds_the_worker_is_no_parent(otel: Telemetry) -> None:
    """A worker may run inside of the span of its program's start, for days."""
    from opentelemetry import trace

    async def main(store: rota.Store) -> None:
        worker = rota.Worker(store)

        @worker.queue("q")
        async def handle(payload: Any) -> None:
            worker.stop()

        store.queue("q").enqueue(1)
        with trace.get_tracer("app").start_as_current_span("program"):
            await worker.arun()

    with rota.open("memory://") as store:
        asyncio.run(main(store))
    assert otel.one("process q").parent is None


@pytest.mark.parametrize("color", ["sync", "async"])
def test_baggage_of_the_producer(otel: Telemetry, color: str) -> None:
    from opentelemetry import baggage, context

    seen: list[Any] = []

    async def handle_async(payload: Any) -> None:
        seen.append(baggage.get_baggage("tenant"))

    with rota.open("memory://") as store:
        worker = rota.Worker(store)
        worker.queue("q")(
            handle_async if color == "async" else lambda payload: seen.append(baggage.get_baggage("tenant"))
        )
        token = context.attach(baggage.set_baggage("tenant", "a"))
        store.queue("q").enqueue(1)
        context.detach(token)
        assert worker.step()
        worker.close()
    assert seen == ["a"]
    assert baggage.get_baggage("tenant") is None


def test_items_without_a_context(otel: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    for headers in (None, {"traceparent": "nonsense"}, {"other": "x"}):
        with rota.open("memory://") as store:
            store.queue("q")._engine.enqueue(store.queue("q")._new(1, headers=headers))
            worker = rota.Worker(store)
            worker.queue("q")(lambda payload: None)
            assert worker.step()
    assert [list(span.links) for span in otel.spans("process q")] == [[], [], []]


def test_the_api_alone_hands_the_context_to_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    seen: list[Any] = []
    with api(monkeypatch), rota.open("memory://") as store:
        worker = rota.Worker(store)

        @worker.queue("q")
        def handle(payload: Any) -> None:
            seen.append(current())
            store.queue("next").enqueue(1)

        store.queue("q").enqueue(1, headers=headers)
        assert worker.step()
        job = store.queue("next").claim_one()
        assert job is not None
        assert job.headers == headers
    assert seen == [parent_of(headers)]


def test_broken_telemetry_harms_no_handler(
    otel: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry import propagate

    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(propagate, "extract", broken)
    with rota.open("memory://") as store:
        seen: list[Any] = []
        worker = rota.Worker(store)
        worker.queue("q")(lambda payload: seen.append(payload))
        store.queue("q").enqueue(1)
        assert worker.drain() == 1
        assert seen == [1]
        assert store.queue("q").stats().pending == 0
    assert {record.name for record in caplog.records} == {"rota.telemetry"}


@pytest.mark.parametrize("color", ["sync", "async"])
def test_the_error_text_of_an_item_is_the_same_with_and_without(
    monkeypatch: pytest.MonkeyPatch, running: Start, color: str
) -> None:
    def handle(payload: Any) -> None:
        raise ValueError("why")

    async def handle_async(payload: Any) -> None:
        raise ValueError("why")

    def text() -> str | None:
        with rota.open("memory://") as store:
            worker = rota.Worker(store)
            worker.queue("q")(handle_async if color == "async" else handle)
            queue = store.queue("q", backoff_base=1000)
            id = queue.enqueue(1)
            run = running(worker)
            until(lambda: worker.health().sources[0].retried)
            run.stop()
            record = queue.get_job(id)
            assert record is not None
            return record.last_error

    without = text()
    with sdk(monkeypatch):
        assert text() == without


def test_many_at_once_keep_their_own_spans(otel: Telemetry, running: Start) -> None:
    """Tasks on one loop and threads beside each other."""
    seen: dict[tuple[str, int], set[tuple[int, int]]] = {}
    with rota.open("memory://") as store:
        worker = rota.Worker(store)

        @worker.queue("a", concurrency=20)
        async def on_loop(job: rota.AsyncJob) -> None:
            for _ in range(3):
                seen.setdefault(("a", job.id), set()).add(current())
                await asyncio.sleep(0.001)

        @worker.queue("s", concurrency=5)
        def in_thread(job: rota.Job) -> None:
            for _ in range(3):
                seen.setdefault(("s", job.id), set()).add(current())
                time.sleep(0.001)

        store.queue("a").enqueue_many(range(40))
        store.queue("s").enqueue_many(range(40))
        run = running(worker)
        until(lambda: [source.acked for source in worker.health().sources] == [40, 40])
        run.stop()
    spans = {
        (span.attributes["messaging.destination.name"], int(span.attributes["messaging.message.id"])): {ids(span)}
        for name in ("process a", "process s")
        for span in otel.spans(name)
    }
    assert len(spans) == 80
    assert seen == spans
