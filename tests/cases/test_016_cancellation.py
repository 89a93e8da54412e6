"""Cancellation and exits leave no stranded job.

Seen in janbjorge/pgqueuer 630, procrastinate-org/procrastinate 871 and python-arq/arq 190.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import rota

from .command import ended, start


def waiters(store: Any) -> int:
    """How many are registered to be woken."""
    return sum(map(len, store._core.wakeups._waiters.values()))


@pytest.mark.parametrize("kind", ["job", "message"])
def test_cancelled_wait_ends_with_the_cancellation(url: str, kind: str) -> None:
    """It goes on to the caller, nobody is left waiting, and what comes afterwards is there for the next one."""

    async def main() -> None:
        async with rota.aopen(url) as store:
            queue, transport = store.queue("q"), store.transport("t")
            waiting: Callable[[], Awaitable[Any]] = (
                (lambda: queue.claim_one("w", wait=30)) if kind == "job" else (lambda: transport.claim("w", wait=30))
            )
            tasks = [asyncio.ensure_future(waiting()) for _ in range(20)]
            await asyncio.sleep(0.05)
            assert waiters(store) == 20
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True)
            )
            assert waiters(store) == 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await waiting()
            assert waiters(store) == 0
            await queue.enqueue("work")
            await transport.publish("g", "work")
            assert (await queue.claim_one("w")).attempts == 1
            assert (await transport.claim("w")).deliveries == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["job", "message"])
def test_item_that_arrives_with_the_cancellation_is_not_stranded(url: str, engine: str, kind: str) -> None:
    """Either the task had it, or it is claimable at once and not counted: 200 rounds of both at one moment."""
    chance = random.Random(16)

    async def main() -> int:
        had = 0
        async with rota.aopen(url) as store:
            queue, transport = store.queue("q", max_attempts=1), store.transport("t", max_deliveries=1)

            async def claim(wait: float) -> Any:
                return await (queue.claim_one("w", wait=wait) if kind == "job" else transport.claim("w", wait=wait))

            for number in range(200):
                task = asyncio.ensure_future(claim(30))
                await asyncio.sleep(0)
                put = queue.enqueue(number) if kind == "job" else transport.publish("g", number)
                putting = asyncio.ensure_future(put)
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
                await asyncio.sleep(chance.choice((0, 0, 0.0005)))
                task.cancel()
                await putting
                held = (await asyncio.gather(task, return_exceptions=True))[0]
                if isinstance(held, asyncio.CancelledError):
                    # It may be given back a moment after the cancellation.
                    held = await claim(5)
                else:
                    had += 1
                assert held is not None, f"round {number}: stranded"
                assert (held.attempts if kind == "job" else held.deliveries) == 1
                assert await held.ack()
            assert (await queue.stats()).dead == (await transport.stats()).dead == 0
            assert waiters(store) == 0
        return had

    had = asyncio.run(main())
    print(f"{had} of 200 tasks had it before they were cancelled")


def test_no_thread_and_no_task_survives(url: str) -> None:
    """After cancelled waits, running verbs and the close of the store."""
    before = set(threading.enumerate())

    async def main() -> set[Any]:
        async with rota.aopen(url) as store:
            queue = store.queue("q")
            tasks = [asyncio.ensure_future(queue.claim_one("w", wait=30)) for _ in range(5)]
            tasks += [asyncio.ensure_future(queue.enqueue(n)) for n in range(5)]
            await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()
    until = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()


# A command that ends in a way that is no exit status, and one that reads nothing.
EXITS = {
    "exit 3": "import sys; sys.exit(3)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupted": "raise KeyboardInterrupt",
    "crashed": "import os; os.abort()",
}


def test_every_exit_of_a_command_is_a_failed_try(tmp_path: Path) -> None:
    """With an error text, and the next job runs; nothing stays in processing."""
    url = f"sqlite:///{tmp_path / 'exits.db'}"
    with rota.open(url) as store:
        queue = store.queue("q", max_attempts=1)
        ids = queue.enqueue_many([*EXITS.values(), "pass"])
        program = "import sys, json; exec(json.load(sys.stdin))"
        worker = start(url, "work", "queue:q", "--drain", "--", sys.executable, "-c", program)
        # What the commands themselves said of their end is passed on.
        worker.communicate(timeout=60)
        assert worker.returncode == 0
        letters = queue.dead_letters()
        assert [letter.id for letter in letters] == ids[:-1]
        assert all(letter.last_error for letter in letters)
        assert queue.jobs("pending") == queue.jobs("processing") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_worker_gives_its_job_back(tmp_path: Path, number: signal.Signals) -> None:
    """A command that outlasts the grace time is ended and its job released: claimable at once, not counted."""
    url = f"sqlite:///{tmp_path / 'stop.db'}"
    with rota.open(url) as store:
        queue, transport = store.queue("q", max_attempts=1), store.transport("t", max_deliveries=1)
        job_id = queue.enqueue("work")
        transport.publish("g", "work")
        worker = start(
            url,
            "work",
            "queue:q",
            "transport:t",
            "-j",
            "2",
            "--grace",
            "0.2",
            "--",
            sys.executable,
            "-c",
            "import time; time.sleep(60)",
        )
        while queue.get_job(job_id).state == "pending" or not transport.stats().leased:
            time.sleep(0.01)
        time.sleep(0.2)
        worker.send_signal(number)
        ended(worker)
        record = queue.get_job(job_id)
        assert (record.state, record.attempts, record.releases) == ("pending", 0, 1)
        assert queue.claim_one("next").attempts == 1
        assert transport.claim("next").deliveries == 1
