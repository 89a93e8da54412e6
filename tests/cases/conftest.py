"""Stores for the cases: every engine of this stage, both colours, a clock moved by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import ManualClock
from rota.testing.colours import Colour

_names = itertools.count()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine's name."""
    return str(request.param)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """Where the SQLite store of this test lives."""
    return tmp_path / "case.db"


@pytest.fixture
def url(engine: str, sqlite_file: Path, request: pytest.FixtureRequest) -> str:
    """A store of this test alone; opened twice it is the same one."""
    if engine == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    # What these tests show does not hang on power cuts, so they do not wait for the disk.
    sqlite = f"sqlite:///{sqlite_file}?durability=normal"
    return sqlite if engine == "sqlite" else f"memory://case-{next(_names)}?codec=json"


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
