"""Handlers in processes of their own: outcomes, a child that dies, one that takes too long, a claim that is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rota

from . import never_ran, slow_to_import
from .running import Running, until

pytestmark = pytest.mark.parametrize("engine", ["memory", "sqlite"], indirect=True)


def act(payload: Any) -> Any:
    """Runs in the child."""
    what, value = payload
    if what == "return":
        return [value, os.getpid()]
    if what == "unpicklable":
        return lambda: value
    if what == "raise":
        raise LookupError(value)
    if what == "retry":
        raise rota.Retry(100, value)
    if what == "fail":
        raise rota.Fail(value)
    if what == "snooze":
        raise rota.Snooze(value)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(3)
    if what == "sleep":
        Path(value[1]).write_text(str(os.getpid()))
        time.sleep(value[0])
    return None


def on_event(event: Any) -> None:
    """Runs in the child."""
    act(event)


def test_every_outcome(store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture) -> None:
    worker = rota.Worker(store)
    worker.queue("q", concurrency=2, processes=True)(act)
    worker.transport("t", concurrency=1, processes=True)(on_event)
    queue = store.queue("q", keep_done=60, backoff_base=100)
    whats: list[tuple[str, Any]] = [("return", 5), ("raise", "x"), ("retry", "y"), ("fail", "z"), ("snooze", 100)]
    whats += [("unpicklable", 1), ("die", 0), ("exit", 0)]
    ids = dict(zip([what for what, _ in whats], queue.enqueue_many([list(what) for what in whats]), strict=True))
    store.transport("t").publish_many([("g", ["return", 1]), ("g", ["return", 2]), ("h", ["fail", "no"])])
    running(worker)
    until(lambda: sum((h := worker.health().sources[0], h.acked + h.retried + h.failed + h.released)[1:]) == 8, 60)
    until(lambda: store.transport("t").stats().messages == 0, 60)
    jobs: dict[str, Any] = {name: queue.get_job(id) for name, id in ids.items()}
    assert jobs["return"].state == "done"
    assert jobs["return"].result[0] == 5
    assert jobs["return"].result[1] != os.getpid()
    assert (jobs["raise"].state, jobs["raise"].attempts) == ("pending", 1)
    assert "LookupError: x" in jobs["raise"].last_error
    assert "in act" in jobs["raise"].last_error
    assert jobs["retry"].last_error == "y"
    assert (jobs["fail"].state, jobs["fail"].last_error) == ("dead", "z")
    assert (jobs["snooze"].attempts, jobs["snooze"].releases) == (0, 1)
    assert jobs["unpicklable"].state == "done"
    assert "died while it handled this: killed by SIGKILL" in jobs["die"].last_error
    assert "died while it handled this: exit status 3" in jobs["exit"].last_error
    assert [letter.event for letter in store.transport("t").dead_letters()] == [["fail", "no"]]
    # The log names what the handler raised, not how that came here; never its text.
    told: dict[Any, Any] = {record.job_id: record.error for record in caplog.records if hasattr(record, "job_id")}
    assert told.pop(ids["unpicklable"]) in ("AttributeError", "PicklingError")
    assert {name: told[id] for name, id in ids.items() if id in told} == {
        "raise": "LookupError",
        "retry": "Retry",
        "fail": "Fail",
        "die": "killed by SIGKILL",
        "exit": "exit status 3",
    }


@pytest.mark.parametrize("end", ["timeout", "lost"])
def test_one_that_goes_on_is_killed_and_replaced(store: rota.Store, running: Any, tmp_path: Path, end: str) -> None:
    worker = rota.Worker(store)
    worker.queue("q", concurrency=1, processes=True, timeout=1 if end == "timeout" else None, visibility=1)(act)
    queue = store.queue("q", keep_done=60, backoff_base=100)
    mark = tmp_path / "child"
    id = queue.enqueue(["sleep", [600, str(mark)]])
    running(worker)
    until(lambda: mark.exists() and mark.read_text())
    child = Path("/proc", mark.read_text())
    assert child.exists()
    if end == "lost":
        assert queue.cancel(id)
    next_one = queue.enqueue(["return", 1])
    until(lambda: (queue.get_job(next_one) or 0).state == "done")
    record = queue.get_job(id)
    if end == "timeout":
        assert record is not None
        assert (record.state, record.last_error) == ("pending", "timed out after 1 s")
        assert worker.health().sources[0].timed_out == 1
    else:
        assert record is None
        assert worker.health().sources[0].lost == 1
    until(lambda: not child.exists())


def test_a_slow_start_is_not_on_the_handlers_time(store: rota.Store, running: Any) -> None:
    worker = rota.Worker(store)
    worker.queue("q", concurrency=1, processes=True, timeout=1)(slow_to_import.handle)
    id = store.queue("q", keep_done=60).enqueue("slow")
    running(worker)
    until(lambda: worker.health().sources and worker.health().sources[0].handled, 60)
    until(lambda: worker.health().sources[0].acked == 1)
    record = store.queue("q").get_job(id)
    assert record is not None
    assert (record.state, record.result, record.last_error) == ("done", "slow", None)


def test_a_result_that_cannot_be_received_is_dropped(
    store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The work is done: it must not be done again. One that cannot even be sent is dropped in the same way."""
    worker, queue = rota.Worker(store), store.queue("q", keep_done=60)
    worker.task("q", name="load", processes=True, concurrency=1)(never_ran.result_that_loads_nowhere)
    worker.task("q", name="send", processes=True)(act)
    ids = queue.enqueue_many([rota.Item("x", name="load"), rota.Item(["unpicklable", 1], name="send")])
    running(worker)
    until(lambda: sum((h.acked + h.retried) for h in worker.health().sources) == 2, 60)
    for id in ids:
        record = queue.get_job(id)
        assert record is not None
        assert (record.state, record.result, record.attempts) == ("done", None, 1)
    dropped: list[Any] = [record for record in caplog.records if getattr(record, "event", None) == "result_dropped"]
    assert sorted(record.job_id for record in dropped) == ids


