"""The end of a worker: by signals, by ``stop``, by being killed; what it held is never stranded and rarely counted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota

from .running import Running, until, worker_threads

PROGRAM = Path(__file__).with_name("programs.py")
DURABLE = pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
# Twenty processes take their time to begin, and what ends them is the same on every engine.
KINDS = [("sqlite", "process"), *((engine, how) for engine in ("sqlite", "postgresql") for how in ("async", "thread"))]


class Program:
    """The process, and what its handlers noted."""

    def __init__(self, url: str, how: str, takes: float, grace: float | None, log: Path) -> None:
        self._log = log
        self.said = b""
        words = [sys.executable, str(PROGRAM), url, how, str(takes), str(grace), str(log)]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE)

    def notes(self, what: str) -> list[str]:
        """The payloads noted under this word."""
        text = self._log.read_text() if self._log.exists() else ""
        return [line.partition(" ")[2] for line in text.splitlines() if line.split()[0] == what]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = 20) -> int:
        """Its exit status."""
        _, self.said = self.process.communicate(timeout=seconds)
        return self.process.returncode


@pytest.fixture
def program(url: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts the program on the test's store."""
    started: list[Program] = []

    def start(how: str, takes: float, grace: float | None) -> Program:
        started.append(Program(url, how, takes, grace, tmp_path / "notes"))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def filled(store: rota.Store) -> Any:
    """Twenty jobs that may be tried once."""
    queue = store.queue("q", max_attempts=1)
    queue.enqueue_many(range(20))
    return queue


@pytest.mark.parametrize(("engine", "how"), KINDS, indirect=["engine"])
def test_sigterm_lets_running_handlers_end(store: rota.Store, program: Callable[..., Program], how: str) -> None:
    """Twenty run, five wait: what runs ends inside the grace, the others are claimable at once."""
    queue = filled(store)
    # Processes begin one after the other.
    running = program(how, 4 if how == "process" else 1.5, 20)
    until(lambda: len(running.notes("start")) == 20, 60)
    queue.enqueue_many(range(20, 25))
    running.send(signal.SIGTERM)
    begin = time.monotonic()
    assert running.ended() == 0
    assert time.monotonic() - begin < 10
    ended = running.notes("end")
    assert len(ended) >= 20
    assert sorted(ended) == sorted(running.notes("start"))
    assert running.notes("returned") == [""]
    jobs = queue.claim_batch("next", 99)
    assert len(jobs) + len(ended) == 25
    assert all(job.attempts == 1 for job in jobs)
    assert queue.stats().dead == 0


@pytest.mark.parametrize(
    ("engine", "how", "number"),
    [
        *((engine, how, signal.SIGTERM) for engine, how in KINDS),
        ("sqlite", "blocking", signal.SIGTERM),
        ("postgresql", "blocking", signal.SIGINT),
        ("sqlite", "async", signal.SIGINT),
        ("postgresql", "thread", signal.SIGINT),
    ],
    indirect=["engine"],
)
def test_after_the_grace_all_is_claimable_at_once(
    store: rota.Store, program: Callable[..., Program], how: str, number: int
) -> None:
    """Handlers that go on are cancelled, killed or left; attempts are given back. Also where one blocks the loop."""
    queue = filled(store)
    store.transport("t", max_deliveries=1).publish("g", "event")
    running = program(how, 60, 0.5)
    until(lambda: len(running.notes("start")) >= (1 if how == "blocking" else 21), 60)
    time.sleep(0.2)
    running.send(number)
    begin = time.monotonic()
    assert running.ended() == 0
    assert time.monotonic() - begin < 8
    assert running.notes("end") == []
    # A handler that was broken off is told as an event, not as an exception nobody fetched.
    assert b"Traceback" not in running.said
    assert b"never retrieved" not in running.said
    assert (b"handler_broken_off source=queue:q job_id=" in running.said) == (how == "blocking")
    jobs = queue.claim_batch("next", 99)
    assert len(jobs) == 20
    assert all(job.attempts == 1 for job in jobs)
    lease = store.transport("t").claim("next")
    assert lease is not None
    assert lease.deliveries == 1


@DURABLE
def test_second_signal_ends_now(store: rota.Store, program: Callable[..., Program]) -> None:
    """Without a limit to the grace."""
    queue = filled(store)
    running = program("async", 60, None)
    until(lambda: len(running.notes("start")) == 20, 60)
    running.send(signal.SIGTERM)
    time.sleep(1)
    assert running.process.poll() is None
    begin = time.monotonic()
    running.send(signal.SIGTERM)
    assert running.ended() == 0
    assert time.monotonic() - begin < 3
    assert len(queue.claim_batch("next", 99)) == 20


