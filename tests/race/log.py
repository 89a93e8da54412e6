"""What an actor of a race writes down: a line before each operation and one after it.

A line is written whole and at once, so a process killed between the two leaves an operation whose outcome is unknown.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def wall() -> int:
    """The clock that stores without ``clock=`` use too, in microseconds: lines and leases can be compared."""
    return time.time_ns() // 1_000


class Log:
    """One actor's lines, in memory or appended to a file."""

    def __init__(self, by: str, path: Path | None = None, clock: Callable[[], int] = wall) -> None:
        self.by = by
        self.records: list[Record] = []
        self._clock = clock
        self._count = 0
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def invoke(self, op: str, **facts: Any) -> int:
        """The operation is about to be called; its number."""
        self._count += 1
        self._write({"n": self._count, "phase": "invoke", "op": op, **facts})
        return self._count

    def ok(self, number: int, **facts: Any) -> None:
        """It returned."""
        self._write({"n": number, "phase": "ok", **facts})

    def fail(self, number: int, error: BaseException) -> None:
        """It raised an error that says nothing happened."""
        self._write({"n": number, "phase": "fail", "error": repr(error)})

    def unknown(self, number: int, error: BaseException) -> None:
        """It raised an error that does not say whether it happened."""
        self._write({"n": number, "phase": "unknown", "error": repr(error)})

    def _write(self, record: Record) -> None:
        record = {"at": self._clock(), "by": self.by, **record}
        if self._file is None:
            self.records.append(record)
        else:
            os.write(self._file, json.dumps(record).encode() + b"\n")


def read(paths: Iterable[Path]) -> list[Record]:
    """The records of several files. A last line cut by a kill is no line."""
    records: list[Record] = []
    for path in paths:
        for line in path.read_bytes().split(b"\n")[:-1]:
            records.append(json.loads(line))
    return records
