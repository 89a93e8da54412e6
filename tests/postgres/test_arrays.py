"""Arrays written by hand arrive as they were."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postgres.server import Server
from rota.engines.postgres.arrays import numbers, texts

NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.one_of(
    st.none(),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",))),
    st.sampled_from(["", "NULL", "null", '"', "\\", "{", "}", ",", " a ", "\x1f", "\x1f\x1f", 'a"\\,b', "\n", "é\x1f"]),
)


@pytest.fixture(scope="module")
def connection(postgres_server: Server) -> psycopg.Connection:
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        yield connection


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(NUMBERS, max_size=6), st.lists(TEXTS, max_size=6))
def test_what_is_sent_arrives(connection: psycopg.Connection, some: Sequence[int], words: Sequence[str]) -> None:
    row = connection.execute("SELECT %s::bigint[], %s::text[]", (numbers(some), texts(words))).fetchone()
    assert row == (list(some), list(words))
