"""The engines under judgement: one store each on a shared clock, with what it takes to compare them with the oracle."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from hypothesis import HealthCheck, settings

import rota
from rota.testing import ManualClock

START = 1_000_000_000_000_000  # microseconds: seconds as a float still tell every microsecond apart
SECOND = 1_000_000

# Thousands of databases are made: in memory where the system has such a folder.
MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# Both together take well under a minute on two cores; nightly runs ask for more.
EXAMPLES = int(os.environ.get("ROTA_MODEL_EXAMPLES", "0"))


def walks(count: int) -> range:
    """Seeds of the walks."""
    return range(EXAMPLES or count)


def effort(examples: int, steps: int = 50) -> settings:
    """A deterministic profile: the same traces in every run, more of them when ROTA_MODEL_EXAMPLES says so."""
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


class Half:
    """A source of chance without any: the backoff lies in the middle of its range."""

    def random(self) -> float:
        return 0.5


def clock_at_start() -> ManualClock:
    clock = ManualClock()
    clock.set(START / SECOND)
    return clock


def micros(seconds: float | None) -> int | None:
    """Public seconds as exact microseconds."""
    return None if seconds is None else round(seconds * SECOND)


class Subject:
    """One engine. ``ids`` tells its number for each of the oracle's, so numbers are never compared as such."""

    def __init__(self, name: str, open_store: Callable[[], Any]) -> None:
        self.name = name
        self.store = open_store()
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}
        self.handles: list[Any] = []
        self.last_token = 0
        self.letters: dict[int, int] = {}

    def bind(self, ours: int, theirs: int) -> None:
        """Note that the engine calls it ``theirs``; a new number must be greater than every one before (T2)."""
        known = self.theirs.get(ours)
        if known is not None:
            assert known == theirs, f"{self.name}: {ours} is {known}, not {theirs}"
            return
        assert not self.ours or theirs > max(self.ours), f"{self.name}: {theirs} is not greater than all before"
        self.theirs[ours] = theirs
        self.ours[theirs] = ours

    def took(self, handle: Any) -> None:
        """A claim's token must be greater than every one before (T6, Q6)."""
        assert handle.token > self.last_token, f"{self.name}: token {handle.token} after {self.last_token}"
        self.last_token = handle.token
        self.handles.append(handle)


class Postgres:
    """Two schemas of one database, emptied instead of made anew; set up by ``conftest`` for the whole run."""

    url = ""

    def open(self, schema: str, clock: ManualClock) -> Any:
        store = rota.open(self.url, schema=schema, migrate=True, notify=False, pool_size=2, clock=clock, rng=Half())
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables "
                "WHERE schemaname = %s AND tablename <> 'meta'",
                (schema,),
            ).fetchall()
            connection.execute("TRUNCATE " + ", ".join(name for (name,) in rows))  # type: ignore[arg-type]
        return store


POSTGRES = Postgres()


class Subjects(list[Subject]):
    """Every engine, on one clock; each with a foreign store beside it."""

    def __init__(self, clock: ManualClock, *, steady: bool = True) -> None:
        super().__init__()
        self.clock = clock
        self._steady = steady
        self._looks = 0
        self._folder = Path(tempfile.mkdtemp(prefix="rota-model-", dir=MEMORY_DISK))
        for name in engines():
            self.append(Subject(name, lambda name=name: self.open(name, "model")))

    def open(self, engine: str, file: str) -> Any:
        if engine == "memory":
            # Encoded, so that handles and letters of both engines can be compared.
            return rota.open("memory://?codec=json", clock=self.clock, rng=Half())
        if engine == "postgres":
            store = POSTGRES.open(file, self.clock)
            # A clock that never goes back: claims carry their frontier as they do under the server's clock.
            store._core.engine.bounded = self._steady
            return store
        return rota.open(f"sqlite:///{self._folder}/{file}.db", clock=self.clock, rng=Half(), durability="normal")

    def looked_at(self) -> list[Subject]:
        """Whose whole state is compared after this step. A look at a server takes a dozen snapshots."""
        self._looks += 1
        return [subject for subject in self if EXAMPLES or subject.name != "postgres" or self._looks % 4 == 0]

    def close(self) -> None:
        for subject in self:
            subject.store.close()
        shutil.rmtree(self._folder)


def engines() -> list[str]:
    """All of them; ROTA_MODEL_ENGINES picks some while one is being written."""
    return os.environ.get("ROTA_MODEL_ENGINES", "memory,sqlite,postgres").split(",")
