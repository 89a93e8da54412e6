"""rota.testing as its users meet it: drain, the plugin, and the conformance suite in ten lines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import ManualClock, adrain, drain
from rota.testing.colours import Blocking, Runner


def test_drain_works_off_delays_and_retries(rota_store: rota.Store, rota_clock: ManualClock) -> None:
    queue, start = rota_store.queue("q"), rota_clock.now()
    queue.enqueue("now")
    queue.enqueue("tomorrow", delay=86_400)
    tried: list[tuple[Any, int]] = []

    def handler(job: rota.Job) -> None:
        tried.append((job.payload, job.attempts))
        if job.payload == "now" and job.attempts < 3:
            raise ValueError("not yet")

    handled = drain(queue, handler)
    assert tried == [("now", 1), ("now", 2), ("now", 3), ("tomorrow", 1)]
    assert [job.payload for job in handled] == ["now", "tomorrow"]
    assert rota_clock.now() >= start + 86_400
    assert queue.stats().pending == 0


def test_drain_leaves_dead_letters(rota_store: rota.Store) -> None:
    queue = rota_store.queue("q", max_attempts=2)
    queue.enqueue(1)

    def broken(job: rota.Job) -> None:
        raise ValueError("never")

    assert drain(queue, broken) == []
    assert queue.dead_letters()[0].last_error == "ValueError: never"


def test_drain_of_a_transport_keeps_the_order(rota_store: rota.Store) -> None:
    transport = rota_store.transport("t")
    transport.publish_many([("a", 1), ("a", 2), ("b", 3)])
    failed = False

    def handler(lease: rota.Lease) -> None:
        nonlocal failed
        if lease.event == 1 and not failed:
            failed = True
            raise ValueError("once")

    assert [lease.event for lease in drain(transport, handler)] == [3, 1, 2]


def test_drain_respects_what_the_handler_settled(rota_store: rota.Store) -> None:
    queue = rota_store.queue("q")
    queue.enqueue(1)
    assert len(drain(queue, lambda job: job.fail("by hand"))) == 1
    assert queue.dead_letters()[0].last_error == "by hand"


def test_drain_lets_the_tests_own_assertions_through(rota_store: rota.Store) -> None:
    queue = rota_store.queue("q")
    queue.enqueue(1)

    def handler(job: rota.Job) -> None:
        assert job.payload == 2

    with pytest.raises(AssertionError, match="payload"):
        drain(queue, handler)


def test_drain_ends_for_a_handler_that_fails_for_ever(rota_store: rota.Store) -> None:
    transport = rota_store.transport("t")
    transport.publish("g", 1)

    def broken(lease: rota.Lease) -> None:
        raise ValueError("never")

    with pytest.raises(AssertionError, match="20 deliveries"):
        drain(transport, broken, limit=20)


def test_drain_refuses_handlers_it_cannot_call(rota_store: rota.Store) -> None:
    """Each would fail at every try, or never run, and the test would see an empty queue."""
    queue = rota_store.queue("q")
    queue.enqueue(1)

    async def handle(job: Any) -> None: ...

    with pytest.raises(TypeError, match=r"called with one argument, the job or lease, and takes \(\)"):
        drain(queue, lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(TypeError, match=r"takes \(job, more\)"):
        drain(queue, lambda job, more: None)  # type: ignore[arg-type, misc]
    with pytest.raises(TypeError, match="would never run: give it to adrain"):
        drain(queue, handle)
    assert queue.stats().pending == 1


def test_drain_refuses_a_clock_that_is_not_the_stores(rota_store: rota.Store) -> None:
    queue = rota_store.queue("q")
    queue.enqueue(1, delay=60)
    with pytest.raises(ValueError, match="the clock the store was opened with"):
        drain(queue, print, clock=ManualClock())


def test_drain_with_a_real_clock_does_not_wait() -> None:
    with rota.open("memory://") as store:
        queue = store.queue("q")
        queue.enqueue("now")
        queue.enqueue("later", delay=3_600)
        assert [job.payload for job in drain(queue, lambda job: None)] == ["now"]


@pytest.mark.parametrize("delay", [8 * 10**9, 3 * 10**11, 7 * 10**11])
def test_drain_gets_to_what_is_due_in_the_far_future(delay: int, rota_store: rota.Store) -> None:
    """There a float is coarser than a microsecond, so that the clock may be set short of it."""
    queue = rota_store.queue("q")
    queue.enqueue_many([rota.Item(n, delay=delay + n / 1_000_000) for n in range(20)])
    assert len(drain(queue, lambda job: None)) == 20


def test_drain_with_a_clock_that_is_not_the_stores() -> None:
    """It would move that one for ever, and nothing would ever become due."""
    with rota.open("memory://") as store:
        store.queue("q").enqueue("x", delay=60)
        with pytest.raises(ValueError, match="the clock the store was opened with"):
            drain(store.queue("q"), lambda job: None, clock=ManualClock(store.now()))
        worker = rota.Worker(store)
        worker.queue("q")(lambda payload: None)
        with pytest.raises(ValueError, match="the clock the store was opened with"):
            worker.drain(advance=ManualClock(store.now()))


def test_drain_with_the_clock_behind_one_of_the_applications() -> None:
    clock = ManualClock()

    class Behind:
        def now(self) -> float:
            return clock.now()

    with rota.open("memory://", clock=Behind()) as store:
        queue = store.queue("q")
        queue.enqueue("x", delay=60)
        assert len(drain(queue, lambda job: None, clock=clock)) == 1
        queue.enqueue("x", delay=60)
        worker = rota.Worker(store)
        worker.queue("q")(lambda payload: None)
        assert worker.drain(advance=clock) == 1


def test_adrain(rota_store: rota.Store) -> None:
    async def main() -> list[Any]:
        queue = rota_store.as_async().queue("q")
        await queue.enqueue("a")
        await queue.enqueue("b", delay=60)
        seen: list[int] = []

        async def handler(job: rota.AsyncJob) -> None:
            seen.append(job.attempts)
            if job.payload == "a" and job.attempts == 1:
                raise ValueError("once")

        return [job.payload for job in await adrain(queue, handler)]

    assert asyncio.run(main()) == ["a", "b"]


def test_the_store_of_the_plugin_refuses_what_production_would(rota_store: rota.Store) -> None:
    with pytest.raises(rota.PayloadError):
        rota_store.transport("t").publish("g", object())


# -- The suite and the plugin from outside ---------------------------------------------------------------------------


def outcome(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest on a folder of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


THIRD_PARTY = """
import rota
from rota.testing import tck

