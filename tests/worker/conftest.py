"""Stores and running workers for the tests of the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .running import Running


@pytest.fixture
def store(url: str) -> Iterator[rota.Store]:
    """A store on the real clock."""
    with rota.open(url) as store:
        yield store


@pytest.fixture
def clock() -> ManualClock:
    """The clock of ``timeless``."""
    return ManualClock()


@pytest.fixture
def timeless(url: str, clock: ManualClock) -> Iterator[rota.Store]:
    """A store whose time the test moves."""
    with rota.open(url, clock=clock) as store:
        yield store


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    """Starts workers in threads of their own; stopped after the test."""
    started: list[Running] = []

    def start(worker: rota.Worker, **options: Any) -> Running:
        started.append(Running(worker, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop(now=True)


@pytest.fixture(params=["queue", "transport"])
def kind(request: pytest.FixtureRequest) -> str:
    """What a handler is for."""
    return str(request.param)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    """How a handler is written."""
    return str(request.param)
