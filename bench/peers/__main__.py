"""Rota against its peers on SQLite: ``python -m bench.peers [ENVIRONMENTS]``.

Makes one virtual environment per peer below ENVIRONMENTS (default: a folder in the temporary directory), installs the
pinned version from the package index, and runs rounds of Rota and of the peers in turn, each at the peer's durability:
litequeue syncs like ``normal``; persist-queue and huey (``fsync=True``) like ``full``. huey's storage has no lease: it
deletes the job when it is taken, one commit where a lease needs two.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from bench.measure import at_least, heading

HERE = Path(__file__).parent
ROUNDS = 5
DURABILITY = {"litequeue": "normal", "persist-queue": "full", "huey": "full"}


def environment(root: Path, peer: str, pin: str) -> str:
    """The interpreter of a peer's environment, made on first use."""
    folder = root / peer
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", pin], check=True)
    return str(python)


def round_of(python: str, library: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="rota-peers-") as folder:
        command = [python, str(HERE / "round.py"), library, folder]
        result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return result


def main(arguments: list[str]) -> None:
    root = Path(arguments[0] if arguments else Path(tempfile.gettempdir()) / "rota-bench-peers")
    pins = {pin.split("==")[0]: pin for pin in (HERE / "requirements.txt").read_text().split()}
    interpreters = {peer: environment(root, peer, pin) for peer, pin in pins.items()}
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


if __name__ == "__main__":
    main(sys.argv[1:])
