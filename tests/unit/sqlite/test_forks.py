"""A forked child opens its own connections and leaves the parent's alone."""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

import rota
from rota import forks
from rota.errors import EngineUnavailable
from rota.records import NewJob
from rota.rules import DEFAULT_STAMP
from rota.wakeups import ThreadWaiter

from ..forking import ended_well, fork, in_child

JOB = NewJob('"payload"', DEFAULT_STAMP)

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


class Pipe:
    """One word from one side of a fork to the other."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()

    def tell(self) -> None:
        os.write(self._in, b"!")

    def wait(self) -> None:
        assert os.read(self._out, 1) == b"!"


def test_parent_and_child_both_go_on(engine) -> None:
    queue = engine.queue("q")
    queue.enqueue(JOB)
    queue.stats()

    def act() -> None:
        assert engine._writer is None is engine._reader
        assert queue.enqueue(JOB) == 2
        (claim,) = queue.claim("child", 1, None)
        assert queue.ack(claim, None)
        engine.close()
        gc.collect()

    in_child(act)
    assert queue.stats().pending == 1
    assert [claim.id for claim in queue.claim("parent", 5, None)] == [2]
    assert engine.facts(check=True)["quick_check"] == ["ok"]


@pytest.mark.parametrize("kept_open", ["parent", "child"])
def test_what_one_side_commits_outlives_the_other(engine, tmp_path, kept_open) -> None:
    """A side without locks of its own would lose its log to whoever believes to be the last one."""
    queue = engine.queue("q")
    queue.enqueue(JOB)
    forked, closed = Pipe(), Pipe()

    def act() -> None:
        queue.enqueue(JOB)
        forked.tell()
        if kept_open == "child":
            closed.wait()
            queue.enqueue(JOB)
        engine.close()

    child = fork(act)
    forked.wait()
    if kept_open == "child":
        engine.close()
        visit(engine.path)
        closed.tell()
        ended_well(child)
    else:
        ended_well(child)
        queue.enqueue(JOB)
    visit(engine.path)
    with sqlite3.connect(engine.path) as check:
        assert check.execute("SELECT count(*) FROM rota_jobs").fetchone() == (3,)
    check.close()


def visit(path: str) -> None:
    """Another program, the last one to close for all it can see."""
    program = "import rota, sys; s = rota.open(sys.argv[1]); s.queues(); s.close()"
    subprocess.run([sys.executable, "-c", program, f"sqlite:///{path}"], check=True)


def test_a_fork_waits_for_another_threads_transaction(engine) -> None:
    begun = threading.Event()

    def op(now):
        begun.set()
        time.sleep(0.3)
        return True
        yield

    writing = threading.Thread(target=engine.write, args=(op,))
    writing.start()
    begun.wait()
    in_child(lambda: engine.queue("q").enqueue(JOB) and None)
    writing.join()
    assert engine.queue("q").enqueue(JOB) == 2


def test_threads_that_never_stop_do_not_spoil_a_fork(engine) -> None:
    queue, stop = engine.queue("q"), threading.Event()
    # Five of them want the writer of a disk that may be busy with other things.
    engine.busy_timeout = 20

    def work() -> None:
        while not stop.is_set():
            queue.enqueue(JOB)
            queue.stats()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_child(lambda: queue.enqueue(JOB) and None)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert engine.facts(check=True)["quick_check"] == ["ok"]


def refuses(engine) -> None:
    with pytest.raises(EngineUnavailable, match="forked"):
        engine.queue("q").enqueue(JOB)
    with pytest.raises(EngineUnavailable, match="open the store after the fork"):
        rota.open("sqlite:///" + engine.path)


def test_a_fork_within_a_transaction_has_a_child_that_refuses_the_file(engine, monkeypatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.05)

    def op(now):
        in_child(lambda: refuses(engine))
        return True
        yield

    engine.queue("q").enqueue(JOB)
    assert engine.write(op)
    assert engine.queue("q").enqueue(JOB) == 2


def test_the_parents_listener_keeps_its_socket(engine) -> None:
    waiter = ThreadWaiter("q:q")
    engine.wakeups.add(waiter)
    own = engine._listening._post.own

    def act() -> None:
        assert engine._listening._listener is None
        mine = ThreadWaiter("q:q")
        engine.wakeups.add(mine)
        engine.wakeups.wake("q:q")
        mine.wait(5)
        assert mine._event.is_set()
        engine.close()

    in_child(act)
    assert os.path.exists(own)
    waiter.wait(5)
    assert waiter._event.is_set()
    engine.wakeups.remove(waiter)


def test_many_forks_leave_the_file_whole(engine) -> None:
    queue = engine.queue("q")
    for number in range(20):
        in_child(lambda: queue.enqueue(JOB) and None)
        assert queue.enqueue(JOB) == 2 * number + 2
    assert queue.stats().pending == 40
    assert engine.facts(check=True)["quick_check"] == ["ok"]
