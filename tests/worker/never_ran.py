"""Handlers that look plain and whose bodies do not run when they are called, for a worker's child too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as many are written: what it makes does not show that it returns a coroutine."""

    @functools.wraps(function)
    def inner(payload: Any) -> Any:
        return function(payload)

    return inner


class Request:
    """What some libraries return instead of a coroutine."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


@plainly
async def coroutine(payload: Any) -> None: ...


@plainly
def generator(payload: Any) -> Any:
    yield payload


@plainly
async def async_generator(payload: Any) -> Any:
    yield payload


@plainly
def awaitable(payload: Any) -> Request:
    return Request()


PLAIN: dict[str, Callable[..., Any]] = {
    "coroutine": coroutine,
    "generator": generator,
    "async_generator": async_generator,
    "awaitable": awaitable,
}


class LoadsNowhere:
    """A result that can be sent and not received."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))


def result_that_loads_nowhere(payload: Any) -> Any:
    return LoadsNowhere()
