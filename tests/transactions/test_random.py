"""Random transactions on every kind of connection: nothing is half there, whatever ends them.

``ROTA_TEST_TRANSACTIONS`` says how many on each kind; 5,000 is the full size.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from .lenders import ON_POSTGRES, ON_SQLITE, Lender
from .workings import Place, judge

COUNT = int(os.environ.get("ROTA_TEST_TRANSACTIONS", "60"))
TESTS = Path(__file__).resolve().parents[1]
NOTHING_WRONG = {
    "jobs without a commit": 0,
    "commits without a job": 0,
    "messages without a commit": 0,
    "commits without a message": 0,
}


def verdict(url: str) -> tuple[dict[str, int], int]:
    found = judge(url)
    return {name: found[name] for name in NOTHING_WRONG}, found["made"]


def test_commits_rollbacks_savepoints_exceptions(place: Place) -> None:
    chance = random.Random(20)
    for number in range(1, COUNT + 1):
        place.one(number, chance)
    wrong, made = verdict(place.url)
    assert wrong == NOTHING_WRONG
    assert COUNT // 4 < made < COUNT


def test_killed_at_any_moment(url: str, lender: type[Lender]) -> None:
    """A process that makes transactions is killed again and again; another one goes on."""
    chance = random.Random(9)
    kills = max(2, COUNT // 50)
    for life in range(kills):
        words = [sys.executable, "-m", "transactions.program", lender.__name__, url, str((life + 1) * 10**6)]
        child = subprocess.Popen(words, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None
        # Until it has begun; from then on at any moment.
        assert child.stdout.readline() == "begun\n", child.communicate()
        time.sleep(chance.uniform(0.0, 0.4))
        assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGKILL)
        child.communicate()
    wrong, made = verdict(url)
    assert wrong == NOTHING_WRONG
    assert made > 0


# A library whose connection was cut under it leaves it to the garbage collector, which complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda lender: lender.__name__)
def test_connections_cut(kind: type[Lender], postgres_server: object, postgres_url: str) -> None:
    """The server ends sessions in the middle of transactions; what was tried is there whole or not at all."""
    import psycopg

    from .lenders import DROP, TABLE

    with psycopg.connect(postgres_url) as connection:
        connection.execute(DROP)
        connection.execute(TABLE)
    stop = threading.Event()

    def cut() -> None:
        chance = random.Random(37)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            while not stop.wait(chance.uniform(0.0, 0.1)):
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
                )

    cutting = threading.Thread(target=cut)
    cutting.start()
    number, failures, chance = 0, 0, random.Random(38)
    try:
        # Until some were cut in the middle, too.
        while number < COUNT * 2 or (not failures and number < COUNT * 100):
            try:
                with Place(postgres_url, kind) as place:
                    while number < COUNT * 2 or (not failures and number < COUNT * 100):
                        number += 1
                        place.one(number, chance)
            except Exception:
                # What kind of error a foreign connection gives is its own affair.
                failures += 1
    finally:
        stop.set()
        cutting.join()
        gc.collect()
    wrong, made = verdict(postgres_url)
    assert wrong == NOTHING_WRONG
    assert made > 0
    assert failures > 0


def test_every_kind_is_tried() -> None:
    assert len(ON_SQLITE) == 9
    assert len(ON_POSTGRES) == 11
