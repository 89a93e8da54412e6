"""The PostgreSQL engine against raw prepared statements on the same server: ``python -m bench.postgres [what] [url]``.

``what``: raw, backlog, decay, notify (all by default). Without a URL a server of its own runs with fsync on, from the
binaries the tests use. ``prepare=True`` as the yardstick does; the default, fit for a transaction pooler, is shown too.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

import rota
from bench.measure import Timed, alternate, at_least, time_of
from bench.raw_postgres import RawQueue, RawTransport

PAYLOAD = {"id": 12345, "email": "someone@example.org", "kind": "welcome"}
TEXT = json.dumps(PAYLOAD)
SINGLE, BULK, BATCH, SMALL_BATCH = 100, 1_000, 128, 32
ROUNDS = 9
GROUPS = 2_000
SMALL_BACKLOG, LARGE_BACKLOG, PROCESSED = 10_000, 1_000_000, 300_000
PRODUCERS = 8

Side = Callable[[], float]


@contextmanager
def server(url: str | None) -> Iterator[Callable[[], str]]:
    """Makes the URLs of fresh databases."""
    if url is not None:
        names = iter(range(1_000))

        def fresh_schema() -> str:
            separator = "&" if "?" in url else "?"
            return f"{url}{separator}schema=bench_{int(time.time())}_{next(names)}"

        yield fresh_schema
        return
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from postgres.server import Server

    running = Server(durable=True)
    try:
        yield lambda: running.dsn(running.create_database())
    finally:
        running.close()


# -- Against raw statements --------------------------------------------------------------------------------------------


def bench_raw(url: str) -> None:
    raw_url = url.partition("?")[0]
    with (
        rota.open(url, migrate=True, prepare=True, notify=False) as ready,
        rota.open(url, notify=False) as plain,
    ):
        jobs, messages = RawQueue(raw_url), RawTransport(raw_url)
        jobs.connection.execute("DROP SCHEMA IF EXISTS raw CASCADE")
        jobs.make_tables()
        _raw_queue(jobs, ready.queue("q"), plain.queue("q"))
        _raw_transport(messages, ready.transport("t"), plain.transport("t"))
        jobs.close()
        messages.close()


def _raw_queue(raw: RawQueue, ready: rota.Queue, plain: rota.Queue) -> None:
    _against(
        "enqueue",
        0.8,
        _times(SINGLE, lambda: raw.enqueue(TEXT)),
        *[_times(SINGLE, lambda queue=queue: queue.enqueue(PAYLOAD)) for queue in (ready, plain)],
    )
    _against(
        f"enqueue_many({BULK})",
        0.6,
        _times(5, lambda: raw.enqueue_many([TEXT] * BULK), BULK),
        *[_times(5, lambda queue=queue: queue.enqueue_many([PAYLOAD] * BULK), BULK) for queue in (ready, plain)],
    )
    held: list[list[Any]] = [[], [], []]
    _against(
        "claim",
        0.8,
        _times(SINGLE, lambda: held[0].append(raw.claim(1)[0][0])),
        _times(SINGLE, lambda: held[1].append(ready.claim_one("worker"))),
        _times(SINGLE, lambda: held[2].append(plain.claim_one("worker"))),
    )
    _against(
        "ack",
        0.8,
        _times(SINGLE, lambda: raw.ack(held[0].pop())),
        _times(SINGLE, lambda: ready.ack(held[1].pop())),
        _times(SINGLE, lambda: plain.ack(held[2].pop())),
    )
    for _ in range(4):
        raw.enqueue_many([TEXT] * 10_000)
        ready.enqueue_many([PAYLOAD] * 20_000)
    _against(
        f"claim_batch({BATCH}) + ack_batch",
        0.7,
        _times(20, lambda: raw.ack_batch([row[0] for row in raw.claim(BATCH)]), BATCH),
        *[
            _times(20, lambda queue=queue: queue.ack_batch(queue.claim_batch("worker", BATCH), "worker"), BATCH)
            for queue in (ready, plain)
        ],
    )


def _raw_transport(raw: RawTransport, ready: rota.Transport, plain: rota.Transport) -> None:
    names = [f"group-{number}" for number in range(GROUPS)]
    turns = {side: iter(names * 1_000) for side in ("raw", "ready", "plain")}
    _against(
        "publish",
        0.8,
        _times(SINGLE, lambda: raw.publish(next(turns["raw"]), TEXT)),
        _times(SINGLE, lambda: ready.publish(next(turns["ready"]), PAYLOAD)),
        _times(SINGLE, lambda: plain.publish(next(turns["plain"]), PAYLOAD)),
    )
    for _ in range(8):
        raw.publish_many(names, TEXT)
        ready.publish_many([(name, PAYLOAD) for name in names])
    held: list[list[Any]] = [[], [], []]
    _against(
        "claim of a lease",
        0.8,
        _times(SINGLE, lambda: held[0].append(raw.claim(1)[0])),
        _times(SINGLE, lambda: held[1].append(ready.claim("worker"))),
        _times(SINGLE, lambda: held[2].append(plain.claim("worker"))),
    )
    _against(
        "ack of a lease",
        0.8,
        _times(SINGLE, lambda: raw.ack(held[0].pop())),
        _times(SINGLE, lambda: ready.ack(held[1].pop())),
        _times(SINGLE, lambda: plain.ack(held[2].pop())),
    )
    _against(
        f"claim_batch({SMALL_BATCH}) + ack_batch of leases",
        0.7,
        _times(15, lambda: raw.ack_batch(raw.claim(SMALL_BATCH)), SMALL_BATCH),
        *[
            _times(15, lambda side=side: side.ack_batch(side.claim_batch("worker", SMALL_BATCH)), SMALL_BATCH)
            for side in (ready, plain)
        ],
    )


def _against(what: str, goal: float, raw: Side, ready: Side, plain: Side) -> None:
    yard, ours, unprepared = alternate(raw, ready, plain, rounds=ROUNDS)
    detail = f"{_both(ours, yard)}; unprepared {yard.median / unprepared.median:.2f}"
    at_least(f"{what} / raw", yard.median / ours.median, goal, detail)


# -- With a backlog, and after many dead rows --------------------------------------------------------------------------


class Workload:
    """The rates of one database: single jobs, batches of jobs, single leases, batches of leases."""

    NAMES = ("queue single", f"queue batch {BATCH}", "transport single", f"transport batch {SMALL_BATCH}")

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = rota.open(url, migrate=True, prepare=True, notify=False)
        self.queue, self.transport = self.store.queue("q"), self.store.transport("t")

    def fill(self, jobs: int, groups: int, messages: int) -> None:
        for start in range(0, jobs, 50_000):
            self.queue.enqueue_many([PAYLOAD] * min(50_000, jobs - start))
        names = [f"group-{number % groups}" for number in range(messages)]
        for start in range(0, messages, 50_000):
            self.transport.publish_many([(name, PAYLOAD) for name in names[start : start + 50_000]])

    def sides(self) -> list[Side]:
        queue, transport = self.queue, self.transport

        def single() -> None:
            job = queue.claim_one("worker")
            assert job is not None
            assert job.ack()

        def lease() -> None:
            claimed = transport.claim("worker")
            assert claimed is not None
            assert claimed.ack()

        return [
            _times(SINGLE, single),
            _times(15, lambda: queue.ack_batch(queue.claim_batch("worker", BATCH), "worker"), BATCH),
            _times(SINGLE, lease),
            _times(15, lambda: transport.ack_batch(transport.claim_batch("worker", SMALL_BATCH)), SMALL_BATCH),
        ]

    def process(self, jobs: int, messages: int) -> None:
        """Leaves dead rows behind; nobody vacuums."""
        while jobs > 0:
            jobs -= self.queue.ack_batch(self.queue.claim_batch("worker", BULK), "worker")
        while messages > 0:
            messages -= self.transport.ack_batch(self.transport.claim_batch("worker", BULK))

    def close(self) -> None:
        self.store.close()


def bench_backlog(url: Callable[[], str]) -> None:
    small, large = Workload(url()), Workload(url())
    small.fill(4 * SMALL_BACKLOG, GROUPS, 4 * SMALL_BACKLOG)
    large.fill(LARGE_BACKLOG, LARGE_BACKLOG // 10, LARGE_BACKLOG // 2)
    for name, ours, yard in zip(Workload.NAMES, large.sides(), small.sides(), strict=True):
        full, fresh = alternate(ours, yard)
        at_least(
            f"{name}, 1,000,000 pending / {4 * SMALL_BACKLOG:,}", fresh.median / full.median, 0.6, _both(full, fresh)
        )
    small.close()
    large.close()


def bench_decay(url: Callable[[], str]) -> None:
    """The same verbs on a database where nothing happened yet and on one that has processed a lot, in turn."""
    for old_snapshot in (False, True):
        fresh, used = Workload(url()), Workload(url())
        raw_url = used.url.partition("?")[0]
        old = psycopg.connect(raw_url)
        for side in (fresh, used):
            with psycopg.connect(side.url.partition("?")[0], autocommit=True) as connection:
                schema = side.store._core.engine.address.schema  # type: ignore[attr-defined]
                for table in ("jobs", "groups", "messages"):
                    connection.execute(f'ALTER TABLE "{schema}".{table} SET (autovacuum_enabled = false)')  # type: ignore[call-overload]
        fresh.fill(3 * SMALL_BACKLOG, GROUPS, 3 * SMALL_BACKLOG)
        used.fill(PROCESSED + 3 * SMALL_BACKLOG, GROUPS, PROCESSED // 3 + 3 * SMALL_BACKLOG)
        if old_snapshot:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT count(*) FROM pg_class")
        used.process(PROCESSED, PROCESSED // 3)
        suffix = "under an old snapshot" if old_snapshot else "without vacuum"
        for name, ours, yard in zip(Workload.NAMES, used.sides(), fresh.sides(), strict=True):
            after, before = alternate(ours, yard)
            ratio = before.median / after.median
            at_least(f"{name}, {PROCESSED:,} processed, {suffix} / fresh", ratio, 0.6, _both(after, before))
        old.close()
        fresh.close()
        used.close()


# -- NOTIFY ------------------------------------------------------------------------------------------------------------


def bench_notify(url: str) -> None:
    """Eight producers with a worker waiting elsewhere: NOTIFY on against off."""
    with (
        rota.open(url, migrate=True, prepare=True, pool_size=PRODUCERS + 2) as loud,
        rota.open(url, prepare=True, pool_size=PRODUCERS + 2, notify=False) as quiet,
        rota.open(url) as listening,
    ):
        over = threading.Event()

        def work() -> None:
            while not over.is_set():
                listening.queue("other").claim_one("worker", wait=0.2)

        waiting = threading.Thread(target=work)
        waiting.start()

        def produce(store: rota.Store) -> float:
            def run() -> None:
                threads = [
                    threading.Thread(target=lambda: [store.queue("q").enqueue(PAYLOAD) for _ in range(150)])
                    for _ in range(PRODUCERS)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            return time_of(PRODUCERS * 150, run)

        ours, yard = alternate(lambda: produce(loud), lambda: produce(quiet))
        over.set()
        waiting.join()
        at_least(f"{PRODUCERS} producers, NOTIFY on / off", yard.median / ours.median, 0.8, _both(ours, yard))


# ----------------------------------------------------------------------------------------------------------------------


def _times(count: int, run: Callable[[], Any], each: int = 1) -> Side:
    """A side that runs something ``count`` times, for ``each`` items."""
    return lambda: time_of(count * each, lambda: [run() for _ in range(count)])


def _both(ours: Timed, yard: Timed) -> str:
    return f"{ours.per_second()} against {yard.per_second()}"


def main(arguments: list[str]) -> None:
    url = next((argument for argument in arguments if "://" in argument), None)
    chosen = [argument for argument in arguments if "://" not in argument] or ["raw", "backlog", "decay", "notify"]
    with server(url) as fresh:
        place = fresh()
        with psycopg.connect(place.partition("?")[0]) as connection:
            print(f"PostgreSQL {connection.info.parameter_status('server_version')}, Python {sys.version.split()[0]}")
        if "raw" in chosen:
            bench_raw(place)
        if "backlog" in chosen:
            bench_backlog(fresh)
        if "decay" in chosen:
            bench_decay(fresh)
        if "notify" in chosen:
            bench_notify(fresh())


if __name__ == "__main__":
    main(sys.argv[1:])
