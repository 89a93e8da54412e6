"""Workers and producers outlive a database that does not answer for a while.

Seen in tobymao/saq PR 163, janbjorge/pgqueuer 224 and alexfrmn/murmur 122; for the outcome that cannot be recorded also
rails/solid_queue 748. On SQLite the database is away when a foreign writer holds the lock beyond the busy timeout.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing.tck.base import Started

from .command import ended, run, start

BUSY = 0.05


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store that exists."""
    path = tmp_path / "busy.db"
    with rota.open(f"sqlite:///{path}") as store:
        store.queue("q").enqueue("first")
        store.queue("q").purge("pending")
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """A foreign connection holds the write lock meanwhile."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


WRITES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "enqueue": lambda queue, transport, job, lease: queue.enqueue(1),
    "enqueue_many": lambda queue, transport, job, lease: queue.enqueue_many([1, 2]),
    "publish": lambda queue, transport, job, lease: transport.publish("g", 1),
    "publish_many": lambda queue, transport, job, lease: transport.publish_many([("g", 1)]),
    "claim_one": lambda queue, transport, job, lease: queue.claim_one("w"),
    "claim": lambda queue, transport, job, lease: transport.claim("w"),
    "job ack": lambda queue, transport, job, lease: job.ack(),
    "job ack_batch": lambda queue, transport, job, lease: queue.ack_batch([job], "w"),
    "job retry": lambda queue, transport, job, lease: job.retry("x", 0),
    "job fail": lambda queue, transport, job, lease: job.fail("x"),
    "job heartbeat": lambda queue, transport, job, lease: job.heartbeat(),
    "job release": lambda queue, transport, job, lease: job.release(),
    "lease ack": lambda queue, transport, job, lease: lease.ack(),
    "lease nack": lambda queue, transport, job, lease: lease.nack(),
    "lease extend": lambda queue, transport, job, lease: lease.extend(30),
    "lease fail": lambda queue, transport, job, lease: lease.fail("x"),
    "cancel": lambda queue, transport, job, lease: queue.cancel(job.id),
    "sweep_expired": lambda queue, transport, job, lease: queue.sweep_expired(),
    "suspend": lambda queue, transport, job, lease: queue.suspend(),
    "purge": lambda queue, transport, job, lease: transport.purge("g"),
}


@pytest.mark.parametrize("verb", WRITES)
def test_every_write_says_busy_and_then_goes_on(file: Path, verb: str) -> None:
    """EngineBusy, never the driver's error; nothing happened; the same call on the same handle works afterwards."""
    with rota.open(f"sqlite:///{file}", busy_timeout=BUSY) as store:
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many(["held", "free"])
        transport.publish_many([("g", "held"), ("h", "free")])
        job, lease = queue.claim_one("w"), transport.claim("w")
        before = queue.jobs(), transport.groups()
        with locked(file):
            begin = time.monotonic()
            with pytest.raises(rota.EngineBusy):
                WRITES[verb](queue, transport, job, lease)
            assert time.monotonic() - begin < BUSY + 1
            # Readers are not held up.
            assert (queue.jobs(), transport.groups()) == before
        answer = WRITES[verb](queue, transport, job, lease)
        assert answer is not None
        assert answer is not False


def test_opening_while_the_database_is_away(file: Path, tmp_path: Path) -> None:
    """An existing file opens, or says that it is busy; a new one likewise, and works as soon as the lock is gone."""
    new = tmp_path / "new.db"
    for path in (file, new):
        with locked(path):
            try:
                store = rota.open(f"sqlite:///{path}", busy_timeout=BUSY)
            except rota.EngineBusy:
                store = None
            if store is not None:
                with pytest.raises(rota.EngineBusy):
                    store.queue("q").enqueue("work")
        with store or rota.open(f"sqlite:///{path}") as again:
            again.queue("q").enqueue("work")
            assert again.queue("q").claim_one("w").ack()


