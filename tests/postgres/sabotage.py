"""Functions of the schema with a guard taken out, to show that a test notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

SECOND = 1_000_000
START = -(2**63)

guarded = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "sabotaged"])


def sabotage(url: str, function: str, *changes: tuple[str, str]) -> None:
    """Replace pieces of a function's text in this database. Each has to be there, or the saboteur is out of date."""
    with psycopg.connect(url, autocommit=True) as connection:
        ((text,),) = connection.execute(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'rota'::regnamespace AND proname = %s",
            (function,),
        ).fetchall()
        for old, new in changes:
            assert old in text, f"{function} has no {old!r} any more"
            text = text.replace(old, new)
        connection.execute(text)


class Session:
    """A connection that calls functions; in a transaction between ``begin`` and ``commit``."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        # A test that waits for ever says nothing.
        self.connection.execute("SET statement_timeout = '20s'; SET deadlock_timeout = '20ms'")

    def execute(self, text: str) -> None:
        self.connection.execute(text)  # type: ignore[call-overload]

    def call(self, function: str, *values: Any) -> Any:
        """One value."""
        marks = ", ".join(["%s"] * len(values))
        row = self.connection.execute(f"SELECT rota.{function}({marks})", values).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row[0]

    def claim_groups(self, now: int | None, n: int = 1, visibility: int = SECOND) -> list[dict[str, Any]]:
        """Leases, from every place on."""
        values = (now, "t", "w", n, visibility, -(2**31), None, START, 0, START, True)
        return self._rows("claim_groups", values)

    def claim_jobs(self, now: int | None, n: int = 1, visibility: int = SECOND) -> list[dict[str, Any]]:
        return self._rows("claim_jobs", (now, "q", "w", n, visibility, None, None, None, START, START))

    def _rows(self, function: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        marks = ", ".join(["%s"] * len(values))
        cursor = self.connection.execute(f"SELECT * FROM rota.{function}({marks})", values)  # type: ignore[arg-type]
        names = [column.name.removeprefix("o_") for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return [row for row in rows if row[names[0]] is not None]

    def publish(self, group: str, event: str) -> int:
        seq: int = self.call("publish", None, "t", group, event, 0, None, None)
        return seq

    def enqueue(self, payload: str, visibility: int = 300 * SECOND) -> int:
        values = (None, "q", True, payload, 0, None, None, None, None, None, None)
        job_id: int = self.call("enqueue", *values, visibility, 3, SECOND, None, 0, SECOND)
        return job_id

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def is_waiting(self, other: Session) -> bool:
        """Whether the other session waits for a lock."""
        pid = other.connection.info.backend_pid
        row = self.connection.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()
        return bool(row and row[0])

    def close(self) -> None:
        self.connection.close()


Sessions = Callable[[], Session]


class Running:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome = call()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(30)
        assert self.done, "the call did not come back"
        if self._error is not None:
            raise self._error
        return self._outcome

    def settle(self, watcher: Session, session: Session) -> None:
        """Until the call is over or waits for a lock."""
        deadline = time.monotonic() + 10
        while not self.done and not watcher.is_waiting(session):
            assert time.monotonic() < deadline, "the call neither ends nor waits"
            time.sleep(0.005)
