"""Processes on one SQLite file, claimers and publishers killed with SIGKILL at random points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import rota

from .drain import drain
from .judge import judge
from .log import Log, read
from .processes import Troupe

ROLES = ["claimer"] * 4 + ["publisher"] * 2


def test_storm_of_kills(sqlite_url: str, tmp_path: Path, seed: str, span: Callable[[float], float]) -> None:
    """Nothing that was confirmed is lost, nothing is given out twice at once, nothing stays behind."""
    place = tmp_path / "logs"
    place.mkdir()
    with rota.open(sqlite_url) as store:
        troupe = Troupe(sqlite_url, place, seed, ROLES)
        troupe.storm(span(4))
        troupe.end()
        last = Log("drain")
        rest, dead = drain(store, last)
        verdict = judge([*read(troupe.logs()), *last.records], rest=rest, dead=dead)
        print(f"{troupe.kills} kills, {verdict.figures}")
        assert verdict.faults() == {}
        assert troupe.kills >= 2
        assert verdict.figures["claims"] > 200
        assert verdict.figures["explained duplicates"] > 20
