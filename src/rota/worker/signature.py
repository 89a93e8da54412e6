"""What a handler takes, from its signature: the handle (job or lease), the payload, or both; and a transaction."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

SourceKind = Literal["queue", "transport"]

_NAMES: dict[SourceKind, str] = {"queue": "job", "transport": "lease"}
_HANDLES = ("Job", "AsyncJob", "Lease", "AsyncLease")
_TRANSACTIONS = ("Transaction", "AsyncTransaction")
_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Taken(NamedTuple):
    """How to call a handler with a handle (and a transaction), and what its signature says."""

    invoke: Callable[..., Any]
    is_async: bool
    takes_handle: bool
    takes_payload: bool
    payload_type: Any
    """The annotation of the payload, None where there is none."""


def read(function: Callable[..., Any], kind: SourceKind, *, transactional: bool = False) -> Taken:
    """Read a handler's signature. Raises ``TypeError`` for one the worker cannot call, saying why.

    Per parameter: annotated with a handle's type, or named ``job`` or ``lease``: the handle; annotated with a
    transaction's type, or named ``tx``: the transaction; else: the payload. A parameter with a default that is neither
    handle nor transaction keeps its default.
    """
    label = label_of(function)
    if not callable(function):
        raise TypeError(f"a handler must be a function or another callable, got {function!r}")
    called = _called(function)
    is_async = inspect.iscoroutinefunction(called)
    if inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        raise TypeError(f"{label} is a generator function: its body would never run; return instead of yielding")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise TypeError(f"{label} cannot be a handler, its signature is not known: {error}") from None
    hints = _hints(called)
    handles, payloads, transactions = [], [], []
    for parameter in parameters:
        annotation = _without_none(hints.get(parameter.name, parameter.annotation))
        handle = _handle_type(annotation)
        if handle is not None:
            _check_handle(label, parameter.name, handle, kind, is_async)
        if parameter.kind in _STARRED:
            raise TypeError(f"{label} takes {parameter}: name what it takes, the payload or the {_NAMES[kind]}")
        transaction = _transaction_type(annotation)
        if transaction is not None or parameter.name == "tx":
            _check_transaction(label, parameter.name, transaction, is_async=is_async, transactional=transactional)
            transactions.append(parameter)
        elif handle is not None or parameter.name in _NAMES.values():
            handles.append(parameter)
        elif parameter.default is inspect.Parameter.empty:
            payloads.append(parameter)
    for found, what in ((handles, _NAMES[kind]), (payloads, "payload")):
        if len(found) > 1:
            names = ", ".join(parameter.name for parameter in found)
            raise TypeError(
                f"{label} takes the {what} more than once ({names}); it gets the payload, and the "
                f"{_NAMES[kind]} in a parameter of that name or annotated as rota.{_expected(kind, is_async)}"
            )
    if len(transactions) > 1:
        raise TypeError(f"{label} takes the transaction more than once: {', '.join(one.name for one in transactions)}")
    if transactional and not transactions:
        raise TypeError(
            f"{label} is transactional and takes no transaction, so nothing it does would be in it: add a parameter tx"
        )
    if not handles and not payloads and len(parameters) > len(transactions):
        raise TypeError(f"{label} has defaults for all it takes: leave out the default of its payload")
    payload_type = None
    if payloads:
        annotation = hints.get(payloads[0].name, payloads[0].annotation)
        payload_type = None if annotation is inspect.Parameter.empty else annotation
    invoke = _invoke(function, handles, payloads, transactions, kind)
    return Taken(invoke, is_async, bool(handles), bool(payloads), payload_type)


def label_of(function: Any) -> str:
    """A handler's name for people."""
    inner = function.func if isinstance(function, functools.partial) else function
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def _called(function: Any) -> Any:
    """What really runs: under partials, of a callable object its ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _hints(called: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(called))
    except Exception:
        # A name that exists for the type checker only; what is left are texts.
        return {}


def _without_none(annotation: Any) -> Any:
    """The type itself of one that may be None, as parameters with a default of None are annotated."""
    if isinstance(annotation, str):
        parts = [part.strip() for part in annotation.strip("'\" ").split("|")]
        return "|".join(part for part in parts if part != "None")
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        types_left = [one for one in typing.get_args(annotation) if one is not types.NoneType]
        return types_left[0] if len(types_left) == 1 else annotation
    return annotation


def _handle_type(annotation: Any) -> str | None:
    """The name of the handle's type an annotation stands for, or None."""
    if isinstance(annotation, str):
        name = annotation.strip("'\" ").rpartition(".")[2]
        return name if name in _HANDLES else None
    if isinstance(annotation, type) and annotation.__name__ in _HANDLES and annotation.__module__.startswith("rota."):
        return annotation.__name__
    return None


