"""The conformance suite on the PostgreSQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from postgres.databases import Databases
from postgres.server import Server
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


@pytest.fixture(scope="module")
def other_databases(postgres_server: Server) -> Iterator[Databases]:
    databases = Databases(postgres_server, "other")
    yield databases
    databases.close()


class TestPostgreSQLPrepared(tck.TransportLeases, tck.QueueHandles, tck.QueueClaims):
    """prepare=True changes how statements are sent, in a schema of another name; nothing else."""

    durable = True

    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: Server, other_databases: Databases) -> Iterator[None]:
        name = other_databases.take()
        self.url = postgres_server.dsn(name)
        yield
        other_databases.give(name)

    def open(self, **options: Any) -> rota.Store:
        return rota.open(self.url, prepare=True, schema="other", **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(self.url, prepare=True, schema="other", **options)


class TestPostgreSQLIsolation(tck.TransportLeases, tck.QueueHandles):
    """A database whose transactions are as strict as can be by default behaves the same."""

    durable = True

    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str, alter_database: Callable[[str, str], None]) -> None:
        alter_database(postgres_url, "SET default_transaction_isolation = 'serializable'")
        self.url = postgres_url

    def open(self, **options: Any) -> rota.Store:
        return rota.open(self.url, **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(self.url, **options)
