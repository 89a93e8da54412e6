"""Rota against its peers: ``python -m bench.peers [sqlite | postgres] [URL] [ENVIRONMENTS]``.

Without a word SQLite is compared. ``URL`` is a PostgreSQL database whose role may create others (default: a server of
our own that syncs). Virtual environments, one per peer with the pinned version, are made on first use below
ENVIRONMENTS (default: a folder in the temporary directory).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.peers.environments import DEFAULT_FOLDER
from bench.peers.libraries import PEERS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition(":")[0])
    parser.add_argument("words", nargs="*", metavar="sqlite | postgres | URL | ENVIRONMENTS")
    only_postgres = parser.add_argument_group("postgres only")
    only_postgres.add_argument("--measure", choices=("put", "work"), default="put")
    only_postgres.add_argument("--small", action="store_true", help="one round with few jobs: does everything run?")
    only_postgres.add_argument("--jobs", type=int, help="how many a worker has in each round (10,000)")
    only_postgres.add_argument("--only", choices=PEERS, action="append", default=[], help="this peer; repeatable")
    only_postgres.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    only_postgres.add_argument("--python", help="the interpreter for every environment; default: 3.12 or newer, if any")
    given = parser.parse_intermixed_args(arguments)
    urls = [word for word in given.words if "://" in word]
    engines = [word for word in given.words if word in ("sqlite", "postgres")]
    folders = [word for word in given.words if word not in (*urls, *engines)]
    if max(map(len, (urls, engines, folders))) > 1:
        parser.error("at most one each of sqlite or postgres, URL and ENVIRONMENTS")
    folder = Path(folders[0]).absolute() if folders else DEFAULT_FOLDER
    if engines == ["postgres"]:
        from bench.peers import postgres

        url = urls[0] if urls else None
        complete = postgres.compare(
            url, folder, given.python, given.measure, given.small, given.only, given.loop, given.jobs
        )
        return 0 if complete else 1
    if urls:
        parser.error("a URL goes with postgres")
    from bench.peers import sqlite

    sqlite.compare(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