def _transaction_type(annotation: Any) -> str | None:
    """The name of the transaction's type an annotation stands for, or None: applications have transactions too."""
    if isinstance(annotation, str):
        module, _, name = annotation.strip("'\" ").rpartition(".")
        return name if name in _TRANSACTIONS and module.partition(".")[0] == "rota" else None
    if isinstance(annotation, type) and annotation.__name__ in _TRANSACTIONS:
        return annotation.__name__ if annotation.__module__.startswith("rota.") else None
    return None


def _check_transaction(label: str, name: str, found: str | None, *, is_async: bool, transactional: bool) -> None:
    if not transactional:
        raise TypeError(f"{label} takes a transaction ({name}): it gets one if it is decorated with transactional=True")
    expected = "AsyncTransaction" if is_async else "Transaction"
    if found is not None and found != expected:
        color = "an async" if is_async else "a sync"
        raise TypeError(
            f"{label} is {color} handler, so its parameter {name} must be rota.{expected}, not rota.{found}"
        )


def _expected(kind: SourceKind, is_async: bool) -> str:
    return ("Async" if is_async else "") + _NAMES[kind].capitalize()


def _check_handle(label: str, name: str, found: str, kind: SourceKind, is_async: bool) -> None:
    expected = _expected(kind, is_async)
    if found != expected:
        color = "an async" if is_async else "a sync"
        raise TypeError(
            f"{label} is {color} handler of a {kind}, so its parameter {name} must be rota.{expected}, not rota.{found}"
        )


def _invoke(
    function: Callable[..., Any],
    handles: list[inspect.Parameter],
    payloads: list[inspect.Parameter],
    transactions: list[inspect.Parameter],
    kind: SourceKind,
) -> Callable[..., Any]:
    """A callable of one argument, the handle, or two, with the transaction; the usual signatures at no cost."""
    by_name = [one.name for one in (*handles, *payloads, *transactions) if one.kind is _BY_NAME or one in transactions]
    jobs = kind == "queue"
    if not by_name and not handles and not payloads:
        return lambda handle: function()
    if not by_name and not payloads:
        return function
    if not by_name and not handles:
        return (lambda handle: function(handle.payload)) if jobs else (lambda handle: function(handle.event))

    def value(parameter: inspect.Parameter, handle: Any, tx: Any) -> Any:
        if parameter in transactions:
            return tx
        if parameter in handles:
            return handle
        return handle.payload if jobs else handle.event

    passed = [*handles, *payloads, *transactions]
    taken = [one for one in inspect.signature(function).parameters.values() if one in passed]

    def invoke(handle: Any, tx: Any = None) -> Any:
        # A parameter left out keeps its default, so all that can be are named.
        positional = [value(one, handle, tx) for one in taken if one.kind is inspect.Parameter.POSITIONAL_ONLY]
        named = {one.name: value(one, handle, tx) for one in taken if one.kind is not inspect.Parameter.POSITIONAL_ONLY}
        return function(*positional, **named)

    return invoke
