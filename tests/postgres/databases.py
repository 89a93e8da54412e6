"""Databases for one test after another: emptied, or made anew where more than rows changed."""

from __future__ import annotations

from typing import Any

import psycopg

import rota

from .server import Server

# Everything a test could have left behind but rows: definitions, rights, settings, the schema's version.
_SHAPE = """
SELECT md5(string_agg(one, '|' ORDER BY one)) FROM (
    SELECT concat_ws(' ', proname, prosrc, proconfig, proacl, provolatile) AS one
    FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', relname, relkind, relnatts, relacl, relowner, reloptions, relhastriggers, relchecks)
    FROM pg_class WHERE relnamespace >= 16384
    UNION ALL
    SELECT concat_ws(' ', nspname, nspacl, nspowner) FROM pg_namespace WHERE nspname !~ '^pg_'
    UNION ALL
    SELECT concat_ws(' ', setrole, setconfig)
    FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase WHERE datname = current_database()
    UNION ALL
    SELECT concat_ws(' ', datacl, datallowconn, datconnlimit) FROM pg_database WHERE datname = current_database()
    UNION ALL
    SELECT meta::text FROM {schema}.meta
) shape
"""
_TABLES = """
SELECT oid::regclass::text, pg_total_relation_size(oid) FROM pg_class
WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND relname <> 'meta'
"""
_REWIND = """
SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'S'
"""
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Deleting a test's few rows is quicker than truncating; many would slow the tests that come after.
_FEW = 2**20


class Databases:
    """Those of one server. ``take`` one for a test, ``give`` it back after it."""

    def __init__(self, server: Server, schema: str = "rota") -> None:
        self._server = server
        self._schema = schema
        self.template = server.create_database()
        rota.open(server.dsn(self.template), schema=schema, migrate=True).close()
        self._shape = server.execute(self._text(_SHAPE), self.template)
        self._spare: list[str] = []

    def take(self) -> str:
        """The name of a database with the schema and nothing in it."""
        return self._spare.pop() if self._spare else self._server.create_database(self.template)

    def give(self, name: str) -> None:
        """End its sessions; keep it for another test, or drop it."""
        try:
            self._empty(name)
        except psycopg.Error:
            self._server.drop_database(name)
        else:
            self._spare.append(name)

    def close(self) -> None:
        for name in (*self._spare, self.template):
            self._server.drop_database(name)

    def _empty(self, name: str) -> None:
        with psycopg.connect(self._server.dsn(name), autocommit=True) as connection:
            connection.execute(_END_SESSIONS)
            if connection.execute(self._text(_SHAPE)).fetchall() != self._shape:
                raise psycopg.DataError("not what it was")
            tables = connection.execute(self._text(_TABLES)).fetchall()
            names = [table for table, _ in tables]
            if sum(size for _, size in tables) > _FEW:
                connection.execute("TRUNCATE " + ", ".join(names))  # type: ignore[call-overload]
            else:
                connection.execute("; ".join(f"DELETE FROM {table}" for table in names))  # type: ignore[call-overload]
            connection.execute(self._text(_REWIND))

    def _text(self, template: str) -> Any:
        return template.replace("{schema}", self._schema)
