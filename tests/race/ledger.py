"""The ledger: transfers between accounts by workers that are killed at random, each exactly once.

5,000 transfers and 200 kills on each engine:

    PYTHONPATH=tests python -m race.ledger 5000 200 sqlite
    PYTHONPATH=tests python -m race.ledger 5000 200 postgresql
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import rota
from postgres.server import Server

from .ledger_worker import QUEUE
from .processes import ended, python

ACCOUNTS, OPENING = 20, 1_000
COLOURS = ["thread", "async"] * 2
# So long without any progress, and nothing will come any more.
_PATIENCE = 60.0
TABLES = (
    "CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint NOT NULL)",
    # Nothing unique: that a transfer is noted once is Rota's doing.
    "CREATE TABLE journal (transfer integer, source integer, target integer, amount integer, attempt integer)",
)


class Transfer(NamedTuple):
    transfer: int
    source: int
    target: int
    amount: int


# -- The books ---------------------------------------------------------------------------------------------------------


class Books:
    """The accounts, the journal and the queue, seen from outside."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = rota.open(url, **({"migrate": True} if url.startswith("postgresql") else {}))
        self.queue = self.store.queue(QUEUE, max_attempts=1_000)
        self._connection: Any = (
            sqlite3.connect(self.store._core.engine.path, timeout=60, isolation_level=None)  # type: ignore[attr-defined]
            if url.startswith("sqlite")
            else psycopg.connect(url, autocommit=True)
        )

    def open(self, count: int, chance: random.Random) -> list[Transfer]:
        """Make the accounts, and enqueue so many transfers."""
        for table in TABLES:
            # A server of the tests gives the same database again.
            self._connection.execute(f"DROP TABLE IF EXISTS {table.split()[2]}")
            self._connection.execute(table)
        for account in range(ACCOUNTS):
            self._connection.execute(f"INSERT INTO accounts VALUES ({account}, {OPENING})")
        transfers = [
            Transfer(number, *chance.sample(range(ACCOUNTS), 2), chance.randint(1, 100)) for number in range(count)
        ]
        self.queue.enqueue_many([transfer._asdict() for transfer in transfers])
        return transfers

    def noted(self) -> int:
        """How many rows the journal has."""
        ((count,),) = self._connection.execute("SELECT count(*) FROM journal").fetchall()
        return int(count)

    def journal(self) -> list[tuple[Transfer, int]]:
        """The transfers that were noted, each with the attempt that did it."""
        rows = self._connection.execute("SELECT transfer, source, target, amount, attempt FROM journal").fetchall()
        return [(Transfer(*row[:4]), row[4]) for row in rows]

    def balances(self) -> list[int]:
        rows = self._connection.execute("SELECT balance FROM accounts ORDER BY id").fetchall()
        return [int(balance) for (balance,) in rows]

    def left(self) -> dict[str, int]:
        """What the queue still has, but for zeros."""
        stats = self.queue.stats()
        return {state: n for state in ("pending", "processing", "dead") if (n := getattr(stats, state))}

    def close(self) -> None:
        self._connection.close()
        self.store.close()


def judge(
    transfers: list[Transfer], journal: list[Transfer], balances: list[int], left: dict[str, int]
) -> dict[str, str]:
    """What is wrong with the books; empty: nothing."""
    faults: dict[str, str] = {}
    if sum(balances) != ACCOUNTS * OPENING:
        faults["sum"] = f"{sum(balances)} instead of {ACCOUNTS * OPENING}"
    if len(journal) != len(transfers):
        faults["count"] = f"{len(journal)} instead of {len(transfers)}"
    times = Counter(one.transfer for one in journal)
    twice = [number for number, count in times.items() if count > 1]
    if twice:
        faults["twice"] = f"{len(twice)} transfers: {twice[:10]}"
    missing = [one.transfer for one in transfers if not times[one.transfer]]
    if missing:
        faults["missing"] = f"{len(missing)} transfers: {missing[:10]}"
    if set(journal) - set(transfers):
        faults["strange"] = f"never asked for: {sorted(set(journal) - set(transfers))[:10]}"
    if balances != replay(journal):
        faults["replay"] = "the balances are not those of the journal"
    if balances != replay(transfers):
        faults["balances"] = "the balances are not those of the transfers"
    if left:
        faults["left"] = f"in the queue: {left}"
    return faults


