"""What a worker was told to work on: its queues and transports, and their handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, cast

from rota import names, units
from rota.codecs import Codec, JsonCodec
from rota.errors import PayloadError
from rota.facade.opening import check_codec
from rota.facade.transports import OptionChanges
from rota.units import Duration
from rota.worker import signature
from rota.worker.outcomes import ran
from rota.worker.signature import SourceKind

if TYPE_CHECKING:
    from rota.worker.sources import Held

DEFAULT_CONCURRENCY = 10

# What a worker cannot say any more: it is on the job already (Q1).
_STAMPED = ("max_attempts", "backoff_base", "dead_letter_retention", "keep_done", "key_ttl")
_EACH_JOBS = ("max_attempts", "delay", "run_at", "priority", "expires", "key", "headers")

Runs = Literal["loop", "thread", "process", "command"]


class Executor(Protocol):
    """Handles items by something that is no Python function and can be made to end: a command.

    ``handle`` is called in a thread of its own for each item, and must end soon after the item's ``why`` was set. It
    returns for an ack, raises what a handler may raise, or ``OutsideError`` with the item's error text.
    """

    label: str
    last_words: float
    """So long what it runs may take to end, seconds."""

    def handle(self, held: Held) -> None: ...

    def kill(self, held: Held) -> None:
        """End what runs for this item now. From any thread; quiet when nothing runs."""


def check_name(name: str, kind: SourceKind) -> None:
    """Raises what ``names.name`` raises; to a decorator that was written without its name, what to write."""
    if callable(name):
        said = signature.label_of(name)
        raise TypeError(
            f'the decorator takes the name of a {kind}, as in @worker.{kind}("name"), got the function {said}'
        )
    names.name(name, f"{kind} name")


class HandlerOptions(TypedDict, total=False):
    """How a handler runs, of whatever."""

    timeout: Duration | None
    processes: bool
    transactional: bool
    cancel_on_lost: bool
    codec: Codec | None


class TransportHandlerOptions(HandlerOptions, OptionChanges, total=False):
    """The same, and what belongs to its transport (T11)."""


def split(options: TransportHandlerOptions) -> tuple[HandlerOptions, dict[str, Any]]:
    """What says how the handler runs, and the rest."""
    handling = {option: value for option, value in options.items() if option in HandlerOptions.__annotations__}
    return cast(HandlerOptions, handling), {name: value for name, value in options.items() if name not in handling}


def check_handling(kind: SourceKind, options: HandlerOptions) -> None:
    """``TypeError`` for an option no handler has; it says where one that jobs have is to be given."""
    for option in options:
        if option in _STAMPED:
            raise TypeError(
                f"{option} is no option of a handler: it is stamped on the jobs when they are enqueued, so give it to "
                f"store.queue(…, {option}=…)" + (f" or enqueue(…, {option}=…)" if option in _EACH_JOBS else "")
            )
        if option in _EACH_JOBS:
            raise TypeError(f"{option} is no option of a handler, but of each job: give it to enqueue(…, {option}=…)")
        if option not in HandlerOptions.__annotations__:
            known = ", ".join(("concurrency", "visibility", *HandlerOptions.__annotations__))
            raise TypeError(f"{option} is no option of a {kind}'s handler, which are: {known}")


class Handler:
    """A function, or an executor in its place, with what was said of it."""

    __slots__ = (
        "cancel_on_lost",
        "codec",
        "executor",
        "function",
        "invoke",
        "label",
        "runs",
        "takes_payload",
        "timeout",
        "transactional",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        kind: SourceKind,
        *,
        timeout: Duration | None = None,
        processes: bool = False,
        cancel_on_lost: bool = True,
        transactional: bool = False,
        codec: Codec | None = None,
        executor: Executor | None = None,
    ) -> None:
        taken = signature.read(function, kind, transactional=transactional)
        self.transactional = transactional
        self.executor = executor
        self.function = function
        self.label = signature.label_of(function)
        self.invoke = taken.invoke if taken.is_async else _checked(taken.invoke, self.label)
        self.takes_payload = taken.takes_payload
        self.timeout = None if timeout is None else units.seconds(units.positive(timeout, "timeout"))
        self.cancel_on_lost = cancel_on_lost
        self.codec = check_codec(codec) or _inferred(taken.payload_type)
        self.runs: Runs = "loop" if taken.is_async else "process" if processes else "thread"
        if executor is not None:
            self.label, self.runs = executor.label, "command"
        if processes and taken.is_async:
            raise TypeError(f"{self.label} is async, and processes=True is for plain functions")
        if processes and transactional:
            raise TypeError(f"{self.label} runs in a process of its own, where no transaction of the worker can be had")
        if processes and taken.takes_handle:
            raise TypeError(f"{self.label} runs in a process of its own, where only its payload can be had, no handle")
        if processes and "<" in getattr(function, "__qualname__", ""):
            # A child finds it by its module and name; else every try would fail, and its jobs would die.
            raise TypeError(
                f"{self.label} runs in a process of its own, which imports it: define it at the top level of a module"
            )

    @property
    def ends_for_sure(self) -> bool:
        """Whether what it runs can be made to end."""
        return self.runs in ("process", "command")


def _checked(invoke: Callable[..., Any], label: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return ran(label, invoke(*arguments))

    return call


def _inferred(payload_type: Any) -> Codec | None:
    """A payload annotated with a dataclass, a msgspec Struct or a pydantic model needs no codec to be named (P3)."""
    if not isinstance(payload_type, type) or not any(
        hasattr(payload_type, mark)
        for mark in ("__dataclass_fields__", "__struct_fields__", "__pydantic_core_schema__")
    ):
        return None
    return AnnotatedCodec(payload_type)


class AnnotatedCodec:
    """Reads payloads as the annotation says. Results may be that too, but are usually something else: plain JSON."""

    def __init__(self, payload_type: Any) -> None:
        from rota.typed import TypedCodec

        self._typed = TypedCodec(payload_type)
        self.decode = self._typed.decode

    def encode(self, obj: Any) -> str:
        """Text of a result. Raises ``PayloadError`` when it is neither."""
        try:
            return JsonCodec().encode(obj)
        except PayloadError as error:
            try:
                return self._typed.encode(obj)
            except PayloadError:
                raise error from None


class SourceSpec:
    """One queue or transport, as its decorators describe it together."""

    def __init__(self, kind: SourceKind, name: str) -> None:
        self.kind = kind
        self.name = names.name(name, f"{kind} name")
        self.label = f"{kind}:{name}"
        self.default: Handler | None = None
        self.tasks: dict[str, Handler] = {}
        self.choose: Callable[[str], str | None] | None = None
        """Says which of the tasks' handlers a job's name stands for, None for none; without it the name itself does."""
        self._said: dict[str, tuple[Any, str]] = {}

    def say(self, who: str, **options: Any) -> None:
        """Note options; None says nothing. ``ValueError`` where two handlers say different things."""
        for option, value in options.items():
            if value is None:
                continue
            known, by = self._said.setdefault(option, (value, who))
            if known != value:
                raise ValueError(
                    f"{self.label}: {who} says {option}={value!r}, {by} said {option}={known!r}: "
                    "its handlers share it, so say it once or say the same"
                )

    def option(self, option: str, default: Any = None) -> Any:
        """What was said of an option."""
        return self._said[option][0] if option in self._said else default

    @property
    def handlers(self) -> list[Handler]:
        """All its handlers."""
        return [*([self.default] if self.default is not None else []), *self.tasks.values()]

    def handler_of(self, name: str | None) -> Handler | None:
        """Who handles the jobs of this name, if anybody."""
        task = name if self.choose is None or name is None else self.choose(name)
        return self.default if task is None else self.tasks.get(task, self.default)

    @property
    def concurrency(self) -> int:
        """How many of its items are handled at once."""
        number: int = self.option("concurrency", DEFAULT_CONCURRENCY)
        return number


class Registry:
    """The sources of one worker, in the order they were named."""

    def __init__(self) -> None:
        self.sources: dict[tuple[SourceKind, str], SourceSpec] = {}
        self.changes = 0
        """How often a handler was added."""

    def add(
        self,
        kind: SourceKind,
        name: str,
        function: Callable[..., Any],
        task: str | None,
        handler_options: dict[str, Any],
        source_options: dict[str, Any],
    ) -> None:
        """Register a handler. Nothing is changed when it is refused."""
        handler = Handler(function, kind, **handler_options)
        spec = self.sources.get((kind, name)) or SourceSpec(kind, name)
        taken = spec.default if task is None else spec.tasks.get(task)
        if taken is not None:
            what = "" if task is None else f" for the name {task!r}"
            raise ValueError(f"{spec.label} has the handler {taken.label}{what} already, got {handler.label}")
        spec.say(handler.label, **checked(source_options))
        if task is None:
            spec.default = handler
        else:
            spec.tasks[task] = handler
        self.sources[kind, spec.name] = spec
        self.changes += 1


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a source, checked; durations in microseconds."""
    values = dict(options)
    if values.get("concurrency") is not None:
        values["concurrency"] = units.integer(values["concurrency"], "concurrency", 1, 100_000)
    if values.get("visibility") is not None:
        values["visibility"] = units.positive(values["visibility"], "visibility")
    if values.get("min_priority") is not None:
        values["min_priority"] = units.priority(values["min_priority"], "min_priority")
    share = values.get("priority_share")
    if share is not None:
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise TypeError(f"priority_share must be a number from 0 to 1, got {share!r}")
        if not 0 <= share <= 1:
            raise ValueError(f"priority_share must be a number from 0 to 1, got {share!r}")
        if values.get("min_priority") is None:
            raise ValueError("priority_share is the share of claims that try min_priority first: name min_priority too")
    return values
