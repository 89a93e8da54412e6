"""The schema's versions: what is there, what is missing, and bringing it up to date.

Migrations are expand-then-contract: a process of the previous version keeps working beside the new one, so a database
may be newer than a process by as much as its ``compatible_from`` allows.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

import psycopg

from rota.engines.postgres.address import Address
from rota.engines.postgres.connecting import Connector
from rota.engines.postgres.failures import Translator
from rota.errors import EngineUnavailable, SchemaMismatch

# The oldest schema version whose processes work with the newest schema. Raise it when a migration contracts.
COMPATIBLE_FROM = 1

_BOOTSTRAP = """\
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.meta (
    one smallint PRIMARY KEY CHECK (one = 1),
    schema_version integer NOT NULL,
    compatible_from integer NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
_SET_VERSION = """\
INSERT INTO {schema}.meta (one, schema_version, compatible_from) VALUES (1, %d, %d)
ON CONFLICT (one) DO UPDATE SET schema_version = excluded.schema_version, compatible_from = excluded.compatible_from,
    migrated_at = clock_timestamp();
"""
# One migration at a time per database, whatever the schema; the lock ends with the transaction, so it holds behind a
# pooler too. The number is arbitrary: the bytes of "rota" and 1.
_LOCK = f"SELECT pg_advisory_xact_lock({int.from_bytes(b'rota', 'big')}, 1)"
_VERSION = (
    "SELECT schema_version, compatible_from FROM {schema}.meta WHERE one = 1",
    ("42P01", "3F000"),
)


class Version(NamedTuple):
    """What a database has. ``found`` 0: no schema of Rota's."""

    found: int
    compatible_from: int


class Migration(NamedTuple):
    """The text that leads to a version from the one before."""

    version: int
    text: str


def load(folder: str = "schema") -> tuple[Migration, ...]:
    """The migrations, in order. Files with one number belong to one version, in the order of their names."""
    texts: dict[int, list[str]] = {}
    for entry in sorted(files("rota.engines.postgres").joinpath(folder).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            texts.setdefault(int(entry.name.split("_")[0]), []).append(
                entry.read_text(encoding="utf-8").rstrip() + "\n"
            )
    if list(texts) != list(range(1, len(texts) + 1)):
        raise ValueError(f"the migrations in {folder} are not numbered from 1 without gaps")
    return tuple(Migration(version, "\n".join(parts)) for version, parts in texts.items())


MIGRATIONS = load()
NEWEST = MIGRATIONS[-1].version


def version_at(address: Address) -> int:
    """The version in a database, over a connection of its own."""
    errors = Translator(address.shown, address.schema, address.secrets)
    connection = Connector(address, errors, 5.0, prepared=False).connect()
    try:
        return read(connection, address, errors).found
    finally:
        connection.close()


def script(schema: str, after: int = 0) -> str:
    """The SQL that brings a schema of a version up to date, for ``psql``; it begins and commits by itself."""
    if not 0 <= after <= NEWEST:
        raise ValueError(f"the schema's version must be 0 to {NEWEST}, got {after}")
    if after == NEWEST:
        return f"-- The schema {schema} has version {after}: nothing to do.\n"
    parts = ["BEGIN ISOLATION LEVEL READ COMMITTED;", f"{_LOCK};", *_statements(schema, after), "COMMIT;"]
    return "\n".join(parts) + "\n"


def version(connection: psycopg.Connection, schema: str) -> Version:
    """The version in the database; 0 where there is none. The driver's errors pass through."""
    text, absent = _VERSION
    try:
        row = connection.execute(_filled(text, schema)).fetchone()
    except psycopg.Error as error:
        if error.sqlstate in absent:
            return Version(0, 0)
        raise
    return Version(*row) if row else Version(0, 0)


def read(connection: psycopg.Connection, address: Address, errors: Translator) -> Version:
    """``version``, with Rota's errors only."""
    try:
        return version(connection, address.schema)
    except psycopg.Error as error:
        raise errors.refused(error) from None


def check(found: Version, address: Address) -> None:
    """``SchemaMismatch`` unless this code works with what was found."""
    if found.found == 0:
        raise SchemaMismatch(
            f"{address.shown} has no schema {address.schema!r} of Rota's, this version works with {NEWEST}: "
            f"run `rota --url {address.shown} migrate`, or open it with migrate=True"
        )
    if found.found < NEWEST:
        raise SchemaMismatch(
            f"{address.shown} has schema version {found.found}, this version of Rota works with {NEWEST}: "
            f"run `rota --url {address.shown} migrate`, or open it with migrate=True"
        )
    if found.compatible_from > NEWEST:
        raise SchemaMismatch(
            f"{address.shown} has schema version {found.found}, made for versions {found.compatible_from} and newer; "
            f"this version of Rota knows {NEWEST}: upgrade Rota here (pip install --upgrade rota)"
        )


def migrate(
    connection: psycopg.Connection, address: Address, errors: Translator, *, only_fresh: bool = False
) -> Version:
    """Bring the schema up to date; any number of processes may do so at once. What was there before.

    ``only_fresh``: make the schema where there is none, leave an older one alone.
    """
    try:
        found = version(connection, address.schema)
        if _nothing_to_do(found, only_fresh):
            return found
        connection.execute(b"BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            connection.execute(_LOCK.encode())
            # Another process may have been faster.
            found = _version_inside(connection, address.schema)
            if not _nothing_to_do(found, only_fresh):
                for text in _statements(address.schema, found.found):
                    connection.execute(text.encode())
            connection.execute(b"COMMIT")
        except BaseException:
            if not connection.closed:
                connection.execute(b"ROLLBACK")
            raise
        return found
    except psycopg.Error as error:
        if error.sqlstate == "42501":
            raise EngineUnavailable(
                f"{errors.told(error)}: the role may not make the schema; let its owner run `rota migrate`, or the SQL "
                "that `rota migrate --sql` prints",
                lasting=True,
            ) from None
        raise errors.refused(error) from None


def _nothing_to_do(found: Version, only_fresh: bool) -> bool:
    return found.found >= NEWEST or (only_fresh and found.found > 0)


def _version_inside(connection: psycopg.Connection, schema: str) -> Version:
    """Within a transaction, which an error would end."""
    row = connection.execute(f"SELECT to_regclass('\"{schema}\".meta') IS NOT NULL".encode()).fetchone()
    return version(connection, schema) if row and row[0] else Version(0, 0)


def _statements(schema: str, after: int) -> list[str]:
    texts = [_filled(_BOOTSTRAP, schema)] if after == 0 else []
    for migration in MIGRATIONS[after:]:
        texts.append(f"-- version {migration.version}\n" + _filled(migration.text, schema))
        compatible = min(COMPATIBLE_FROM, migration.version)
        texts.append(_filled(_SET_VERSION % (migration.version, compatible), schema))
    return texts


def _filled(text: str, schema: str) -> str:
    return re.sub(r"\{schema\}", f'"{schema}"', text)
