"""The conformance suite on the PostgreSQL engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.testing import tck


class TestPostgreSQL(tck.Conformance):
    durable = True

    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str) -> None:
        self.url = postgres_url

    def open(self, **options: Any) -> rota.Store:
        return rota.open(self.url, **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(self.url, **options)


class TestPostgreSQLPrepared(tck.TransportLeases, tck.QueueHandles, tck.QueueClaims):
    """prepare=True changes how statements are sent, in a schema of another name; nothing else."""

    durable = True

    @pytest.fixture(autouse=True)
    def _database(self, empty_postgres_url: str) -> None:
        self.url = empty_postgres_url

    def open(self, **options: Any) -> rota.Store:
        return rota.open(self.url, prepare=True, schema="other", migrate=True, **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(self.url, prepare=True, schema="other", migrate=True, **options)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
class TestPostgreSQLIsolation(tck.TransportLeases, tck.QueueHandles):
    """A database whose transactions are stricter by default behaves the same."""

    durable = True

    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str, isolation: str, alter_database: Callable[[str, str], None]) -> None:
        alter_database(postgres_url, f"SET default_transaction_isolation = '{isolation}'")
        self.url = postgres_url

    def open(self, **options: Any) -> rota.Store:
        return rota.open(self.url, **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(self.url, **options)
