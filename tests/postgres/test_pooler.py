"""Behind a pooler that gives each transaction another session (as PgBouncer's transaction mode does)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from postgres.pooler import Pooler
from postgres.server import Server, _other_user
from rota.engines.postgres import listening
from rota.testing.tck.base import Started


@pytest.fixture(params=["ours", "pgbouncer"])
def pooled_url(
    request: pytest.FixtureRequest, postgres_url: str, postgres_server: Server, tmp_path: Path
) -> Iterator[str]:
    """The database through a pooler: our own always, PgBouncer where it is installed."""
    if request.param == "ours":
        pooler = Pooler(postgres_url, sessions=3)
        yield pooler.url
        pooler.close()
        return
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not os.path.exists(program):
        # Not a skip: our own pooler is stricter, and this run of it stands in.
        pooler = Pooler(postgres_url, sessions=1)
        yield pooler.url
        pooler.close()
        return
    yield from _pgbouncer(program, postgres_url)


def _pgbouncer(program: str, url: str) -> Iterator[str]:
    import tempfile

    options = psycopg.conninfo.conninfo_to_dict(url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="rota-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "ini").write_text(
            f"[databases]\n* = host={options['host']} port={options['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 100\n"
            "server_round_robin = 1\n"
        )
        user = _other_user()
        identity: dict[str, Any] = (
            {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        )
        with open(os.devnull, "wb") as nowhere:
            process = subprocess.Popen([program, folder / "ini"], stdout=nowhere, stderr=nowhere, cwd="/", **identity)
        try:
            pooled = url.replace(f":{options['port']}/", f":{port}/")
            deadline = time.monotonic() + 10
            while True:
                try:
                    psycopg.connect(pooled).close()
                    break
                except psycopg.OperationalError:
                    assert time.monotonic() < deadline
                    assert process.poll() is None
                    time.sleep(0.02)
            yield pooled
        finally:
            process.terminate()
            process.wait(10)


def test_two_workers_two_producers_a_thousand_jobs(pooled_url: str) -> None:
    done: Counter[int] = Counter()
    order: dict[str, list[int]] = {}

    async def produce(store: rota.AsyncStore, start: int) -> None:
        queue, transport = store.queue("q"), store.transport("t")
        for number in range(start, start + 500, 10):
            for one in range(number, number + 5):
                await queue.enqueue(one)
            await queue.enqueue_many(range(number + 5, number + 10))
            await transport.publish_many([(f"g{start}-{number % 70}", one) for one in range(number, number + 10)])

    async def work(store: rota.AsyncStore, worker: str) -> None:
        queue, transport = store.queue("q"), store.transport("t")
        idle = 0
        while idle < 2:
            jobs = await queue.claim_batch(worker, 20, wait=0.5)
            leases = await transport.claim_batch(worker, 20)
            for job in jobs:
                done[job.payload] += 1
            for lease in leases:
                order.setdefault(lease.group_id, []).append(lease.event)
            assert await queue.ack_batch(jobs, worker) == len(jobs)
            assert await transport.ack_batch(leases) == len(leases)
            idle = 0 if jobs or leases else idle + 1

    async def main() -> None:
        async with rota.aopen(pooled_url, notify=False) as one, rota.aopen(pooled_url, notify=False) as two:
            await asyncio.gather(produce(one, 0), produce(two, 500), work(one, "w1"), work(two, "w2"))

    asyncio.run(main())
    assert done == Counter(range(1000))
    assert sum(map(len, order.values())) == 1000
    assert all(events == sorted(events) for events in order.values())


def test_sync_verbs_of_every_kind(pooled_url: str) -> None:
    with rota.open(pooled_url, notify=False) as store:
        queue, transport = store.queue("q", keep_done=60), store.transport("t", max_deliveries=2)
        queue.enqueue_many([{"n": number} for number in range(30)])
        jobs = queue.claim_batch("w", 30)
        assert queue.heartbeat_batch(jobs) == []
        assert jobs[0].ack("done")
        assert jobs[1].retry("again", delay=0)
        assert jobs[2].fail("no")
        assert jobs[3].release()
        assert queue.ack_batch(jobs[4:], "w") == 26
        stats = queue.stats()
        assert (stats.pending, stats.dead, stats.processing) == (2, 1, 0)
        assert queue.redrive("all") == [jobs[2].id]
        transport.publish("g", 1, key="k")
        lease = transport.claim("w")
        assert lease is not None
        assert lease.nack(delay=0)
        assert transport.suspend("g")
        assert transport.claim("w") is None
        assert transport.resume("g")
        assert transport.claim("w").ack()  # type: ignore[union-attr]
        assert queue.sweep_expired() == 0
        assert transport.sweep() == 0


def test_nothing_is_left_in_the_sessions(pooled_url: str, postgres_url: str) -> None:
    with rota.open(pooled_url, notify=False, migrate=True) as store:
        store.queue("q").enqueue(1)
        store.queue("q").claim_batch("w", 1)
        with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as seen:
            for _ in range(6):
                assert seen.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
                assert seen.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
                assert seen.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)


def test_migrating_through_it(pooled_url: str) -> None:
    for _ in range(2):
        with rota.open(pooled_url, schema="through", migrate=True, notify=False) as store:
            store.queue("q").enqueue(1)
    with rota.open(pooled_url, schema="through", notify=False) as store:
        assert store.queue("q").stats().pending == 2


def test_listening_through_it_is_reported_once_and_polling_goes_on(
    pooled_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_CIRCLE_PATIENCE", 0.3)
    monkeypatch.setattr(listening, "_DEAF_PAUSE", 0.3)
    caplog.set_level(logging.WARNING, "rota")
    with rota.open(pooled_url) as worker, rota.open(postgres_url) as producer:
        for _ in range(2):
            waiting = Started(worker.queue("q").claim_one, "w", wait=5)
            time.sleep(0.8)
            producer.queue("q").enqueue(1)
            began = time.monotonic()
            assert waiting.result().ack()
            assert time.monotonic() - began < 1
        assert [record.name for record in caplog.records] == ["rota.postgres"]
        assert "listen_url=" in caplog.text
    # With the server's own address beside it everything is heard.
    with rota.open(pooled_url, listen_url=postgres_url) as worker, rota.open(pooled_url, notify=False) as other:
        with worker.listen("c", timeout=5) as heard:
            other.notify("c", "through the pooler")
            assert next(heard) == "through the pooler"
        assert worker._core.engine.listening == "listening"  # type: ignore[attr-defined]
