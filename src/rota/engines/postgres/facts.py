"""What ``rota doctor`` prints about a server and its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from rota.engines.postgres import migrating

if TYPE_CHECKING:
    from rota.engines.postgres.engine import PostgresEngine

_SETTINGS = (
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "default_transaction_isolation",
    "server_encoding",
    "max_connections",
)


def gather(engine: PostgresEngine, connection: psycopg.Connection) -> dict[str, Any]:
    """The facts; the caller holds the connection."""
    try:
        settings: dict[str, str] = dict(
            connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", (list(_SETTINGS),))
        )
        row = connection.execute(
            "SELECT pg_is_in_recovery(), current_user, pg_database_size(current_database()), (SELECT"
            " coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()),"
            " coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)"
        ).fetchone()
        found = migrating.version(connection, engine.address.schema)
    except psycopg.Error as error:
        raise engine.errors.refused(error) from None
    assert row is not None
    version = connection.pgconn.server_version
    return {
        "engine": "postgresql",
        "place": engine.place,
        "postgresql_version": f"{version // 10_000}.{version % 10_000}",
        "libpq_version": psycopg.pq.version(),
        "psycopg_version": psycopg.__version__,
        "psycopg_implementation": psycopg.pq.__impl__,
        "role": row[1],
        "encrypted": bool(row[4]),
        "standby": bool(row[0]),
        "schema": engine.address.schema,
        "schema_version": found.found,
        "newest_schema_version": migrating.NEWEST,
        "database_bytes": row[2],
        "oldest_transaction_seconds": round(row[3], 3),
        "clock_ahead_seconds": round(engine.clock_ahead / 1_000_000, 3),
        "notify": engine.notifies,
        "listening": engine.listening,
        **{name: settings.get(name, "?") for name in _SETTINGS},
    }
