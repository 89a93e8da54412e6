"""What a handler takes, and what is refused when it is named."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import Any, Optional

import pytest

import rota


@dataclass
class Order:
    number: int


def one(worker: rota.Worker, payload: Any = "p", *, codec: Any = None) -> None:
    """Work one job off."""
    with rota.open("memory://") as store:
        store.queue("q", codec=codec).enqueue(payload)
        assert worker.bind(store).step()
        assert store.queue("q").stats().pending == store.queue("q").stats().dead == 0
        worker.close()


class TestWhatItTakes:
    def check(self, function: Any, expected: Any, payload: Any = "p") -> None:
        got: list[Any] = []
        worker = rota.Worker()
        function = function(got)
        assert worker.queue("q")(function) is function
        one(worker, payload)
        assert [
            [type(value).__mro__[1].__name__ if hasattr(value, "_claim") else value for value in each] for each in got
        ] == [expected]

    def test_payload(self) -> None:
        self.check(lambda got: lambda payload: got.append([payload]), ["p"])

    def test_job_by_name(self) -> None:
        self.check(lambda got: lambda job: got.append([job]), ["Job"])

    def test_both_in_any_order(self) -> None:
        self.check(lambda got: lambda job, what: got.append([job, what]), ["Job", "p"])
        self.check(lambda got: lambda what, job: got.append([what, job]), ["p", "Job"])

    def test_by_annotation(self) -> None:
        def make(got: list[Any]) -> Any:
            def handle(it: rota.Job, what: str) -> None:
                got.append([it, what])

            return handle

        self.check(make, ["Job", "p"])

    def test_annotation_of_an_async_handler(self) -> None:
        def make(got: list[Any]) -> Any:
            async def handle(it: rota.AsyncJob) -> None:
                got.append([it])

            return handle

        self.check(make, ["AsyncJob"])

    def test_text_annotation_that_cannot_be_resolved(self) -> None:
        def make(got: list[Any]) -> Any:
            def handle(it: rota.Job, other: NotHere) -> None:  # type: ignore[name-defined] # noqa: F821
                got.append([it, other])

            return handle

        self.check(make, ["Job", "p"])

    def test_keyword_only_positional_only_and_defaults(self) -> None:
        def make(got: list[Any]) -> Any:
            def handle(payload: Any, /, mode: int = 3, *, job: rota.Job, more: Any = None) -> None:
                got.append([payload, mode, job, more])

            return handle

        self.check(make, ["p", 3, "Job", None])

    def test_nothing(self) -> None:
        self.check(lambda got: lambda: got.append([]), [])

    def test_partial_method_and_callable_object(self) -> None:
        def base(got: list[Any], payload: Any) -> None:
            got.append([payload])

        class Thing:
            def __init__(self, got: list[Any]) -> None:
                self.got = got

            async def __call__(self, job: rota.AsyncJob) -> None:
                self.got.append([job])

            def method(self, payload: Any) -> None:
                self.got.append([payload])

        self.check(lambda got: functools.partial(base, got), ["p"])
        self.check(Thing, ["AsyncJob"])
        self.check(lambda got: Thing(got).method, ["p"])

    def test_typed_payload_by_its_annotation_and_by_a_codec(self) -> None:
        def make(got: list[Any]) -> Any:
            async def handle(order: Order) -> None:
                got.append([order])

            return handle

        self.check(make, [Order(5)], {"number": 5})
        got: list[Any] = []
        worker = rota.Worker()
        worker.queue("q", codec=rota.TypedCodec(Order))(lambda payload: got.append(payload))
        one(worker, Order(7), codec=rota.TypedCodec(Order))
        assert got == [Order(7)]

    def test_transport(self) -> None:
        got: list[Any] = []
        worker = rota.Worker()

        @worker.transport("t", max_deliveries=3)
        async def handle(event: Any, lease: rota.AsyncLease) -> None:
            got.append((event, lease.group_id))

        with rota.open("memory://") as store:
            store.transport("t").publish("g", "e")
            assert worker.bind(store).step()
            assert not worker.step()
            worker.close()
        assert got == [("e", "g")]


async def wants_sync(job: rota.Job) -> None: ...
def wants_async(job: rota.AsyncJob) -> None: ...
def wants_lease(lease: rota.Lease) -> None: ...
def two_payloads(one: int, two: int) -> None: ...
def starred(*args: Any) -> None: ...
def only_defaults(payload: Any = None) -> None: ...
def generator(payload: Any) -> Any:
    yield payload


async def async_generator(payload: Any) -> Any:
    yield payload


def two_jobs(job: rota.Job, other: rota.Job) -> None: ...


class TestRefusals:
    @pytest.mark.parametrize(
        ("function", "says"),
        [
            (wants_sync, "must be rota.AsyncJob, not rota.Job"),
            (wants_async, "must be rota.Job, not rota.AsyncJob"),
            (wants_lease, "must be rota.Job, not rota.Lease"),
            (two_payloads, "payload more than once"),
            (two_jobs, "job more than once"),
            (starred, "name what it takes"),
            (only_defaults, "leave out the default"),
            (generator, "generator function"),
            (async_generator, "generator function"),
            (5, "must be a function"),
        ],
        ids=lambda value: getattr(value, "__name__", None),
    )
    def test_signatures(self, function: Any, says: str) -> None:
        worker = rota.Worker()
        with pytest.raises(TypeError, match=says):
            worker.queue("q")(function)
        assert not worker._registry.sources

    def test_options_that_clash_name_both(self) -> None:
        worker = rota.Worker()
        worker.task("q", name="a", concurrency=4)(lambda payload: None)
        worker.task("q", name="b")(lambda payload: None)
        with pytest.raises(ValueError, match=r"concurrency=8.*concurrency=4"):
            worker.task("q", name="c", concurrency=8)(lambda payload: None)

    def test_second_handler(self) -> None:
        worker = rota.Worker()
        worker.queue("q")(wants_payload)
        with pytest.raises(ValueError, match=r"queue:q has the handler wants_payload already"):
            worker.queue("q")(lambda payload: None)
        worker.task("q")(wants_payload)
        with pytest.raises(ValueError, match="for the name 'wants_payload' already"):
            worker.task("q")(wants_payload)
        worker.transport("q")(wants_payload)

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"concurrency": 0}, ValueError),
            ({"concurrency": 1.5}, TypeError),
            ({"timeout": 0}, ValueError),
            ({"timeout": "1"}, TypeError),
            ({"visibility": -1}, ValueError),
            ({"codec": 5}, TypeError),
        ],
    )
    def test_numbers(self, options: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            rota.Worker().queue("q", **options)(lambda payload: None)

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"priority_share": 0.5}, ValueError),
            ({"priority_share": 1.5, "min_priority": 1}, ValueError),
            ({"priority_share": "x", "min_priority": 1}, TypeError),
            ({"min_priority": 2**40}, ValueError),
            ({"poison": "burn"}, ValueError),
            ({"colour": 1}, TypeError),
        ],
    )
    def test_transport_options(self, options: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            rota.Worker().transport("t", **options)(lambda event: None)

    @pytest.mark.parametrize("decorator", ["queue", "task"])
    @pytest.mark.parametrize(
        ("option", "says"),
        [
            (
                "max_attempts",
                r"stamped on the jobs .* store\.queue\(…, max_attempts=…\) or enqueue\(…, max_attempts=…\)",
            ),
            ("keep_done", r"stamped on the jobs .* store\.queue\(…, keep_done=…\)$"),
            ("delay", r"of each job: give it to enqueue\(…, delay=…\)"),
            (
                "min_priority",
                r"min_priority is no option of a queue's handler, which are: concurrency, visibility, timeout",
            ),
        ],
    )
    def test_options_of_others_are_refused_with_their_place(self, decorator: str, option: str, says: str) -> None:
        worker = rota.Worker()
        with pytest.raises(TypeError, match=says):
            getattr(worker, decorator)("q", **{option: 3})(lambda payload: None)
        assert not worker.sources

    def test_a_codec_is_no_class(self) -> None:
        class Static:
            @staticmethod
            def encode(obj: Any) -> str:
                return "x"

            @staticmethod
            def decode(text: str) -> Any:
                return text

        rota.Worker().queue("q", codec=Static)(lambda payload: None)
        with pytest.raises(TypeError, match=r"must be an instance, got the class .*: write JsonCodec\(…\)"):
            rota.Worker().queue("q", codec=rota.JsonCodec)(lambda payload: None)  # type: ignore[arg-type]

    def test_a_handle_that_may_be_none_is_the_handle(self) -> None:
        def one(payload: Any, it: rota.Job | None = None) -> None:
            seen.append(it)

        def other(it: Optional[rota.Job]) -> None:  # noqa: UP045
            seen.append(it)

        def not_resolved(payload: Any, it: rota.Job | None, more: Nowhere | None = None) -> None:  # type: ignore[name-defined] # noqa: F821
            seen.append(it)

        seen: list[Any] = []
        with rota.open("memory://") as store:
            worker = rota.Worker(store)
            for name, handler in (("a", one), ("b", other), ("c", not_resolved)):
                worker.queue(name)(handler)
                store.queue(name).enqueue(1)
            assert worker.drain() == 3
        assert len(seen) == 3
        assert all(isinstance(handle, rota.Job) for handle in seen)

    def test_processes(self) -> None:
        async def asynchronous(payload: Any) -> None: ...

        with pytest.raises(TypeError, match="for plain functions"):
            rota.Worker().queue("q", processes=True)(asynchronous)
        with pytest.raises(TypeError, match="only its payload"):
            rota.Worker().queue("q", processes=True)(lambda job: None)

        def local(payload: Any) -> None: ...

        for function in (local, lambda payload: None):
            with pytest.raises(TypeError, match="at the top level of a module"):
                rota.Worker().queue("q", processes=True)(function)

    def test_worker_without_store_or_handlers(self) -> None:
        for call in (lambda w: w.step(), lambda w: w.drain(), lambda w: w.run(), lambda w: asyncio.run(w.arun())):
            worker = rota.Worker()
            with pytest.raises(RuntimeError, match=r"no (store|handlers)"):
                call(worker)
            worker.queue("q")(lambda payload: None)
            with pytest.raises(RuntimeError, match="no store"):
                call(worker)

    def test_signals_check_their_arguments(self) -> None:
        for make, error in (
            (lambda: rota.Retry(delay="x"), TypeError),
            (lambda: rota.Retry(delay=float("nan")), ValueError),
            (lambda: rota.Snooze(-1), ValueError),
            (lambda: rota.Fail(reason=5), TypeError),
        ):
            with pytest.raises(error):
                make()


def wants_payload(payload: Any) -> None: ...


@pytest.mark.parametrize("decorator", ["queue", "task", "outbox", "transport"])
def test_a_decorator_without_its_name_is_refused_at_once(decorator: str) -> None:
    """It would take the function for the name, and the handler would never be registered."""
    kind = "transport" if decorator == "transport" else "queue"
    with pytest.raises(TypeError, match=rf'as in @worker.{kind}\("name"\), got the function wants_payload'):
        getattr(rota.Worker(), decorator)(wants_payload)


def test_what_is_no_store_is_refused() -> None:
    for make in (rota.Worker, rota.Worker().bind):
        with pytest.raises(TypeError, match="a URL or an opened store, got 5"):
            make(5)  # type: ignore[operator]
