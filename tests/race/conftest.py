"""How long the races last, on which seeds, and on which stores."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

_names = itertools.count()


@pytest.fixture
def span() -> Callable[[float], float]:
    """Scales a duration in seconds: ``ROTA_RACE_SECONDS=10`` makes each race ten times as long."""
    factor = float(os.environ.get("ROTA_RACE_SECONDS", "1"))
    return lambda seconds: seconds * factor


@pytest.fixture
def rounds() -> Callable[[int], int]:
    """Scales a number of rounds likewise."""
    factor = float(os.environ.get("ROTA_RACE_SECONDS", "1"))
    return lambda number: max(1, round(number * factor))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    """Fixed by the test's name, or ``ROTA_RACE_SEED``; printed, so that a failure shows it."""
    value = os.environ.get("ROTA_RACE_SEED", request.node.name)
    print(f"seed: {value}")
    return value


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine's name."""
    return str(request.param)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite store in a file of its own."""
    return f"sqlite:///{tmp_path / 'race.db'}"


@pytest.fixture
def url(engine: str, sqlite_url: str, request: pytest.FixtureRequest) -> str:
    """A store of this test alone; opened twice it is the same one."""
    if engine == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return sqlite_url if engine == "sqlite" else f"memory://race-{next(_names)}?codec=json"
