"""The log stays bounded, and only one process at a time moves it."""

from __future__ import annotations

import fcntl
import os
import stat

import pytest

from rota.engines.sqlite import checkpoint
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP

JOBS = [NewJob('"' + "x" * 1_000 + '"', DEFAULT_STAMP)] * 200


def churn(engine, rounds: int) -> int:
    """Write about 300 kB to the log each round; the largest it got."""
    queue, largest = engine.queue("q"), 0
    for _ in range(rounds):
        queue.enqueue_many(JOBS)
        assert queue.ack_batch(queue.claim("w", len(JOBS), None), (), "w") == len(JOBS)
        largest = max(largest, engine.checkpointer.log_size())
    return largest


def test_the_log_stays_bounded(engine) -> None:
    largest = churn(engine, 150)
    assert checkpoint.LIMIT < largest < checkpoint.CUT + 4 * checkpoint.LIMIT
    assert churn(engine, 50) < checkpoint.CUT + 4 * checkpoint.LIMIT


def test_two_engines_share_the_work(opening) -> None:
    first, second = opening(), opening()
    largest = max(churn(engine, 10) for _ in range(8) for engine in (first, second))
    assert largest < checkpoint.CUT + 4 * checkpoint.LIMIT
    assert first.queue("q").stats().pending == second.queue("q").stats().pending == 0


def test_a_large_log_is_cut_once_the_reader_is_gone(engine, path) -> None:
    """A reader's snapshot keeps the log from being written anew."""
    engine.queue("q").enqueue_many(JOBS)
    engine.queue("q").stats()
    reader = engine._reader
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM rota_jobs").fetchone()
    grown = churn(engine, 60)
    assert grown > checkpoint.CUT
    reader.execute("COMMIT")
    churn(engine, 20)
    assert engine.checkpointer.log_size() < checkpoint.CUT


def test_nobody_checkpoints_while_another_does(engine, path) -> None:
    churn(engine, 1)
    other = os.open(path + "-lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(other, fcntl.LOCK_EX)
    size = os.stat(path).st_size
    churn(engine, 40)
    assert os.stat(path).st_size == size
    fcntl.flock(other, fcntl.LOCK_UN)
    churn(engine, 40)
    assert os.stat(path).st_size > size
    os.close(other)


@pytest.mark.parametrize("made_before", [False, True])
def test_the_lock_is_for_whoever_may_write_the_database(opening, path, made_before: bool) -> None:
    """As SQLite's own files beside it: another user's worker, which could not open it, would let the log grow."""
    opening().close()
    if made_before:
        assert stat.S_IMODE(os.stat(path + "-lock").st_mode) == 0o600
    else:
        os.unlink(path + "-lock")
    os.chmod(path, 0o660)
    engine = opening()
    churn(engine, 40)
    for end in ("-lock", "-wal", "-shm"):
        assert stat.S_IMODE(os.stat(path + end).st_mode) == 0o660, end
