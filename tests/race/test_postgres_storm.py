"""PostgreSQL in a storm: kills, ended sessions and a restart without warning, on a server that syncs to the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postgres.server import Server

from .postgres_storm import TITLES, births, storm, storm_server


@pytest.fixture
def server() -> Iterator[Server]:
    with storm_server() as server:
        yield server


def test_storm_on_postgresql(server: Server, tmp_path: Path, seed: str, span: Callable[[float], float]) -> None:
    """Lost, unexpected, overlapping, inverted, stale, unexplained and all else the judge knows: none."""
    report = storm(server, tmp_path, seed, span(6))
    print(report)
    assert report.verdict.faults() == {}
    assert set(report.verdict.counts()) == set(TITLES)
    # Nobody needs to be started again, and a storm in which little happened shows little.
    assert report.idle == 0
    assert report.restarts == 1
    assert report.kills >= 4
    assert report.terminations >= 1
    assert report.verdict.figures["claims"] > 200
    assert report.verdict.figures["explained duplicates"] > 20
    assert report.verdict.figures["unknown"] > 0
    assert report.verdict.figures["failed"] > 0


def test_a_server_that_forgets_is_found_guilty(tmp_path: Path, seed: str) -> None:
    """One that confirms before it has written: what the restart takes shows as lost work and work done twice."""
    for number in range(3):
        place = tmp_path / str(number)
        place.mkdir()
        with storm_server("synchronous_commit=off", "wal_writer_delay=10s") as server:
            counts = storm(server, place, f"{seed}/{number}", 2).verdict.counts()
        print(counts)
        # By chance everything may have been written just before the restart.
        if counts["lost"] and counts["revived"] and counts["inverted"]:
            return
    pytest.fail(f"not found guilty: {counts}")


def test_publish_races_the_last_ack(server: Server, seed: str, rounds: Callable[[int], int]) -> None:
    """As often as asked for, however long it takes: 20,000 rounds with ``ROTA_RACE_SECONDS=20``."""
    wanted = rounds(1_000)
    assert births(server, seed, wanted) == wanted
    print(f"{wanted} rounds")
