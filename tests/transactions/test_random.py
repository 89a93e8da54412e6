"""Random transactions on every kind of connection: nothing is half there, whatever ends them; rollbacks wake nobody.

``ROTA_TEST_TRANSACTIONS`` says how many on each kind; 5,000 is the full size. ``storm`` prints it all as a table.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import psycopg
import pytest

import rota

from .ears import Ears
from .lenders import DROP, ON_MEMORY, ON_POSTGRES, ON_SQLITE, TABLE, Lender
from .storm import WRONG, Tally, alone, cut, killed, rolled_back
from .workings import Place, judge

COUNT = int(os.environ.get("ROTA_TEST_TRANSACTIONS", "30"))


@pytest.fixture
def tally() -> Tally:
    return Counter()


def check(tally: Tally, url: str) -> None:
    tally.update(judge(url))
    assert {name: tally[name] for name in WRONG if tally[name]} == {}


@pytest.fixture(params=ON_MEMORY, ids=lambda lender: lender.__name__)
def in_memory(request: pytest.FixtureRequest) -> Place:
    return Place(f"memory://random-{request.param.__name__}?codec=json", request.param)


def test_commits_rollbacks_savepoints_exceptions(place: Place, tally: Tally) -> None:
    alone(place, COUNT, random.Random(20), tally)
    check(tally, place.url)
    assert COUNT // 4 < tally["made"] < COUNT


def test_nothing_but_rollbacks(place: Place, tally: Tally) -> None:
    """Waiters in this store and another one, and a listener of PostgreSQL's own, hear nothing of them."""
    rolled_back(place, max(10, COUNT // 5), random.Random(21), tally)
    check(tally, place.url)
    assert tally["made"] == 0


def test_on_memory(in_memory: Place, tally: Tally) -> None:
    with in_memory as place:
        rolled_back(place, COUNT, random.Random(21), tally)
        alone(place, COUNT, random.Random(20), tally)
        check(tally, place.url)
        assert COUNT // 4 < tally["made"] < COUNT


def test_killed_at_any_moment(url: str, lender: type[Lender], tally: Tally) -> None:
    """A process that makes transactions is killed again and again; another one goes on."""
    killed(url, lender, COUNT // 3, random.Random(9), tally)
    check(tally, url)
    assert tally["killed"] > 0
    assert tally["made"] > 0


# A library whose connection was cut under it leaves it to the garbage collector, which complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda lender: lender.__name__)
def test_connections_cut(kind: type[Lender], postgres_url: str, tally: Tally) -> None:
    """The server ends sessions in the middle of transactions; what was tried is there whole or not at all."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(DROP)
        connection.execute(TABLE)
    cut(postgres_url, kind, COUNT, random.Random(38), tally)
    check(tally, postgres_url)
    assert tally["made"] > 0
    assert tally["cut"] > 0


def test_every_kind_is_tried() -> None:
    assert (len(ON_MEMORY), len(ON_SQLITE), len(ON_POSTGRES)) == (2, 9, 11)


def test_the_ears_hear(tmp_path: Path, postgres_url: str) -> None:
    """A wake-up from a transaction that is rolled back would be counted, by each of those who listen."""
    for url in (f"sqlite:///{tmp_path}/s.db", postgres_url, "memory://ears"):
        with rota.open(url) as store:
            store.queue("q").enqueue(1)
            with Ears(store, url) as ears:
                assert ears.heard() == 0
                store._core.wakeups.wake("q:q")
                assert ears.heard() >= (2 if url.startswith("postgresql") else 1)
