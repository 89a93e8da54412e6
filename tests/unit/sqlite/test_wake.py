"""Wake-ups between processes, and what is beneath them."""

from __future__ import annotations

import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rota.engines.sqlite import mailbox, wake
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP
from rota.wakeups import ThreadWaiter

JOB = NewJob('"payload"', DEFAULT_STAMP)


def awake(waiter: ThreadWaiter, seconds: float = 5) -> bool:
    waiter.wait(seconds)
    woken = waiter._event.is_set()
    waiter.clear()
    return woken


@pytest.fixture
def waiting(engine):
    waiter = ThreadWaiter("q:q")
    engine.wakeups.add(waiter)
    yield waiter
    engine.wakeups.remove(waiter)


def test_another_engine_is_woken_by_its_address_alone(engine, opening, waiting) -> None:
    other, elsewhere = opening(), ThreadWaiter("q:other")
    engine.wakeups.add(elsewhere)
    other.wakeups.wake("q:q")
    assert awake(waiting)
    assert not awake(elsewhere, 0.02)


def test_a_name_of_any_length_gets_through(engine, opening) -> None:
    address = "t:" + "\U0001f600" * 255
    waiter = ThreadWaiter(address)
    engine.wakeups.add(waiter)
    opening().wakeups.wake(address)
    assert awake(waiter)
    engine.wakeups.remove(waiter)


def test_sockets_are_in_a_folder_for_the_owner_alone(engine, waiting) -> None:
    own = Path(engine._listening._post.own)
    assert own.parent.stat().st_mode & 0o777 == own.parent.parent.stat().st_mode & 0o777 == 0o700
    assert own.stat().st_mode & 0o777 == 0o600
    engine.close()
    assert not own.exists()
    assert not own.parent.exists()


def test_a_stale_socket_is_removed(engine, opening, waiting) -> None:
    stale = Path(engine._listening._post.folder) / "1-dead"
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(stale))
    dead.close()
    assert stale.exists()
    opening().wakeups.wake("q:q")
    assert awake(waiting)
    assert not stale.exists()


def test_nothing_is_sent_into_a_folder_open_to_others(engine, opening, waiting) -> None:
    folder = engine._listening._post.folder
    os.chmod(folder, 0o777)
    try:
        sender = opening()._listening._post
        assert sender._others() == ()
    finally:
        os.chmod(folder, 0o700)


def test_a_full_socket_neither_blocks_nor_raises(path, tmp_path) -> None:
    post = mailbox.Post(path)
    box = mailbox.Mailbox(post.folder)
    try:
        started = time.monotonic()
        for _ in range(5_000):
            post.send("q:q")
        assert time.monotonic() - started < 5
        assert box.wait(0) == {"q:q"}
    finally:
        box.close()
        post.close()


def test_a_writer_that_sends_nothing_is_noticed(engine, path, waiting) -> None:
    """The probe beneath the datagrams: any other connection's commit wakes."""
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO rota_queues (name) VALUES ('x')")
    other.close()
    assert awake(waiting, 1)


def test_without_sockets_the_probe_does_it(opening, monkeypatch) -> None:
    monkeypatch.setattr(mailbox, "available", lambda: False)
    engine, other = opening(), opening()
    waiter = ThreadWaiter("q:q")
    engine.wakeups.add(waiter)
    other.queue("q").enqueue(JOB)
    other.wakeups.wake("q:q")
    assert awake(waiter, 1)
    engine.wakeups.remove(waiter)


def test_own_commits_wake_nobody(engine, waiting) -> None:
    """Whoever waits here is woken by address, not by each commit of this process."""
    time.sleep(0.1)
    waiting.clear()
    for _ in range(5):
        engine.queue("other").enqueue(JOB)
        assert not awake(waiting, 0.06)


def test_where_threads_cannot_be_started_there_is_no_listener(engine, monkeypatch) -> None:
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    waiter = ThreadWaiter("q:q")
    engine.wakeups.add(waiter)
    assert engine._listening._listener is None
    engine.wakeups.wake("q:q")
    assert awake(waiter, 0)
    engine.wakeups.remove(waiter)


def test_the_listener_ends_when_nobody_has_waited_for_a_while(engine, monkeypatch) -> None:
    monkeypatch.setattr(wake, "LINGERING", 0.05)
    waiter = ThreadWaiter("q:q")
    engine.wakeups.add(waiter)
    thread = engine._listening._listener._thread
    engine.wakeups.remove(waiter)
    thread.join(5)
    assert not thread.is_alive()
    assert engine._listening._listener is None
    engine.wakeups.add(waiter)
    assert engine._listening._listener is not None
    engine.wakeups.remove(waiter)


def test_close_ends_the_listener_and_wakes(engine, waiting) -> None:
    thread = engine._listening._listener._thread
    engine.close()
    assert awake(waiting, 0)
    assert engine.wakeups.closed
    assert not thread.is_alive()


_ENQUEUE = """
import sys, time
from rota.engines.sqlite import open_sqlite
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP
engine = open_sqlite(sys.argv[1], url="", now=lambda: time.time_ns() // 1000, durability="normal")
for _ in range(30):
    time.sleep(0.01)
    engine.queue("q").enqueue(NewJob(str(time.monotonic_ns()), DEFAULT_STAMP))
    engine.wakeups.wake("q:q")
engine.close()
"""


def test_a_job_of_another_process_is_there_within_milliseconds(opening, path, clock) -> None:
    engine = opening(now=lambda: time.time_ns() // 1_000)
    queue, waiter = engine.queue("q"), ThreadWaiter("q:q")
    engine.wakeups.add(waiter)
    process = subprocess.Popen([sys.executable, "-c", _ENQUEUE, path])
    took: list[float] = []
    end = time.monotonic() + 60
    while len(took) < 30 and time.monotonic() < end:
        waiter.clear()
        for claim in queue.claim("w", 10, None):
            took.append((time.monotonic_ns() - int(claim.payload)) / 1e6)
        if len(took) < 30:
            waiter.wait(5)
    assert process.wait(30) == 0
    assert len(took) == 30
    # Milliseconds. Far above what it takes (0.3) and below what the probe alone would (25): the datagrams do it.
    assert statistics.median(took) < 10
    engine.wakeups.remove(waiter)
