"""The beginning of a run: a stop that comes before it, a store that cannot be opened, now or ever."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rota

from .running import Running, until

SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def handled(url: str | rota.Store) -> tuple[rota.Worker, list[Any]]:
    worker, seen = rota.Worker(url), list[Any]()
    worker.queue("q")(seen.append)
    return worker, seen


# -- A stop before the run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["stop", "finish"])
@SQLITE
def test_told_before_its_run_it_ends_that_run_at_once_and_no_other(
    store: rota.Store, url: str, running: Any, order: str
) -> None:
    store.queue("q").enqueue(1)
    worker, seen = handled(url)
    getattr(worker, order)()
    worker.stop()
    begin = time.monotonic()
    worker.run()
    assert time.monotonic() - begin < 1
    assert seen == []
    assert worker.health().state == "idle"
    one: Running = running(worker)
    until(lambda: seen == [1])
    one.stop()


def test_stop_right_after_the_thread_was_started(url: str) -> None:
    """Wherever in its beginning the run is met: it ends."""
    for wait in (0.0, 0.0, 0.0005, 0.002, 0.005, 0.02) * 3:
        worker, _ = handled(url)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        time.sleep(wait)
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_stop_during_a_run_does_not_end_the_next_one(store: rota.Store, running: Any) -> None:
    worker, seen = handled(store)
    one: Running = running(worker)
    until(lambda: worker.health().state == "working")
    for _ in range(5):
        worker.stop()
    one.join()
    store.queue("q").enqueue(1)
    two: Running = running(worker)
    until(lambda: seen == [1])
    two.stop()


def test_a_run_that_is_refused_uses_up_no_stop(store: rota.Store, running: Any) -> None:
    empty = rota.Worker(store)
    empty.stop()
    with pytest.raises(RuntimeError, match="no handlers"):
        empty.run()
    empty.queue("q")(lambda payload: None)
    empty.run()


# -- A store that cannot be opened -----------------------------------------------------------------------------------


def test_what_waiting_does_not_help_with_is_raised_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, and long enough to be seen as none " * 20)
    (tmp_path / "folder.db").mkdir()
    for path in ("missing/app.db", "text.db", "folder.db", "text.db/app.db"):
        begin = time.monotonic()
        worker, _ = handled(f"sqlite:///{tmp_path}/{path}")
        with pytest.raises(rota.EngineUnavailable) as caught:
            worker.run()
        assert caught.value.lasting, path
        assert time.monotonic() - begin < 2


def test_a_database_that_is_damaged_ends_the_run(sqlite_file: Path) -> None:
    url = f"sqlite:///{sqlite_file}"
    worker, _ = handled(url)
    one = Running(worker)
    until(lambda: worker.health().state == "working")
    sqlite_file.unlink()
    one.join()
    assert isinstance(one.error, rota.EngineUnavailable)
    assert "deleted or replaced" in str(one.error)


def test_a_busy_file_is_waited_for(sqlite_file: Path, running: Any) -> None:
    url = f"sqlite:///{sqlite_file}?busy_timeout=0.05"
    blocker = sqlite3.connect(sqlite_file, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    worker, seen = handled(url)
    one: Running = running(worker)
    time.sleep(0.5)
    assert worker.health().state == "opening"
    blocker.execute("COMMIT")
    blocker.close()
    until(lambda: worker.health().state == "working")
    with rota.open(url) as store:
        store.queue("q").enqueue(1)
        until(lambda: seen == [1])
    one.stop()


def test_waiting_ends_at_a_stop(running: Any) -> None:
    worker, _ = handled("postgresql://nobody@127.0.0.1:1/nothing")
    one: Running = running(worker)
    time.sleep(1)
    assert worker.health().state == "opening"
    begin = time.monotonic()
    one.stop()
    assert time.monotonic() - begin < 0.5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_ends_at_a_signal(number: signal.Signals) -> None:
    worker, _ = handled("postgresql://nobody@127.0.0.1:1/nothing")
    earlier = signal.getsignal(number)

    def send() -> None:
        until(lambda: worker.health().state == "opening" and signal.getsignal(number) != earlier)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    worker.run()
    sender.join()
    assert worker.stopped_by == (number,)
    assert worker.health().state == "idle"
    assert signal.getsignal(number) is earlier


@SQLITE
def test_cancelled_while_it_opens_it_leaves_no_store_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[rota.Store] = []
    go_on = threading.Event()
    real = rota.open

    def slow(url: str) -> rota.Store:
        go_on.wait(10)
        opened.append(real(url))
        return opened[-1]

    monkeypatch.setattr("rota.sync.store.open", slow)
    worker, _ = handled(url)

    async def main() -> None:
        task = asyncio.create_task(worker.arun(signals=False))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    go_on.set()
    until(lambda: opened and opened[0].closed)
    assert worker.health().state == "idle"


def test_a_worker_that_waits_for_its_store_runs_already(tmp_path: Path, running: Any) -> None:
    """What is said of it now would hold for half of that run, and a step would open the store beside it."""
    file = tmp_path / "late.db"
    with rota.open(f"sqlite:///{file}"):
        pass
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("BEGIN EXCLUSIVE")
    worker, seen = handled(f"sqlite:///{file}?busy_timeout=0.1")
    one: Running = running(worker)
    until(lambda: worker.health().state == "opening")
    for act in (
        worker.step,
        worker.drain,
        worker.run,
        lambda: worker.bind("memory://"),
        lambda: worker.configure(grace=1, worker_id=None),
        lambda: worker.queue("other")(lambda payload: None),
    ):
        with pytest.raises(RuntimeError, match="this worker runs"):
            act()
    writer.close()
    with rota.open(f"sqlite:///{file}") as store:
        store.queue("q").enqueue(1)
    until(lambda: seen == [1])
    one.stop()
    worker.bind("memory://")
