"""OpenTelemetry where items are stored: producer spans, their context in the headers, metrics; nothing without it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import rota

from .otel import Telemetry, api, ids, parent_of, sdk


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    with sdk(monkeypatch) as telemetry:
        yield telemetry


def attributes(**more: Any) -> dict[str, Any]:
    return {
        "messaging.system": "rota",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    } | {"messaging." + name.replace("__", "."): value for name, value in more.items()}


def send_all(store: rota.Store, facade: str) -> None:
    """One of each verb; batches of three."""
    items = [1, rota.Item(2, headers={"a": "b"}), 3]
    messages = [("g", 1), ("g", 2), ("h", 3)]
    if facade == "sync":
        store.queue("one").enqueue("p", headers={"mine": "x"})
        store.queue("many").enqueue_many(items)
        store.transport("tone").publish("g", "p", key="k")
        store.transport("tmany").publish_many(messages)
        return

    async def send() -> None:
        other = store.as_async()
        await other.queue("one").enqueue("p", headers={"mine": "x"})
        await other.queue("many").enqueue_many(items)
        await other.transport("tone").publish("g", "p", key="k")
        await other.transport("tmany").publish_many(messages)

    asyncio.run(send())


@pytest.mark.parametrize("facade", ["sync", "async"])
def test_every_verb_on_every_engine(store: rota.Store, otel: Telemetry, facade: str) -> None:
    from opentelemetry import trace

    with trace.get_tracer("app").start_as_current_span("request") as request:
        send_all(store, facade)
    assert [span.name for span in otel.spans()] == ["send one", "send many", "send tone", "send tmany", "request"]
    for span in otel.spans()[:-1]:
        assert span.kind is trace.SpanKind.PRODUCER
        assert ids(span.parent) == ids(request)
        assert span.status.is_unset
    one, many, tone, tmany = otel.spans()[:-1]

    job = store.queue("one").claim_one()
    assert job is not None
    assert dict(one.attributes) == attributes(destination__name="one", message__id=str(job.id))
    assert job.headers.keys() == {"mine", "traceparent"}
    assert parent_of(job.headers) == ids(one)

    jobs = store.queue("many").claim_batch("w", 5)
    assert dict(many.attributes) == attributes(destination__name="many", batch__message_count=3)
    assert [job.headers.keys() for job in jobs] == [{"traceparent"}, {"a", "traceparent"}, {"traceparent"}]
    assert {parent_of(job.headers) for job in jobs} == {ids(many)}

    lease = store.transport("tone").claim()
    assert lease is not None
    expected = attributes(destination__name="tone", message__id=str(lease.seq), rota__message__group="g")
    assert dict(tone.attributes) == expected
    assert parent_of(lease.headers) == ids(tone)

    messages = store.transport("tmany").peek("g") + store.transport("tmany").peek("h")
    assert dict(tmany.attributes) == attributes(destination__name="tmany", batch__message_count=3)
    assert [parent_of(message.headers) for message in messages] == [ids(tmany)] * 3

    sent = {key: point.value for key, point in otel.points("messaging.client.sent.messages").items()}
    assert sent == {("send", name, None): n for name, n in (("one", 1), ("many", 3), ("tone", 1), ("tmany", 3))}
    durations = otel.points("messaging.client.operation.duration")
    assert {key: point.count for key, point in durations.items()} == dict.fromkeys(sent, 1)
    assert all(0 < point.sum < 10 for point in durations.values())


def test_the_callers_context_is_current_again(store: rota.Store, otel: Telemetry) -> None:
    from opentelemetry import trace

    store.queue("q").enqueue(1)
    assert not trace.get_current_span().get_span_context().is_valid
    (span,) = otel.spans()
    assert span.parent is None


def test_headers_of_the_caller_are_never_overwritten(otel: Telemetry) -> None:
    own = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    with rota.open("memory://") as store:
        store.queue("q").enqueue(1, headers=own)
        store.queue("q").enqueue_many([rota.Item(1, headers=own)])
        store.transport("t").publish("g", 1, headers=own)
        assert [job.headers for job in store.queue("q").claim_batch("w", 5)] == [own, own]
        (message,) = store.transport("t").peek("g")
        assert message.headers == own


def test_a_dict_of_the_caller_is_not_changed(otel: Telemetry) -> None:
    given = {"mine": "x"}
    with rota.open("memory://") as store:
        store.queue("q").enqueue(1, headers=given)
    assert given == {"mine": "x"}


def test_memory_hands_out_the_very_object(otel: Telemetry) -> None:
    event = object()
    with rota.open("memory://") as store:
        store.transport("t").publish("g", event)
        lease = store.transport("t").claim()
        assert lease is not None
        assert lease.event is event
        assert "traceparent" in lease.headers


def test_baggage_and_tracestate_travel_along(otel: Telemetry) -> None:
    from opentelemetry import baggage, context

    token = context.attach(baggage.set_baggage("tenant", "a b"))
    try:
        with rota.open("memory://") as store:
            store.queue("q").enqueue(1)
            job = store.queue("q").claim_one()
            assert job is not None
            assert job.headers["baggage"] == "tenant=a+b"
    finally:
        context.detach(token)


def test_not_sampled_is_passed_on_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    with sdk(monkeypatch, ALWAYS_OFF) as otel, rota.open("memory://") as store:
        store.queue("q").enqueue(1)
        job = store.queue("q").claim_one()
        assert job is not None
        assert int(job.headers["traceparent"][-2:], 16) & 1 == 0
        assert otel.spans() == []


def test_what_the_store_raises_is_the_spans_error(otel: Telemetry) -> None:
    with rota.open("memory://?max_items=1&codec=json") as store:
        queue = store.queue("q")
        queue.enqueue(1)
        with pytest.raises(rota.EngineFull):
            queue.enqueue(2)
    span = otel.spans()[-1]
    assert not span.status.is_ok
    assert span.status.description.startswith("EngineFull: ")
    assert span.attributes["error.type"] == "rota.errors.EngineFull"
    assert [event.name for event in span.events] == ["exception"]
    key = ("send", "q", "rota.errors.EngineFull")
    assert otel.points("messaging.client.operation.duration")[key].count == 1


def test_refused_arguments_make_no_span(otel: Telemetry) -> None:
    with rota.open("memory://") as store:
        with pytest.raises(rota.PayloadError):
            store.queue("q").enqueue(object())
        with pytest.raises(TypeError):
            store.transport("t").publish_many([("g",)])  # type: ignore[list-item]
    assert otel.spans() == []


def test_the_api_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with api(monkeypatch), rota.open("memory://") as store:
        send_all(store, "sync")
        send_all(store, "async")
        assert [job.headers for job in store.queue("one").claim_batch("w", 5)] == [{"mine": "x"}] * 2
        assert {message.headers.get("traceparent") for message in store.transport("tmany").peek("g")} == {None}


def test_the_api_alone_passes_a_context_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a proxy's or caller's context was extracted and nobody here makes spans."""
    from opentelemetry import context, propagate

    headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    with api(monkeypatch), rota.open("memory://") as store:
        token = context.attach(propagate.extract(headers))
        try:
            store.queue("q").enqueue(1)
        finally:
            context.detach(token)
        job = store.queue("q").claim_one()
        assert job is not None
        assert job.headers == headers