@pytest.mark.parametrize(
    ("engine", "how"), [("sqlite", "async"), ("sqlite", "process"), ("postgresql", "async")], indirect=["engine"]
)
def test_killed_worker(store: rota.Store, program: Callable[..., Program], how: str) -> None:
    """All are claimable after the visibility, their attempts counted; a child does not go on without its parent."""
    queue = store.queue("q", max_attempts=5)
    queue.enqueue_many(range(20))
    running = program(how, 4, 20)
    until(lambda: len(running.notes("start")) == 20, 60)
    running.send(signal.SIGKILL)
    running.ended()
    assert queue.claim_one("early") is None
    jobs: list[Any] = []
    begin = time.monotonic()
    while len(jobs) < 20:
        jobs += queue.claim_batch("next", 99, wait=5)
        assert time.monotonic() - begin < 8
    assert all(job.attempts == 2 for job in jobs)
    time.sleep(max(0.0, 4.5 - (time.monotonic() - begin)))
    assert running.notes("end") == []


def test_stop_from_another_thread_and_nothing_survives(store: rota.Store) -> None:
    """Threads, tasks and waiters are those of before; the worker can run again."""
    worker, seen = rota.Worker(store), []

    @worker.queue("a")
    async def handle_async(payload: Any) -> None:
        seen.append(payload)

    @worker.queue("s")
    def handle(payload: Any) -> None:
        seen.append(payload)

    earlier = signal.getsignal(signal.SIGTERM)
    for number in range(3):
        run = Running(worker)
        until(lambda: any(name.startswith("rota-fetch") for name in worker_threads()))
        store.queue("a").enqueue(number)
        store.queue("s").enqueue(number)
        until(lambda number=number: len(seen) == 2 * number + 2)
        begin = time.monotonic()
        run.stop()
        assert time.monotonic() - begin < 2
        assert worker_threads() == []
        assert sum(map(len, store._core.wakeups._waiters.values())) == 0
    assert signal.getsignal(signal.SIGTERM) is earlier
    worker.stop()


def test_what_waits_for_a_slot_is_given_back_at_once(store: rota.Store) -> None:
    """Not after the grace of what runs."""
    worker, go, started = rota.Worker(store), threading.Event(), []

    @worker.queue("q", concurrency=1)
    def handle(payload: Any) -> None:
        if payload == "slow":
            started.append(payload)
            go.wait(20)

    queue = store.queue("q", max_attempts=1)
    queue.enqueue_many([*["fast"] * 2_000, "slow", *["fast"] * 500])
    run = Running(worker)
    until(lambda: started)
    worker.stop()
    until(lambda: len(queue.claim_batch("next", 1_000)) == 500 or queue.stats().processing == 501)
    assert run.alive
    go.set()
    run.join()
    assert worker.health().state == "idle"
    assert queue.stats().dead == 0


def test_stopped_more_than_once_in_the_program_it_keeps_its_grace(store: rota.Store) -> None:
    """Different parts of a program may each tell it. In a hurry is a second signal, or ``stop(now=True)``."""
    worker, go, started = rota.Worker(store), threading.Event(), threading.Event()

    @worker.queue("q")
    async def handle(payload: Any) -> str:
        started.set()
        while not go.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return "done"

    queue = store.queue("q", keep_done=60)
    id = queue.enqueue(1)
    run = Running(worker)
    assert started.wait(15)
    for _ in range(3):
        worker.stop()
    worker.finish()
    # In a hurry, it would cancel it within half a second.
    time.sleep(1)
    assert run.alive
    go.set()
    run.join()
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.result, record.releases) == ("done", "done", 0)


def test_signals_in_the_main_thread(store: rota.Store) -> None:
    """``arun`` on somebody's loop: a signal stops it, and the earlier handlers come back."""
    worker, earlier = rota.Worker(store), signal.getsignal(signal.SIGTERM)

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    store.queue("q").enqueue(1)
    asyncio.run(asyncio.wait_for(worker.arun(), 20))
    assert signal.getsignal(signal.SIGTERM) is earlier
    assert store.queue("q").stats().processing == 0


def test_async_handler_that_ends_well_when_cancelled_is_acked(store: rota.Store) -> None:
    worker, started = rota.Worker(store, grace=0), []

    @worker.queue("q")
    async def handle(payload: Any) -> str:
        started.append(payload)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "tidied up"
        return "slept"

    queue = store.queue("q", keep_done=60)
    id = queue.enqueue(1)
    run = Running(worker)
    until(lambda: started)
    run.stop()
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.result) == ("done", "tidied up")


def test_closing_the_store_ends_the_worker(store: rota.Store) -> None:
    worker = rota.Worker(store)
    worker.queue("q")(lambda payload: None)
    run = Running(worker)
    store.close()
    run.join(5)
    assert isinstance(run.error, rota.StoreClosed)


def test_handler_that_will_not_end_holds_nothing_up(store: rota.Store) -> None:
    """One swallows its cancellation, one waits for a function in a thread: the run ends, their jobs are given back."""
    worker, started, go = rota.Worker(store, grace=0.2), [], threading.Event()

    @worker.queue("q")
    async def handle(payload: Any) -> None:
        started.append(payload)
        if payload == "thread":
            await asyncio.to_thread(go.wait, 20)
        while not go.is_set():
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                continue

    queue = store.queue("q", max_attempts=1)
    queue.enqueue_many(["stubborn", "thread"])
    run = Running(worker)
    until(lambda: len(started) == 2)
    begin = time.monotonic()
    run.stop()
    assert time.monotonic() - begin < 6
    assert sorted(job.attempts for job in queue.claim_batch("next", 9)) == [1, 1]
    go.set()
