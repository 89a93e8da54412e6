"""The PostgreSQL engine: many threads, processes and machines on one database."""

from __future__ import annotations

from collections.abc import Callable

from rota.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine", "open_postgres"]


def open_postgres(
    location: str,
    query: dict[str, str],
    *,
    now: Callable[[], int] | None,
    schema: str = "rota",
    migrate: bool = False,
    create: bool = False,
    notify: bool = True,
    prepare: bool = False,
    pool_size: int = 10,
    connect_timeout: float = 5.0,
    busy_timeout: float = 30.0,
    listen_url: str | None = None,
) -> PostgresEngine:
    """Open the schema in a database: ``location`` and ``query`` are the URL's, without Rota's own options.

    ``now`` overrides the server's clock. ``migrate`` brings the schema up to date, ``create`` makes it where there is
    none. ``busy_timeout`` is how many seconds a verb waits for one of the ``pool_size`` connections.

    Raises ``EngineUnavailable`` (not reached, too old, no right), ``SchemaMismatch`` or ``ValueError`` (not a URL).
    """
    return PostgresEngine(
        location,
        query,
        now=now,
        schema=schema,
        migrate=migrate,
        create=create,
        notify=notify,
        prepared=prepare,
        pool_size=pool_size,
        connect_timeout=connect_timeout,
        busy_timeout=busy_timeout,
        listen_url=listen_url,
    )
