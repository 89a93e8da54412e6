"""Workers outlive lost listeners (case 037) and restarts of the database (case 038).

Seen in taskforcesh/bullmq 4729, timgit/pg-boss 850; tobymao/saq PR 163, janbjorge/pgqueuer 224, alexfrmn/murmur 122.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import rota
from postgres.proxy import proxy
from postgres.server import Server

from .running import Running, until

POSTGRES = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


def noting(url: str, **options: Any) -> tuple[rota.Worker, dict[Any, float]]:
    worker, starts = rota.Worker(url, **options), dict[Any, float]()

    @worker.queue("q", visibility=3)
    async def handle(payload: Any) -> None:
        starts[payload] = time.monotonic()

    return worker, starts


@POSTGRES
def test_terminated_sessions_and_jobs_enqueued_meanwhile(url: str, postgres_server: Server, running: Any) -> None:
    """037 (a), (b): everything the worker had is ended, its listening session too."""
    worker, starts = noting(url)
    running(worker)
    with rota.open(url) as store:
        queue = store.queue("q")
        queue.enqueue("first")
        until(lambda: "first" in starts)
        postgres_server.terminate_sessions(urlsplit(url).path.lstrip("/"))
        begin = time.monotonic()
        with rota.open(url) as other:
            other.queue("q").enqueue("meanwhile")
        until(lambda: "meanwhile" in starts)
        assert starts["meanwhile"] - begin < 2
        time.sleep(1.5)
        begin = time.monotonic()
        with rota.open(url) as other:
            other.queue("q").enqueue("after")
        until(lambda: "after" in starts)
        assert starts["after"] - begin < 2


@POSTGRES
def test_swallowed_traffic_and_cut_connections(url: str) -> None:
    """037 (c), (d): half-open connections, then none for a while; the worker comes back by itself."""
    with proxy(url) as between, rota.open(url) as store:
        worker, starts = noting(between.url)
        run = Running(worker)
        queue = store.queue("q")
        queue.enqueue("first")
        until(lambda: "first" in starts)
        between.silent = True
        time.sleep(1)
        queue.enqueue("swallowed")
        begin = time.monotonic()
        time.sleep(2)
        assert "swallowed" not in starts
        between.silent = False
        between.cut()
        until(lambda: "swallowed" in starts, 30)
        assert time.monotonic() - begin < 15
        run.stop()


@POSTGRES
def test_a_minute_of_ended_sessions(url: str, postgres_server: Server, running: Any) -> None:
    """038: jobs flow while all sessions are ended again and again; each is delivered, and ends once."""
    worker, starts = noting(url)
    ended = threading.Event()
    database = urlsplit(url).path.lstrip("/")

    def storm() -> None:
        while not ended.wait(0.7):
            postgres_server.terminate_sessions(database)

    run = running(worker)
    storming = threading.Thread(target=storm)
    storming.start()
    unknown = 0
    try:
        with rota.open(url) as store:
            queue = store.queue("q", max_attempts=50)
            for number in range(400):
                # A caller's key makes repeating safe where the outcome is not known.
                while True:
                    try:
                        queue.enqueue(number, key=f"k{number}")
                    except (rota.EngineUnavailable, rota.OutcomeUnknown, rota.EngineBusy):
                        unknown += 1
                        time.sleep(0.05)
                        continue
                    break
                time.sleep(0.01)
    finally:
        ended.set()
        storming.join()
    with rota.open(url) as store:
        queue = store.queue("q")
        until(lambda: queue.stats().pending == queue.stats().processing == 0, 30)
        assert queue.stats().dead == 0
    assert run.alive
    assert set(starts) == set(range(400))
    assert worker.health().sources[0].acked + worker.health().sources[0].lost >= 400


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_writers_blocked_beyond_the_busy_time(url: str, sqlite_file: Path) -> None:
    """038 on SQLite: a foreign writer holds the lock for longer than anybody waits, again and again."""
    with rota.open(url, busy_timeout=0.1) as store, rota.open(url, busy_timeout=20) as patient:
        worker, ran = rota.Worker(store), list[Any]()

        @worker.queue("q", visibility=5)
        async def handle(payload: Any) -> None:
            ran.append(payload)

        run = Running(worker)
        queue = patient.queue("q", max_attempts=50)
        queue.enqueue_many(range(200))
        with contextlib.closing(sqlite3.connect(sqlite_file, isolation_level=None, timeout=20)) as blocker:
            for number in range(200, 205):
                blocker.execute("BEGIN IMMEDIATE")
                time.sleep(0.4)
                blocker.execute("COMMIT")
                queue.enqueue(number)
        until(lambda: queue.stats().pending == queue.stats().processing == 0, 30)
        assert set(ran) == set(range(205))
        assert queue.stats().dead == 0
        run.stop()


@POSTGRES
def test_started_while_the_database_is_down(url: str) -> None:
    """It waits, with growing pauses; told to stop meanwhile, it stops."""
    with proxy(url) as between:
        where = between.url
    with rota.open(url) as store:
        store.queue("q").enqueue("work")
    worker, starts = noting(where)
    run = Running(worker)
    time.sleep(1)
    assert run.alive
    port = int(urlsplit(where).port or 0)
    with proxy(url, port=port):
        until(lambda: "work" in starts)
        run.stop()
    worker, _ = noting(where)
    run = Running(worker)
    time.sleep(0.5)
    begin = time.monotonic()
    run.stop()
    assert time.monotonic() - begin < 5


@POSTGRES
def test_arun_started_while_the_database_is_down_can_be_cancelled(url: str) -> None:
    with proxy(url) as between:
        where = between.url
    worker, _ = noting(where)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.arun(), 0.5)

    asyncio.run(main())
    assert worker.health().state == "idle"
