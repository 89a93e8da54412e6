"""Engines on a file of the test's own, under a clock that it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.engines.sqlite import SqliteEngine, open_sqlite

START = 1_700_000_000_000_000
SECOND = 1_000_000


class Hands:
    """A clock in microseconds."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "rota.db")


@pytest.fixture
def opening(path: str, clock: Hands) -> Iterator[Callable[..., SqliteEngine]]:
    engines: list[SqliteEngine] = []

    def open_it(**options: Any) -> SqliteEngine:
        options = {"now": clock, "durability": "normal", "busy_timeout": 0.2} | options
        engines.append(open_sqlite(path, url=f"sqlite:///{path}", **options))
        return engines[-1]

    yield open_it
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(opening: Callable[..., SqliteEngine]) -> SqliteEngine:
    return opening()
