"""Random transactions on each kind of connection, however they end, and what is wrong afterwards: a table of zeros.

``python -m transactions.storm [COUNT [KIND …]]``, in ``tests``; COUNT (5,000) on each kind.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rota.wakeups import queue_address, transport_address

from .ears import Ears, Told
from .lenders import DROP, ON_MEMORY, ON_POSTGRES, ON_SQLITE, TABLE, Lender
from .workings import Place, judge

TESTS = Path(__file__).resolve().parents[1]
WRONG = (
    "jobs without a commit",
    "commits without a job",
    "messages without a commit",
    "commits without a message",
    "anything twice",
    "wake-ups from rollbacks",
    "commits that woke nobody",
)
Tally = Counter[str]


def alone(place: Place, count: int, chance: random.Random, tally: Tally) -> None:
    """One after the other, each with its wake-ups."""
    told = Told(place.store)
    mine, undone = {queue_address("q"), transport_address("t")}, transport_address("undone")

    def ended(committed: bool) -> None:
        addresses = told.since_last()
        tally["tried"] += 1
        tally["committed"] += committed
        tally["wake-ups from rollbacks"] += addresses.count(undone) if committed else len(addresses)
        tally["commits that woke nobody"] += committed and place.lender.tells and not mine <= set(addresses)

    for number in range(1, count + 1):
        # Of what comes before the transaction, as the release of what was claimed for the last one.
        told.since_last()
        place.one(number, chance, ended)


def rolled_back(place: Place, count: int, chance: random.Random, tally: Tally) -> None:
    """Nothing but rollbacks, while everybody listens."""
    place.queue.enqueue_many(list(range(-count - 10**6, -(10**6))))
    place.transport.publish_many([(f"held-{number}", -(10**6) - number) for number in range(min(count, 40))])
    jobs, leases = place.queue.claim_batch("w", count, visibility=3600), place.transport.claim_batch("w", 40, 3600)
    with Ears(place.store, place.url) as ears:
        for number in range(1, count + 1):
            job = jobs[number % len(jobs)] if chance.random() < 0.5 else None
            lease = leases[number % len(leases)] if chance.random() < 0.3 else None
            assert not place.within(10**8 + number, chance.choice(("rollback", "exception")), job, lease)
            tally["tried"] += 1
        tally["wake-ups from rollbacks"] += ears.heard()
        place.queue.enqueue(0)
        tally["commits that woke nobody"] += not ears.heard()
    place.queue.purge("processing")
    place.queue.purge("pending")
    for lease in leases:
        place.transport.purge(lease.group_id)


def killed(url: str, lender: type[Lender], count: int, chance: random.Random, tally: Tally) -> None:
    """Processes that make transactions are killed at any moment; then another one goes on."""
    lives, done = min(6, max(1, count // 20)), 0
    for life in range(lives):
        words = [sys.executable, "-m", "transactions.program", lender.__name__, url, str((life + 1) * 10**6)]
        child = subprocess.Popen(words, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None
        even = (count - done) / (lives - life)
        left = wanted = max(1, round(even * chance.uniform(0.8, 1.2) if life < lives - 1 else even))
        while left > 0:
            said = os.read(child.stdout.fileno(), left)
            assert said, child.communicate()
            left -= len(said)
        # Anywhere in the last one.
        time.sleep(chance.uniform(0.0, 0.005))
        assert child.poll() is None, child.communicate()
        child.kill()
        child.communicate()
        done += wanted
        tally["tried"] += wanted
        tally["killed"] += 1


def cut(url: str, lender: type[Lender], count: int, chance: random.Random, tally: Tally) -> None:
    """The server ends sessions in the middle of transactions."""
    stop = threading.Event()
    cutting = threading.Thread(target=_cut_at_times, args=(url, stop))
    cutting.start()
    number, failures = 10**9, 0
    most = number + count * 100
    try:
        # Until some were cut in the middle, too.
        while number < 10**9 + count or (not failures and number < most):
            try:
                with Place(url, lender) as place:
                    while number < 10**9 + count or (not failures and number < most):
                        number += 1
                        tally["tried"] += 1
                        place.one(number, chance)
            except Exception:
                # What kind of error a foreign connection gives is its own affair.
                failures += 1
    finally:
        stop.set()
        cutting.join()
        gc.collect()
    tally["cut"] += failures


def _cut_at_times(url: str, stop: threading.Event) -> None:
    import psycopg

    chance = random.Random(37)
    with psycopg.connect(url, autocommit=True) as other:
        while not stop.wait(chance.uniform(0.0, 0.1)):
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            )


def storm(url: str, lender: type[Lender], count: int) -> Tally:
    """All of it on one kind of connection: how much of what, and what is wrong afterwards."""
    chance, tally = random.Random(20), Counter(dict.fromkeys(WRONG, 0))
    shares = {"memory": (0.8, 0.2, 0, 0), "sqlite": (0.5, 0.2, 0.3, 0), "postgresql": (0.4, 0.2, 0.2, 0.2)}
    share = shares[url.partition(":")[0]]
    # In a process of its own nothing of what memory holds would be left.
    with Place(url, lender) as place:
        rolled_back(place, int(count * share[1]), chance, tally)
        alone(place, int(count * share[0]), chance, tally)
        if url.startswith("memory"):
            tally.update(judge(url))
            return tally
    killed(url, lender, int(count * share[2]), chance, tally)
    if share[3]:
        cut(url, lender, int(count * share[3]), chance, tally)
    tally.update(judge(url))
    return tally


# -- As a program ------------------------------------------------------------------------------------------------------


@contextmanager
def _urls() -> Iterator[Any]:
    import sqlite3

    import psycopg

    import rota
    from postgres.server import Server

    server = Server()
    with tempfile.TemporaryDirectory() as folder:

        def new(engine: str, number: int) -> str:
            if engine == "memory":
                return f"memory://storm-{number}?codec=json"
            if engine == "sqlite":
                path = Path(folder) / f"{number}.db"
                rota.open(f"sqlite:///{path}").close()
                connection = sqlite3.connect(path)
                connection.execute(TABLE)
                connection.close()
                return f"sqlite:///{path}"
            url = server.dsn(server.create_database())
            rota.open(url, migrate=True).close()
            with psycopg.connect(url) as other:
                other.execute(DROP)
                other.execute(TABLE)
            return url

        try:
            yield new
        finally:
            server.close()


def main(count: int = 5_000, *wanted: str) -> None:
    """The table."""
    warnings.simplefilter("ignore", ResourceWarning)
    columns = ("tried", "committed", "killed", "cut", "made", "done", *WRONG)
    print("| kind |", " | ".join(columns), "| seconds |")
    print("|" + " --- |" * (len(columns) + 2))
    kinds = [("memory", one) for one in ON_MEMORY] + [("sqlite", one) for one in ON_SQLITE]
    kinds += [("postgresql", one) for one in ON_POSTGRES]
    wrong = 0
    with _urls() as new:
        for number, (engine, lender) in enumerate(kinds):
            name = f"{engine} {lender.__name__}"
            if wanted and not any(word in name for word in wanted):
                continue
            begun = time.monotonic()
            tally = storm(new(engine, number), lender, count)
            wrong += sum(tally[column] for column in WRONG)
            seconds = time.monotonic() - begun
            print(f"| {name} |", " | ".join(str(tally[one]) for one in columns), f"| {seconds:.0f} |", flush=True)
    print("wrong:", wrong)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
