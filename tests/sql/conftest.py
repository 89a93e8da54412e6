"""A database with the schema and nothing in it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.engines.sqlite.connecting import bring_up_to_date, connect, prepare_file


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = str(tmp_path / "rota.db")
    prepare_file(path, True)
    connection = connect(path, "normal", time.monotonic() + 5)
    bring_up_to_date(connection, path, time.monotonic() + 5)
    yield connection
    connection.close()
