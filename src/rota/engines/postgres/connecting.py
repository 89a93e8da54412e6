"""Making connections: options, versions, and what a failure to connect is called."""

from __future__ import annotations

from typing import Any

import psycopg

from rota.engines.postgres.address import Address
from rota.engines.postgres.failures import Translator
from rota.engines.postgres.loops import LoopConnection
from rota.engines.postgres.sessions import prepare
from rota.errors import EngineUnavailable

OLDEST = 140000
# Databases' encodings that hold all text; SQL_ASCII keeps bytes as they come.
_ENCODINGS = (b"UTF8", b"SQL_ASCII")

# A connection whose other end fell silent is given up by the operating system, not waited on for hours. Milliseconds
# without an acknowledgement; seconds of idleness before the first probe, between probes, and probes.
_WATCHFUL = {"tcp_user_timeout": 30_000, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class Connector:
    """Makes the connections of one engine."""

    def __init__(self, address: Address, errors: Translator, connect_timeout: float, prepared: bool) -> None:
        self._errors = errors
        self._options: dict[str, Any] = {
            **_WATCHFUL,
            "application_name": "rota",
            **address.options,
            # Whatever the URL says; sent when connecting, so poolers keep it too.
            "client_encoding": "UTF8",
        }
        self._options.setdefault("connect_timeout", max(1, round(connect_timeout)))
        # Prepared statements live in the server's session, which a transaction-mode pooler changes.
        self._threshold = 2 if prepared else None

    def connect(self) -> psycopg.Connection:
        """A connection in autocommit."""
        try:
            connection: psycopg.Connection = psycopg.connect(**self._options, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise self._errors.unavailable(error) from None
        try:
            self._ready(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def aconnect(self) -> LoopConnection:
        """A connection for the running loop."""
        try:
            connection = await LoopConnection.connect(**self._options, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise self._errors.unavailable(error) from None
        try:
            self._ready(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _ready(self, connection: psycopg.Connection | LoopConnection) -> None:
        version = connection.pgconn.server_version
        if version < OLDEST:
            raise EngineUnavailable(
                f"PostgreSQL {version // 10_000}.{version % 10_000} is too old: Rota needs {OLDEST // 10_000} or newer",
                lasting=True,
            )
        encoding = connection.pgconn.parameter_status(b"server_encoding")
        if encoding is not None and encoding not in _ENCODINGS:
            raise EngineUnavailable(
                f"the database {connection.info.dbname!r} keeps text in {encoding.decode()}, which cannot hold all of "
                "it (P1, D4): Rota needs one made with ENCODING 'UTF8'",
                lasting=True,
            )
        prepare(connection, self._threshold)
