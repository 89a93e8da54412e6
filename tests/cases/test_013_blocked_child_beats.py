"""A handler that blocks does not lose its lease to a starved heartbeat.

Seen in tobymao/saq 209, agno-agi/agno PR 9512 and janbjorge/pgqueuer 430. Of workers this stage has ``rota work``: its
commands block as long as they like.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import threading
import time
from pathlib import Path

import rota

from .command import ended, start

VISIBILITY = 0.9


def test_command_longer_than_its_lease_keeps_it(tmp_path: Path) -> None:
    """Three times the visibility, a second worker looking on: one delivery each, acked; one failed beat is no end."""
    url = f"sqlite:///{tmp_path / 'beats.db'}"
    with rota.open(url) as store:
        queue, transport = store.queue("q", keep_done=60), store.transport("t")
        job_id = queue.enqueue("work")
        transport.publish("g", "work")
        worker = start(
            f"{url}?busy_timeout=0.05",
            "work",
            "queue:q",
            "transport:t",
            "-j",
            "2",
            "--visibility",
            str(VISIBILITY),
            "--drain",
            "--",
            sys.executable,
            "-c",
            "import time; time.sleep(2.7)",
        )
        while queue.get_job(job_id).state == "pending" or not transport.stats().leased:
            time.sleep(0.01)
        with contextlib.closing(sqlite3.connect(tmp_path / "beats.db", isolation_level=None, timeout=5)) as blocker:
            time.sleep(0.15)
            blocker.execute("BEGIN IMMEDIATE")
            # Over the time of the first beat (0.3 of the visibility): that one fails.
            time.sleep(0.3)
            blocker.execute("COMMIT")
        while worker.poll() is None:
            assert queue.claim_one("idle") is None
            assert transport.claim("idle") is None
            time.sleep(0.02)
        ended(worker)
        record = queue.get_job(job_id)
        assert (record.state, record.attempts) == ("done", 1)
        assert transport.groups() == []


def test_beats_from_another_thread_while_the_loop_is_blocked(url: str) -> None:
    """The sync facade of the same store beats for a coroutine that blocks its loop."""

    async def main() -> None:
        async with rota.aopen(url) as store:
            queue = store.queue("q")
            await queue.enqueue("work")
            job = await queue.claim_one("w", visibility=0.3)
            assert job is not None
            sync = store.as_sync().queue("q")
            over = threading.Event()
            claims: list[object] = []

            def beat() -> None:
                held = rota.Job(job._claim, job.payload, sync)
                while not over.wait(0.08):
                    assert held.heartbeat()
                    claims.append(sync.claim_one("idle"))

            beating = threading.Thread(target=beat)
            beating.start()
            time.sleep(0.9)  # noqa: ASYNC251 (blocking the loop is the point)
            over.set()
            beating.join()
            assert len(claims) > 3
            assert claims == [None] * len(claims)
            assert await job.ack()

    asyncio.run(main())
