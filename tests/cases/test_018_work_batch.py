"""``rota work`` with jobs in front of it that it cannot run, or that take longer than a lease.

Seen in dbos-inc/dbos-transact-py 546, taskiq-python/taskiq 569 and celery/kombu 1198.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path

import rota

from .command import ended, start

NOTE = "import os, sys, time; open(sys.argv[1], 'a').write(os.environ['ROTA_ID'] + '\\n'); time.sleep(0.7)"


def test_bad_job_strands_nothing_and_no_job_starts_on_a_lapsed_lease(tmp_path: Path) -> None:
    """Five jobs, one at a time, each longer than half the visibility, two workers: each runs once."""
    path, notes = tmp_path / "batch.db", tmp_path / "starts"
    url = f"sqlite:///{path}"
    with rota.open(url) as store:
        queue = store.queue("q", keep_done=60)
        ids = queue.enqueue_many(range(5))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tampering:
            # As after a change of the payload's form, or a hand in the database.
            tampering.execute("UPDATE rota_jobs SET payload = '{broken' WHERE id = ?", (ids[1],))
        workers = [
            start(
                url,
                "work",
                "queue:q",
                "-j",
                "1",
                "--visibility",
                "1",
                "--drain",
                "--",
                sys.executable,
                "-c",
                NOTE,
                str(notes),
            )
            for _ in range(2)
        ]
        for worker in workers:
            ended(worker)
        started = sorted(int(line) for line in notes.read_text().split())
        assert started == [ids[0], *ids[2:]]
        assert {queue.get_job(id).attempts for id in started} == {1}
        assert {queue.get_job(id).state for id in started} == {"done"}
        (letter,) = queue.dead_letters()
        assert letter.id == ids[1]
        assert "JSON" in letter.last_error or "decode" in letter.last_error


def test_command_that_does_not_exist_strands_nothing(tmp_path: Path) -> None:
    """No handler for anything: an error once, and every job is left as it was."""
    url = f"sqlite:///{tmp_path / 'none.db'}"
    with rota.open(url) as store:
        queue = store.queue("q")
        queue.enqueue_many(range(5))
        worker = start(url, "work", "queue:q", "-j", "3", "--", str(tmp_path / "no such command"))
        _, err = worker.communicate(timeout=60)
        assert worker.returncode != 0
        assert "no such command" in err
        assert "Traceback" not in err
        assert [(job.state, job.attempts) for job in queue.jobs()] == [("pending", 0)] * 5