def test_producers_and_workers_go_on_through_many_outages(file: Path) -> None:
    """2 producers, 3 workers, the lock held again and again: every job delivered and ended once, no error but busy.

    Producers repeat with the job's key, so a call that ended in an error makes no second job.
    """
    url = f"sqlite:///{file}"
    over = threading.Event()
    handled: list[int] = []
    busy: list[str] = []

    def patiently(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        while True:
            try:
                return call(*arguments, **options)
            except rota.EngineBusy:
                busy.append(str(call))

    def produce(place: int) -> None:
        with rota.open(url, busy_timeout=BUSY) as store:
            for number in range(place, 400, 2):
                patiently(store.queue("q").enqueue, number, key=f"job-{number}")
                time.sleep(0.002)

    def work() -> None:
        with rota.open(url, busy_timeout=BUSY) as store:
            while not over.is_set() or store.queue("q").stats().pending:
                job = patiently(store.queue("q").claim_one, wait=0.2)
                if job is not None:
                    handled.append(job.payload)
                    assert patiently(job.ack)

    producers = [Started(produce, place) for place in range(2)]
    workers = [Started(work) for _ in range(3)]
    while any(one.running for one in producers):
        with locked(file):
            time.sleep(0.15)
        time.sleep(0.1)
    over.set()
    for one in (*producers, *workers):
        one.result(30)
    assert sorted(handled) == list(range(400))
    assert busy, "the outages were too short to show anything"


def test_key_makes_the_repetition_harmless(file: Path) -> None:
    """Q15: whether the first call had stored it or not, the second one with its key leaves one job."""
    with rota.open(f"sqlite:///{file}", busy_timeout=BUSY) as store:
        queue, transport = store.queue("q"), store.transport("t")
        with locked(file), pytest.raises(rota.EngineBusy):
            queue.enqueue("work", key="k")
        first = queue.enqueue("work", key="k")
        assert queue.enqueue("work", key="k") == first
        assert len(queue.jobs()) == 1
        with locked(file), pytest.raises(rota.EngineBusy):
            transport.publish("g", "work", key="k")
        assert transport.publish("g", "work", key="k") == transport.publish("g", "work", key="k")
        assert len(transport.peek("g", 5)) == 1


SLEEP = ["--", sys.executable, "-c", "import time; time.sleep(0.4)"]


def test_worker_whose_ack_fails_once_acks_within_the_lease(file: Path) -> None:
    """The command is done while the database is away: recorded as soon as it is back, run once."""
    url = f"sqlite:///{file}"
    with rota.open(url) as store:
        queue = store.queue("q", keep_done=60)
        job_id = queue.enqueue("work")
        worker = start(f"{url}?busy_timeout={BUSY}", "work", "queue:q", "--visibility", "8", "--drain", *SLEEP)
        while queue.get_job(job_id).state == "pending":
            time.sleep(0.01)
        with locked(file):
            time.sleep(1.2)
        ended(worker)
        record = queue.get_job(job_id)
        assert (record.state, record.attempts) == ("done", 1)


def test_worker_whose_ack_cannot_be_recorded_lets_go_and_goes_on(file: Path) -> None:
    """Away for longer than the lease: told once, delivered again with attempt 2, and the same worker does it."""
    url = f"sqlite:///{file}"
    with rota.open(url) as store:
        queue = store.queue("q", keep_done=60)
        ids = queue.enqueue_many(["work", "more"])
        worker = start(f"{url}?busy_timeout={BUSY}", "work", "queue:q", "--visibility", "1", "--drain", *SLEEP)
        while queue.get_job(ids[0]).state == "pending":
            time.sleep(0.01)
        with locked(file):
            time.sleep(1.8)
        said = ended(worker)
        assert said.count("could not be recorded") == 1
        assert [queue.get_job(id).state for id in ids] == ["done", "done"]
        assert [queue.get_job(id).attempts for id in ids] == [2, 1]


def test_commands_say_busy_in_one_line(file: Path) -> None:
    """Exit status 3, no traceback, nothing stored; a worker started meanwhile waits and works."""
    url = f"sqlite:///{file}?busy_timeout={BUSY}"
    with locked(file):
        run(url, "enqueue", "q", "1", status=3)
        run(url, "publish", "t", "g", "1", status=3)
        run(url, "stats")
    run(url, "enqueue", "q", "1")
    with locked(file):
        worker = start(url, "work", "queue:q", "--drain", "--", sys.executable, "-c", "pass")
        time.sleep(1)
        assert worker.poll() is None
    ended(worker)
    with rota.open(url) as store:
        assert store.queue("q").jobs() == []
        assert store.transport("t").groups() == []