class TestMyEngine(tck.Conformance):
    keeps_objects = True

    def open(self, **options):
        return rota.open("memory://", **options)

    def aopen(self, **options):
        return rota.aopen("memory://", **options)
"""


def test_a_third_party_runs_the_suite_in_ten_lines(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(THIRD_PARTY)
    run = outcome(tmp_path, "-k", "T1_ or Q6")
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout


def test_every_clause_has_tests(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(THIRD_PARTY)
    listed = outcome(tmp_path, "--collect-only").stdout
    clauses = [
        *(f"C{n}" for n in range(1, 10)),
        *(f"T{n}" for n in range(1, 12)),
        *(f"Q{n}" for n in range(1, 16)),
        *(f"D{n}" for n in range(1, 5)),
        *(f"P{n}" for n in range(1, 5)),
        *(f"X{n}" for n in range(6, 9)),
        "E",
    ]
    assert [clause for clause in clauses if f"::test_{clause}_" not in listed] == []


PLANTS = {
    "T6": "from rota.sync.transport import Transport\nTransport.ack = lambda self, lease: True\n",
    "Q6": "from rota.sync.queue import Queue\nQueue.ack = lambda self, job, result=None: True\n",
    "T1": "from rota import rules\nrules.group_state = lambda *given: 'ready'\n"
    "from rota.facade.waiting import steps\nfrom rota.testing import ManualClock\n"
    "plain = ManualClock.now_microseconds\nManualClock.now_microseconds = lambda self: plain(self) + 1\n",
    "D4": "from rota import rules\nrules.clean_error = lambda error: None if error is None else str(error)\n",
    "P1": "from rota.codecs import JsonCodec\nimport json\nJsonCodec.encode = lambda self, obj: json.dumps(obj)\n",
}


@pytest.mark.parametrize("clause", PLANTS)
def test_the_suite_finds_planted_faults(tmp_path: Path, clause: str) -> None:
    """A suite that cannot fail proves nothing."""
    (tmp_path / "test_mine.py").write_text(PLANTS[clause] + THIRD_PARTY)
    run = outcome(tmp_path, "-k", f"{clause}_ and sync")
    assert run.returncode == 1, run.stdout
    assert f"test_{clause}_" in run.stdout


def test_the_plugin_takes_another_url(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nrota_url = memory://shared-by-ini\n")
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "def test_ini(rota_store):\n    assert 'shared-by-ini' in rota_store.url\n"
        "class TestOwn:\n"
        "    @pytest.fixture\n    def rota_url(self, tmp_path):\n        return f'sqlite:///{tmp_path}/x.db'\n"
        "    def test_own(self, rota_store, rota_clock):\n"
        "        queue = rota_store.queue('q')\n"
        "        assert queue.get_job(queue.enqueue(1)).enqueued_at == rota_clock.now()\n"
    )
    run = outcome(tmp_path)
    assert run.returncode == 0, run.stdout


def test_neither_the_plugin_nor_rota_testing_is_heavy() -> None:
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import rota.testing.plugin\n"
        "heavy = {'asyncio', 'sqlite3', 'hypothesis', 'rota.aio.store', 'rota.testing.tck'}\n"
        "assert not heavy & (set(sys.modules) - before), heavy & (set(sys.modules) - before)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    alone = "import sys, rota.testing\nassert 'pytest' not in sys.modules and 'asyncio' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", alone], check=True, timeout=60)


# -- Colours ---------------------------------------------------------------------------------------------------------


def test_a_blocking_stand_in_hands_the_very_objects_on() -> None:
    class AsyncQueue:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        async def put(self, value: Any) -> list[Any]:
            self.seen.append(value)
            return [self, value]

    runner, target = Runner(), AsyncQueue()
    try:
        queue = runner.wrap(target)
        payload = [1, [2]]
        mirrored, same = queue.put(payload)
        assert target.seen[0] is payload
        assert same is payload
        assert isinstance(mirrored, Blocking)
        assert mirrored._target is target
        with pytest.raises(TypeError):
            queue.put()
    finally:
        runner.close()