def test_one_that_cannot_start_is_not_the_items_fault(store: rota.Store) -> None:
    """What the child imports fails there: the worker says so and stops, nothing is tried until it is dead."""
    # Here, or no child of this module's other handlers could start.
    from . import not_in_children

    worker, queue = rota.Worker(store), store.queue("q", max_attempts=1)
    worker.queue("q", processes=True, concurrency=2)(not_in_children.handle)
    ids = queue.enqueue_many([1, 2, 3])
    run = Running(worker)
    run.join(60)
    assert isinstance(run.error, RuntimeError)
    assert re.search(r"a process of handle cannot start, it ended with exit status 1", str(run.error))
    assert [(job.id, job.state, job.attempts) for job in queue.jobs()] == [(id, "pending", 0) for id in ids]


def test_a_script_without_a_guard_is_told_so(sqlite_file: Path, engine: str) -> None:
    """Its children import it, and would each run a worker of their own, which takes jobs and cannot work on them."""
    if engine != "sqlite":
        return
    program = sqlite_file.with_name("script.py")
    program.write_text(UNGUARDED.format(url=f"sqlite:///{sqlite_file}"))
    ended = subprocess.run([sys.executable, program], check=False, timeout=120, capture_output=True, text=True)
    assert ended.returncode == 1
    assert 'write worker.run() under if __name__ == "__main__":' in ended.stderr
    assert ended.stderr.rstrip().endswith("see what it wrote to stderr")
    with rota.open(f"sqlite:///{sqlite_file}") as store:
        assert [(job.state, job.attempts) for job in store.queue("q").jobs()] == [("pending", 0)]


UNGUARDED = """
import rota

worker = rota.Worker({url!r})


@worker.queue("q", processes=True)
def handle(payload): ...


if __name__ == "__main__":
    with rota.open({url!r}) as store:
        store.queue("q").enqueue(1)
worker.run()
"""
