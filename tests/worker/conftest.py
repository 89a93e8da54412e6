"""Stores and running workers for the tests of the worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .running import Running

_names = itertools.count()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine's name."""
    return str(request.param)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """Where the SQLite store of this test lives."""
    return tmp_path / "worker.db"


@pytest.fixture
def url(engine: str, sqlite_file: Path, request: pytest.FixtureRequest) -> str:
    """A store of this test alone; opened twice it is the same one."""
    if engine == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return (
        f"sqlite:///{sqlite_file}?durability=normal" if engine == "sqlite" else f"memory://w-{next(_names)}?codec=json"
    )


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