def test_broken_telemetry_harms_nothing(
    otel: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry import propagate

    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(propagate, "inject", broken)
    with rota.open("memory://") as store:
        store.queue("q").enqueue(1)
        job = store.queue("q").claim_one()
        assert job is not None
        assert job.headers == {}
    assert [record.name for record in caplog.records] == ["rota.telemetry"]
    assert otel.one("send q").attributes["messaging.message.id"] == str(job.id)


_WITHOUT = """
import asyncio, sys, threading
import rota

async def main(store):
    other = store.as_async()
    await other.queue("q").enqueue(1)
    await other.queue("q").enqueue_many([1])
    await other.transport("t").publish("g", 1)
    await other.transport("t").publish_many([("g", 1)])

with rota.open("memory://") as store:
    store.queue("q").enqueue(1)
    store.queue("q").enqueue_many([1])
    store.transport("t").publish("g", 1)
    store.transport("t").publish_many([("g", 1)])
    asyncio.run(main(store))
    worker = rota.Worker(store)
    seen = []
    @worker.queue("q")
    async def on_job(job: rota.AsyncJob):
        seen.append(job.headers)
        if len(seen) == 8:
            worker.stop()
    @worker.transport("t")
    def on_message(lease):
        seen.append(lease.headers)
        if len(seen) == 8:
            worker.stop()
    assert worker.step()
    worker.run()
    print(seen, sorted(name for name in sys.modules if "opentelemetry" in name or "rota.telemetry." in name))
"""


def test_nothing_imports_opentelemetry_unless_the_application_does() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{[{}] * 8} []\n"


def test_an_opentelemetry_that_cannot_be_used() -> None:
    code = (
        "import sys, types, rota\n"
        "sys.modules['opentelemetry'] = types.ModuleType('opentelemetry')\n"
        "sys.modules['opentelemetry.trace'] = types.ModuleType('opentelemetry.trace')\n"
        "with rota.open('memory://') as store:\n"
        "    store.queue('q').enqueue_many([1, 2])\n"
        "    store.queue('q').enqueue(3)\n"
        "    print([job.headers for job in store.queue('q').claim_batch('w', 5)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[{}, {}, {}]\n"
    assert done.stderr.count("no OpenTelemetry: ") == 1
