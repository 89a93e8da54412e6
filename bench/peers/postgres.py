"""Rota against its peers on PostgreSQL: one server that syncs, a fresh database for every round, rounds in turn.

Every library runs on the same Python, on uvloop where it is async, on one connection, and commits each call. The
settings of each are in ``bench/peers/libraries``. Libraries with a sync and an async API are measured with both: Rota's
sync store has to beat the faster of a peer's two, Rota's async one the peer's async API.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.measure import ROUNDS, Timed, at_least
from bench.peers.environments import REQUIREMENTS, ROOT, Missing, environment, interpreter, run
from bench.peers.libraries import PEERS, SIDES

OLDEST_PYTHON = "3.12"  # Oban's.
# The bulk form is tried with several batch sizes; for every library the size with the best median counts.
FULL = {"single": 1_000, "bulk": 20_000, "batches": [250, 1_000, 5_000, 20_000], "work": 10_000, "warm_up": 300}
SMALL = {"single": 50, "bulk": 1_000, "batches": [250, 1_000], "work": 500, "warm_up": 10}
BULK_GOALS = {"pgqueuer": 1.3}

Figures = dict[str, dict[str, Timed]]


def compare(
    url: str | None,
    folder: Path,
    python: str | None,
    measure: str,
    small: bool,
    only: list[str],
    loop: str,
    jobs: int | None = None,
) -> bool:
    """Measure and print; whether every library took part."""
    python, version = interpreter(python, OLDEST_PYTHON)
    plan = {"measure": measure, "loop": loop, **(SMALL if small else FULL)}
    if jobs is not None:
        plan["work"] = jobs
    sides = [name for name, side in SIDES.items() if not only or side.peer in ("rota", *only)]
    if measure == "work":
        sides = [name for name in sides if SIDES[name].works]
        if not any(SIDES[name].peer == "rota" for name in sides):
            print("Rota's side of this measure is not written; the peers' figures stand alone")
    missing: dict[str, str] = {}
    interpreters = _interpreters(folder, python, version, {SIDES[name].peer for name in sides}, missing)
    rounds = 1 if small else ROUNDS
    with _server(url) as admin:
        _print_facts(admin, version, plan)
        seconds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        numbers = count(1)
        for _ in range(rounds):
            for name in sides:
                peer = SIDES[name].peer
                if peer in interpreters and name not in missing:
                    try:
                        seconds[name].append(_round(admin, next(numbers), interpreters[peer], name, plan))
                    except Missing as error:
                        missing[name] = str(error)
    figures = {
        name: {what: Timed(tuple(one[what] for one in results)) for what in _ways(results[0])}
        for name, results in seconds.items()
        if len(results) == rounds
    }
    _print_figures(figures)
    for name, reason in missing.items():
        print(f"NOT MEASURED: {name}: {reason}")
    if measure == "put":
        _judge(figures, [peer for peer in PEERS if not only or peer in only])
    return not missing


def _interpreters(folder: Path, python: str, version: str, peers: set[str], missing: dict[str, str]) -> dict[str, str]:
    made = {}
    for peer in sorted(peers):
        requirements = ["-r", str(REQUIREMENTS / f"{peer}.txt")]
        if peer == "rota":
            requirements += ["-e", f"{ROOT}[postgres]"]
        try:
            made[peer] = environment(folder / f"{peer}-{version}", python, requirements)
        except Missing as error:
            missing[peer] = f"on Python {version}: {error}"
    return made


# -- Server and databases ----------------------------------------------------------------------------------------------


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    """The URL of a database whose role may create others: the one given, else on a server of our own that syncs."""
    if url is not None:
        yield url
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from postgres.server import Server

    running = Server(durable=True)
    try:
        yield running.dsn()
    finally:
        running.close()


def _round(admin: str, number: int, python: str, name: str, plan: dict[str, object]) -> dict[str, float]:
    database = f"rota_peers_{os.getpid()}_{number}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(database)))
        try:
            # What the last round left to be written is not to slow this one.
            connection.execute("CHECKPOINT")
            url = urlsplit(admin)._replace(path=f"/{database}").geturl()
            printed = run([python, "-m", "bench.peers.postgres_round", name, url, json.dumps(plan)])
            result: dict[str, float] = json.loads(printed.splitlines()[-1])
            return result
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))


def _print_facts(admin: str, version: str, plan: dict[str, object]) -> None:
    with psycopg.connect(admin, autocommit=True) as connection:
        shown = {
            name: connection.execute(sql.SQL("SHOW {}").format(sql.Identifier(name))).fetchone()
            for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes")
        }
    print("Peers on PostgreSQL:", ", ".join(f"{name} {row[0]}" for name, row in shown.items() if row))
    if any(row == ("off",) for row in shown.values()):
        print("WARNING: this server does not sync every commit; the figures say nothing of durable jobs")
    print(f"Python {version} for every library; {plan}", flush=True)


# -- Figures -----------------------------------------------------------------------------------------------------------


def _ways(result: dict[str, float]) -> list[str]:
    """One by one first, then the batches by size: a round tries them in an order of its own."""
    return sorted(result, key=lambda way: int("0" + "".join(filter(str.isdigit, way))))


def _print_figures(figures: Figures) -> None:
    for name, measured in figures.items():
        print(f"{name:<26}" + "".join(f"{what} {timed.per_second():<30}" for what, timed in measured.items()))


def _judge(figures: Figures, peers: list[str]) -> None:
    for what in ("single", "bulk"):
        for peer in peers:
            goal = 1.0 if what == "single" else BULK_GOALS.get(peer)
            if goal is None:
                continue
            for kind in ("sync", "async"):
                ours = figures.get(f"rota {kind}")
                rivals = {
                    name: _best(figures[name], what)
                    for name, side in SIDES.items()
                    if side.peer == peer and name in figures and (kind == "sync" or side.kind == "async")
                }
                if ours is None or not rivals:
                    print(f"{what}, rota {kind} / {peer}: NOT MEASURED")
                    continue
                rival = min(rivals, key=lambda name: rivals[name][1].median)
                (our_way, our_time), (their_way, their_time) = _best(ours, what), rivals[rival]
                detail = f"{our_way} {our_time.per_second()} against {their_way} {their_time.per_second()}"
                at_least(f"{what}, rota {kind} / {rival}", their_time.median / our_time.median, goal, detail)


def _best(measured: dict[str, Timed], what: str) -> tuple[str, Timed]:
    """The fastest way to do it by the median, and its figures."""
    return min(((way, timed) for way, timed in measured.items() if way.startswith(what)), key=lambda one: one[1].median)