def replay(transfers: list[Transfer]) -> list[int]:
    """The balances after these transfers."""
    balances = [OPENING] * ACCOUNTS
    for one in transfers:
        balances[one.source] -= one.amount
        balances[one.target] += one.amount
    return balances


# -- The workers -------------------------------------------------------------------------------------------------------


class Life(NamedTuple):
    colour: str
    process: subprocess.Popen[bytes]
    log: Path


class Staff:
    """Worker processes, replaced when they are killed."""

    def __init__(self, url: str, how: str, place: Path, chance: random.Random) -> None:
        self._url, self._how, self._place, self._chance = url, how, place, chance
        self._lives = self.kills = 0
        self.cut = 0
        """How many kills came in the middle of a transfer."""
        self.living = [self._hire(colour) for colour in COLOURS]

    def _hire(self, colour: str) -> Life:
        self._lives += 1
        log = self._place / f"{self._lives}.log"
        log.touch()
        return Life(colour, python("ledger_worker", self._url, self._how, colour, str(log)), log)

    def kill(self) -> bool:
        """Kill one of those that are at work; whether there was one."""
        at_work = [number for number, life in enumerate(self.living) if life.log.stat().st_size]
        if not at_work:
            return False
        number = self._chance.choice(at_work)
        life = self.living[number]
        life.process.kill()
        _, err = life.process.communicate()
        assert life.process.returncode == -9, err.decode()
        marks = life.log.read_bytes()
        self.cut += marks.count(b"(") > marks.count(b")")
        self.kills += 1
        self.living[number] = self._hire(life.colour)
        return True

    def end(self) -> None:
        for life in self.living:
            ended(life.process)


@dataclass
class Report:
    faults: dict[str, str]
    transfers: int
    noted: int
    kills: int
    cut: int
    again: int
    seconds: float

    def __str__(self) -> str:
        verdict = "; ".join(f"{fault}: {text}" for fault, text in self.faults.items()) or "exact"
        return (
            f"{self.transfers} transfers, {self.noted} in the journal, {self.kills} workers killed ({self.cut} in the "
            f"middle of a transfer), {self.again} took more than one delivery, {self.seconds:.0f} s: {verdict}"
        )


def ledger(url: str, place: Path, seed: str, transfers: int, kills: int, how: str = "transactional") -> Report:
    """Work off so many transfers while so many workers are killed, spread over the whole of it; then the verdict."""
    chance = random.Random(seed)
    began = time.monotonic()
    books = Books(url)
    try:
        asked = books.open(transfers, chance)
        staff = Staff(url, how, place, chance)
        for number in range(kills):
            # Progress, not time, says when: the last kill still finds work.
            _wait(books, lambda done, mark=transfers * number // (kills + 1): done >= mark)  # type: ignore[misc]
            time.sleep(chance.random() * 0.02)
            while not staff.kill():
                time.sleep(0.005)
        _wait(books, lambda done: not books.queue.stats().pending and not books.queue.stats().processing)
        staff.end()
        journal = books.journal()
        faults = judge(asked, [one for one, _ in journal], books.balances(), books.left())
        again = sum(1 for _, attempt in journal if attempt > 1)
        return Report(faults, transfers, len(journal), staff.kills, staff.cut, again, time.monotonic() - began)
    finally:
        books.close()


def _wait(books: Books, true: Any) -> None:
    done, since = -1, time.monotonic()
    while not true(now := books.noted()):
        if now != done:
            done, since = now, time.monotonic()
        assert time.monotonic() < since + _PATIENCE, f"nothing goes on: {done} in the journal, left {books.left()}"
        time.sleep(0.01)


def main(transfers: str = "5000", kills: str = "200", engine: str = "sqlite", how: str = "transactional") -> int:
    """Print how it went; 1 if the books are wrong."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if engine == "sqlite":
            url = f"sqlite:///{place / 'ledger.db'}?busy_timeout=20"
        else:
            server = Server(durable=True)
            stack.callback(server.close)
            url = server.dsn(server.create_database())
        report = ledger(url, place, f"ledger {time.time_ns()}", int(transfers), int(kills), how)
    print(f"{engine}: {report}")
    return int(bool(report.faults))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
