"""One round of one library, in its environment: ``python -m bench.peers.postgres_round SIDE URL PLAN``.

``PLAN`` is JSON: ``measure`` (put or work) and the counts. Prints JSON, seconds per job: ``single`` and ``bulk`` by
batch size; or ``work``, from the start of the worker until the table shows every job done.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Awaitable
from importlib import import_module
from typing import Any

import psycopg

from bench.peers.libraries import SIDES, Countdown, Library, Payload

FILL = 1_000
POLL = 0.02


async def round_of(library: Library, url: str, plan: dict[str, Any]) -> dict[str, float]:
    await library.open(url)
    try:
        stored = await warm_up(library, plan["warm_up"])
        if plan["measure"] == "put":
            single = payloads(plan["single"])
            figures = {"single": await per_job(len(single), library.single(single))}
            stored += len(single)
            # No size is always the first, in the emptiest table.
            for batch in random.sample(plan["batches"], len(plan["batches"])):
                bulk = payloads(plan["bulk"])
                figures[f"bulk of {batch:,}"] = await per_job(len(bulk), library.bulk(bulk, batch))
                stored += len(bulk)
            check(library, url, stored)
        else:
            await library.bulk(payloads(plan["work"]), FILL)
            stored += plan["work"]
            check(library, url, stored)
            figures = {"work": await per_worked_job(library, url, stored)}
        return figures
    finally:
        await library.close()


async def warm_up(library: Library, count: int) -> int:
    """Connections, prepared statements, plans and the first pages of every table; how many jobs it stored."""
    await library.single(payloads(count))
    bulk = payloads(2 * FILL)
    await library.bulk(bulk, FILL)
    return count + len(bulk)


def payloads(count: int) -> list[Payload]:
    return [{"id": 12345, "email": "someone@example.org", "kind": "welcome"} for _ in range(count)]


async def per_job(count: int, run: Awaitable[None]) -> float:
    gc.collect()
    start = time.perf_counter()
    await run
    return (time.perf_counter() - start) / count


async def per_worked_job(library: Library, url: str, count: int) -> float:
    """A worker runs dry only when it has settled its jobs: what it still has to write is part of the work."""
    with psycopg.connect(url, autocommit=True) as connection:
        # A queue in use has statistics: nobody is to be planned for an empty table.
        connection.execute("ANALYZE")
    gc.collect()
    handled = Countdown(count)
    working = asyncio.create_task(library.work(url, handled))
    handling = asyncio.create_task(handled.over.wait())
    await asyncio.wait([working, handling], return_when=asyncio.FIRST_COMPLETED)
    if not handled.over.is_set():
        handling.cancel()
        await working
        raise RuntimeError(f"the worker ended with {handled.left} jobs unhandled")
    with psycopg.connect(url, autocommit=True) as connection:
        while count_left(library, connection):  # noqa: ASYNC110
            await asyncio.sleep(POLL)
    seconds = (time.perf_counter() - handled.start) / count
    await asyncio.wait_for(working, 60)
    return seconds


def check(library: Library, url: str, count: int) -> None:
    """A library that lost jobs, or never stored them, is not compared."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = count_left(library, connection)
    if found != count:
        raise RuntimeError(f"{count} jobs were enqueued, the table has {found}")


def count_left(library: Library, connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute(library.left.encode()).fetchone()
    assert row is not None
    return row[0]


def main(name: str, url: str, plan: str) -> None:
    side = SIDES[name]
    library: Library = getattr(import_module(f"bench.peers.libraries.{side.module}"), side.name)()
    run = asyncio.run
    if json.loads(plan)["loop"] == "uvloop":
        import uvloop

        run = uvloop.run
    print(json.dumps(run(round_of(library, url, json.loads(plan)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
