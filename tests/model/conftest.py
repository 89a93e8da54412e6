"""PostgreSQL for the models: one database for the whole run."""

from __future__ import annotations

import pytest

from model.subjects import POSTGRES, engines


@pytest.fixture(scope="session", autouse=True)
def _postgres(request: pytest.FixtureRequest) -> None:
    if "postgres" in engines():
        server = request.getfixturevalue("postgres_server")
        POSTGRES.url = server.dsn(server.create_database())
