"""A forked child opens its own connections and leaves the parent's alone."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable

import pytest

from rota.records import NewJob
from rota.rules import DEFAULT_STAMP
from rota.wakeups import ThreadWaiter

JOB = NewJob('"payload"', DEFAULT_STAMP)

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def in_child(act: Callable[[], None]) -> None:
    """Run in a forked child that ends without the test runner's clean-up."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_parent_and_child_both_go_on(engine) -> None:
    queue = engine.queue("q")
    queue.enqueue(JOB)
    inherited = engine._writer

    def act() -> None:
        assert engine._writer is None
        assert queue.enqueue(JOB) == 2
        assert engine._writer.connection is not inherited.connection
        (claim,) = queue.claim("child", 1, None)
        assert queue.ack(claim, None)
        engine.close()
        gc.collect()

    in_child(act)
    assert engine._writer is inherited
    assert queue.stats().pending == 1
    assert [claim.id for claim in queue.claim("parent", 5, None)] == [2]
    assert engine.facts(check=True)["quick_check"] == ["ok"]


def test_a_fork_while_another_thread_writes(engine) -> None:
    """The child's locks are new: the parent's were held when it forked."""
    with engine.write_lock, engine._read_lock:
        in_child(lambda: engine.queue("q").enqueue(JOB) and None)
    assert engine.queue("q").stats().pending == 1


def test_a_fork_within_a_transaction(engine) -> None:
    def op(now):
        in_child(lambda: engine.queue("q").stats() and None)
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
