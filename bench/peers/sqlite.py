"""Rota against its peers on SQLite.

Each peer runs at its own durability: litequeue syncs like ``normal``; persist-queue and huey (``fsync=True``) like
``full``. huey's storage has no lease: it deletes the job when it is taken, one commit where a lease needs two.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench.measure import ROUNDS, at_least, heading
from bench.peers.environments import REQUIREMENTS, environment, run

DURABILITY = {"litequeue": "normal", "persist-queue": "full", "huey": "full"}


def round_of(python: str, library: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="rota-peers-") as folder:
        result: dict[str, float] = json.loads(run([python, "-m", "bench.peers.sqlite_round", library, folder]))
        return result


def compare(folder: Path) -> None:
    pins = {pin.split("==")[0]: pin for pin in (REQUIREMENTS / "sqlite.txt").read_text().split()}
    interpreters = {peer: environment(folder / peer, sys.executable, [pin]) for peer, pin in pins.items()}
    interpreters |= {"rota-full": sys.executable, "rota-normal": sys.executable}
    heading("Peers on SQLite")
    rounds: dict[str, list[dict[str, float]]] = {library: [] for library in interpreters}
    for _ in range(ROUNDS):
        for library, python in interpreters.items():
            rounds[library].append(round_of(python, library))
    medians = {
        library: {what: statistics.median(one[what] for one in results) for what in results[0]}
        for library, results in rounds.items()
    }
    for library, figures in medians.items():
        print(f"{library:<16}" + "".join(f"{what} {1 / value:>10,.0f}/s   " for what, value in figures.items()))
    for peer, durability in DURABILITY.items():
        ours, theirs = medians[f"rota-{durability}"], medians[peer]
        at_least(f"put, {pins[peer]}", theirs["put"] / ours["put"], 2, f"durability {durability}")
        at_least(f"claim + ack, {pins[peer]}", theirs["take"] / ours["take"], 2, f"durability {durability}")
        at_least(f"in bulk, {pins[peer]}", theirs["bulk"] / ours["bulk"], 5, f"durability {durability}")
