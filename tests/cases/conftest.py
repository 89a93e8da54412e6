"""Stores for the cases: every engine of this stage, both colours, a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from rota.testing import ManualClock
from rota.testing.colours import Colour


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """The facade; wrapped so that both are used in the same style."""
    colour = Colour(request.param)
    try:
        yield colour
    finally:
        colour.close()


@pytest.fixture
def opener(colour: Colour, url: str) -> Callable[..., Any]:
    """Opens the store in this colour; closed after the test."""
    return lambda **options: colour.open(
        lambda **rest: rota.open(url, **rest), lambda **rest: rota.aopen(url, **rest), **options
    )


@pytest.fixture
def clock() -> ManualClock:
    """The clock of ``store``."""
    return ManualClock()


@pytest.fixture
def store(opener: Callable[..., Any], clock: ManualClock) -> Any:
    """A store on ``clock``, in both colours."""
    return opener(clock=clock)


@pytest.fixture
def plain(url: str, clock: ManualClock) -> Iterator[Any]:
    """A store on ``clock``, sync only: for what is large, or has nothing to do with the facade."""
    with rota.open(url, clock=clock) as store:
        yield store
