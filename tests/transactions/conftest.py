"""Each kind of connection, on each engine it leads to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import rota

from .lenders import DROP, ON_POSTGRES, ON_SQLITE, TABLE, Lender
from .workings import Place

KINDS = [("sqlite", lender) for lender in ON_SQLITE] + [("postgresql", lender) for lender in ON_POSTGRES]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A store with a table of the caller's own beside it."""
    if engine == "sqlite":
        path = tmp_path / "store.db"
        found = f"sqlite:///{path}"
        rota.open(found).close()
        with sqlite3.connect(path) as connection:
            connection.execute(TABLE)
        connection.close()
        return found
    found = str(request.getfixturevalue("postgres_url"))
    with psycopg.connect(found) as other:
        other.execute(DROP)
        other.execute(TABLE)
    return found


@pytest.fixture
def place(url: str, lender: type[Lender]) -> Iterator[Place]:
    """A store and a lender's connection to its database."""
    with Place(url, lender) as place:
        yield place


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lender" in metafunc.fixturenames:
        kinds = [pytest.param(*kind, id=f"{kind[0]}-{kind[1].__name__}") for kind in KINDS]
        metafunc.parametrize(("engine", "lender"), kinds, indirect=["engine"])
