"""PostgreSQL's errors in the language of Rota (E): none of them leaves the engine raw, none shows a password."""

from __future__ import annotations

import psycopg

from rota.errors import (
    EngineBusy,
    EngineFull,
    EngineUnavailable,
    OutcomeUnknown,
    RotaError,
    SchemaMismatch,
    TransactionAborted,
    TransactionError,
)

# Nothing happened and trying again may help: serialisation failure, deadlock.
CONFLICTS = frozenset({"40001", "40P01"})
# Raised by our own functions: with one snapshot for all their statements they could not look again.
TOO_STRICT = "RT001"
_LOCKED = "55P03"
# lock_not_available, query_canceled (a statement_timeout; Rota's own cancelling never gets here).
_BUSY = frozenset({_LOCKED, "57014"})
# disk_full, out_of_memory, configuration_limit_exceeded.
_FULL = frozenset({"53100", "53200", "53400"})
# undefined_table, undefined_function, undefined_column, invalid_schema_name.
_NO_SCHEMA = frozenset({"42P01", "42883", "42703", "3F000"})
# The session ends: admin_shutdown, crash_shutdown, database_dropped, idle_session_timeout; cannot_connect_now.
_SESSION_OVER = frozenset({"57P01", "57P02", "57P04", "57P05", "57P03"})

# insufficient_privilege.
_NO_RIGHT = "42501"
# Of these errors is said what they are, in a transaction too; all others just abort it.
_TELLING = _FULL | _NO_SCHEMA | {_NO_RIGHT}
READ_ONLY = "25006"
# Said by a session that ends in good order: admin_shutdown, idle_session_timeout, idle_in_transaction_session_timeout,
# transaction_timeout.
_GOODBYES = frozenset({"57P01", "57P05", "25P03", "25P04"})

# Of the connection, the operator, the system and the server itself, or of a pooler: they are no answers to statements.
_NO_ANSWERS = ("08", "57P", "58", "XX")


def is_conflict(error: psycopg.Error) -> bool:
    """Whether the same statement may succeed when repeated; nothing happened."""
    return error.sqlstate in CONFLICTS


def did_nothing(error: psycopg.Error, answered: bool) -> bool:
    """Whether a session that is of no more use certainly did not commit the statement that showed it.

    The server answers before it commits: a goodbye that came without an answer before it was said in time. Those of a
    crash are no goodbyes. An error of the statement's own is an answer, whatever became of the session after it.
    """
    code = error.sqlstate or "08"
    refused = error.diag.severity_nonlocalized == "ERROR" and not code.startswith(_NO_ANSWERS)
    return refused or (not answered and code in _GOODBYES)


def is_lost(error: psycopg.Error, connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether the connection is of no more use: gone, so that nobody knows how far the server got, or left at a server
    that only reads now, as after a failover, where it would stay for ever."""
    return connection.closed or error.sqlstate in _SESSION_OVER or error.sqlstate == READ_ONLY


def reads_only(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether the server says of itself, or of this database, that it only reads."""
    told = connection.pgconn.parameter_status
    return b"on" in (told(b"in_hot_standby"), told(b"default_transaction_read_only"))


class Translator:
    """Makes Rota's errors for one database. ``secrets`` must not show in any text."""

    def __init__(self, place: str, schema: str, secrets: tuple[str, ...]) -> None:
        self._place = place
        self._schema = schema
        self._secrets = tuple(secret for secret in secrets if secret)

    def told(self, error: BaseException) -> str:
        """The driver's words on one line, with the place, without secrets.

        Of the server's words the first line only: the others may quote rows.
        """
        if isinstance(error, psycopg.Error):
            words = error.diag.message_primary or str(error)
        else:
            words = str(error).partition("\n")[0]
        text = " ".join(words.split()) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        code = getattr(error, "sqlstate", None)
        return f"{self._place}: {text}" + (f" ({code})" if code else "")

    def unavailable(self, error: BaseException) -> RotaError:
        """No connection could be made, or it broke while nothing was at stake."""
        return self._chained(EngineUnavailable(f"{self.told(error)}: nothing was changed"), error)

    def unknown(self, error: BaseException) -> RotaError:
        """The connection broke while a change was under way."""
        return self._chained(
            OutcomeUnknown(
                f"{self.told(error)}: the change may or may not have happened; repeat it with a key to be safe"
            ),
            error,
        )

    def aborted(self, error: BaseException) -> RotaError:
        """The database gave up a transaction; nothing of it happened."""
        return self._chained(
            TransactionAborted(f"{self.told(error)}: the transaction is rolled back, run it again"), error
        )

    def in_transaction(self, error: BaseException, *, lost: bool) -> RotaError:
        """A statement failed in a transaction, so that the transaction is of no more use."""
        code = getattr(error, "sqlstate", None)
        if code == TOO_STRICT:
            return self._chained(
                TransactionError(
                    f"{self.told(error)}: begin the transaction with ISOLATION LEVEL READ COMMITTED, or do this outside"
                ),
                error,
            )
        if code == READ_ONLY:
            return self.misused(error)
        if not lost and code in _TELLING:
            return self.refused(error)
        return self.aborted(error)

    def misused(self, error: BaseException) -> RotaError:
        """The connection, or its transaction, is not one for this."""
        return self._chained(TransactionError(f"{self.told(error)}: tx= cannot be used here"), error)

    def refused(self, error: BaseException) -> RotaError:
        """The server answered with an error: the statement did nothing."""
        code = getattr(error, "sqlstate", None)
        told = self.told(error)
        if code in CONFLICTS:
            return self._chained(
                EngineBusy(f"{told}: others changed the same rows all the time, nothing was changed"), error
            )
        if code in _BUSY:
            return self._chained(EngineBusy(f"{told}: nothing was changed", pinned=code == _LOCKED), error)
        if code in _FULL:
            return self._chained(EngineFull(f"{told}: the server has no room left, nothing was stored"), error)
        if code in _NO_SCHEMA:
            return self._chained(
                SchemaMismatch(
                    f"{told}: the schema {self._schema!r} is not the one this version of Rota works with; "
                    "run: rota --url URL migrate"
                ),
                error,
            )
        if code == _NO_RIGHT:
            return self._chained(
                EngineUnavailable(
                    f"{told}: the role lacks a right (see the roles in the guide), nothing was changed", lasting=True
                ),
                error,
            )
        return self.unavailable(error)

    def _chained(self, raised: RotaError, error: BaseException) -> RotaError:
        """With the driver's error as its cause, unless that would show a secret in a traceback."""
        words = f"{error} {error.__cause__} {error.__context__}"
        if any(secret in words for secret in self._secrets):
            raised.__suppress_context__ = True
        else:
            raised.__cause__ = error
        return raised
