"""The storm on PostgreSQL: processes are killed, sessions ended, the server is stopped without warning.

Twice in a row, a minute each, then 20,000 rounds of publishing into a group whose last message is being acked:

    PYTHONPATH=tests python -m race.postgres_storm 60 2 20000
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import rota
from postgres.server import Server

from .drain import drain
from .judge import Verdict, judge
from .log import Log, Record, read
from .processes import Troupe
from .test_group_birth import race
from .threads import switching_often

# Half of them on the async facade.
ROLES = ["claimer", "claimer async"] * 4 + ["publisher", "publisher async"] * 2
GROUPS = 200
# Seconds between two strokes, on average; how many of them are kills, the others end all sessions.
PAUSE, KILLS = 0.3, 0.75
# Names for readers of the report who know Jepsen's.
TITLES = {
    "lost": "lost",
    "unexpected": "unexpected",
    "overlapping": "overlapping valid leases",
    "inverted": "order inversions",
    "stale": "stale settlements accepted",
    "unexplained": "unexplained duplicates",
    "refused": "valid settlements refused",
    "stranded": "stranded",
    "revived": "ended twice",
    "regressed": "tokens going back",
    "miscounted": "deliveries miscounted",
}


@dataclass
class Report:
    """What happened and how it was judged. ``survivors``: processes older than the restart; ``idle``: those of them
    that did nothing after it."""

    verdict: Verdict
    kills: int
    terminations: int
    restarts: int
    survivors: int
    idle: int

    def __str__(self) -> str:
        counts = self.verdict.counts()
        return "\n".join(
            [
                f"{self.kills} processes killed, {self.terminations} times all sessions ended, {self.restarts} restart;"
                f" {self.survivors} processes went through the restart, {self.idle} of them idle since",
                ", ".join(f"{name} {number}" for name, number in self.verdict.figures.items()),
                ", ".join(f"{title} {counts[kind]}" for kind, title in TITLES.items()),
            ]
        )


@contextmanager
def storm_server(*settings: str) -> Iterator[Server]:
    """A server of one storm alone, fsync on."""
    server = Server(durable=True, settings=settings)
    try:
        assert server.execute("SHOW fsync") == [("on",)]
        yield server
    finally:
        server.close()


def storm(server: Server, place: Path, seed: str, seconds: float) -> Report:
    """Eight claimers and four publishers over 200 groups and a queue for so long, then the drain, then the verdict."""
    database = server.create_database()
    url = server.dsn(database)
    chance = random.Random(seed)
    terminations = restarted = 0
    with rota.open(url, migrate=True) as store:
        troupe = Troupe(url, place, seed, ROLES, GROUPS)
        while not troupe.at_work():
            time.sleep(0.01)
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            time.sleep(chance.random() * 2 * PAUSE)
            if not restarted and time.monotonic() > begin + seconds / 2:
                server.crash()
                time.sleep(0.1)
                server.start()
                restarted = time.time_ns() // 1_000
            elif chance.random() < KILLS:
                troupe.kill()
            else:
                server.terminate_sessions(database)
                terminations += 1
        troupe.end()
        last = Log("drain")
        rest, dead = drain(store, last, limit=120.0)
    records = read(troupe.logs())
    survivors = {life.log.stem for life in troupe.living if life.began * 1_000_000 < restarted}
    return Report(
        judge([*records, *last.records], rest=rest, dead=dead),
        troupe.kills,
        terminations,
        int(restarted > 0),
        len(survivors),
        len(survivors - _active(records, restarted)),
    )


def _active(records: list[Record], since: int) -> set[str]:
    """Who had a verb succeed after an instant."""
    return {record["by"] for record in records if record["phase"] == "ok" and record["at"] > since}


def births(server: Server, seed: str, rounds: int, seconds: float = 3_600.0) -> int:
    """Publishing into a group while its last message is being acked; how many rounds, none of them stranded."""
    url = server.dsn(server.create_database())
    with rota.open(url, migrate=True) as one, rota.open(url) as two, switching_often():
        return race(one.transport("t"), two.transport("t"), "ack", seed, rounds, seconds)


def main(seconds: str = "60", times: str = "2", rounds: str = "20000") -> int:
    """Print what each storm did and how it was judged; 1 if any was found guilty."""
    guilty = False
    for number in range(int(times)):
        began = time.monotonic()
        with storm_server() as server, tempfile.TemporaryDirectory() as place:
            report = storm(server, Path(place), f"storm {time.time_ns()}", float(seconds))
        print(f"storm {number + 1} ({time.monotonic() - began:.0f} s)\n{report}", flush=True)
        for kind, sentences in report.verdict.faults().items():
            print(kind, *sentences, sep="\n  ")
        guilty |= bool(report.verdict.faults()) or report.idle > 0
    with storm_server() as server:
        done = births(server, "births", int(rounds))
        print(f"publish against the last ack of its group: {done} rounds, 0 stranded")
    return int(guilty)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
