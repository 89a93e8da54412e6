"""Statements are read from their files as they stand there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rota.sql import blocks
from rota.sql.blocks import Blocks, repeated
from rota.sql.drive import Block, run


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blocks, "files", lambda package: tmp_path)

    def write(text: str) -> Blocks:
        (tmp_path / "some.sql").write_text(text)
        return Blocks("package", "some.sql")

    return write


def test_blocks_and_parts(file) -> None:
    found = file(
        "-- part: columns\na, b\n\n-- About it.\n-- name: get\nSELECT {columns}\nFROM t\n\n"
        "-- name: put\nDELETE FROM t;\n"
    )
    assert found.get == Block("get", "SELECT a, b\nFROM t", True)
    assert found.put == Block("put", "DELETE FROM t", False)
    assert list(found.all) == ["get", "put"]
    with pytest.raises(AttributeError, match="'drop'"):
        found.drop  # noqa: B018


def test_numbered_values_are_put_in_their_places(file) -> None:
    found = file("-- name: twice\nSELECT ?2, ?1, ?2\n")
    assert found.twice == Block("twice", "SELECT ?, ?, ?", True, (1, 0, 1))

    def op():
        return (yield found.twice, ("one", "two"))

    connection = sqlite3.connect(":memory:")
    assert run(op(), connection.cursor()) == [("two", "one", "two")]
    connection.close()


@pytest.mark.parametrize("text", ["-- name: a\nSELECT ?1, ?\n", "-- name: a\nSELECT 1\n-- name: a\nSELECT 2\n"])
def test_mistakes_are_refused(file, text: str) -> None:
    with pytest.raises(ValueError, match=r"some\.sql|mixes"):
        file(text)


def test_repeated_rows() -> None:
    block = Block("b", "INSERT INTO t SELECT x FROM (VALUES (0, ?)) AS each", False)
    assert repeated(block, 3) == Block(
        "b_3", "INSERT INTO t SELECT x FROM (VALUES (0, ?), (1, ?), (2, ?)) AS each", False
    )
