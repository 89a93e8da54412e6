"""One handle for many threads, one store for many coroutines, one new file for many processes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rota
from rota.testing import ManualClock

from .actors import job_line, message_line, micros
from .drain import drain
from .judge import judge
from .log import Log, Record
from .processes import ended, python
from .threads import switching_often, together


def test_threads_share_handles(url: str, span: Callable[[float], float]) -> None:
    """Eight threads on one queue and one transport object: each item to exactly one of them, each put stored once."""
    count = 900
    with rota.open(url) as store, switching_often():
        queue, transport = store.queue("q"), store.transport("t")
        taken: list[Any] = []
        produced = threading.Event()

        def produce(place: int) -> None:
            for number in range(place, count, 2):
                if number % 3:
                    queue.enqueue(number)
                else:
                    transport.publish(f"g{number % 7}", number)

        def consume() -> None:
            while True:
                last = produced.is_set()
                job, lease = queue.claim_one(), transport.claim()
                for held, value in ((job, job and job.payload), (lease, lease and lease.event)):
                    if held is not None:
                        assert held.ack()
                        taken.append(value)
                if last and job is None and lease is None:
                    return

        def produce_all() -> None:
            together(lambda: produce(0), lambda: produce(1))
            produced.set()

        together(produce_all, *[consume] * 6)
        assert sorted(taken) == list(range(count))


def test_one_handle_settled_by_many_threads(url: str, rounds: Callable[[int], int]) -> None:
    """A job or lease handed to several threads is settled by exactly one of them."""
    with rota.open(url) as store, switching_often():
        queue, transport = store.queue("q", max_attempts=3), store.transport("t")
        for number in range(rounds(100)):
            queue.enqueue(number)
            transport.publish("g", number)
            job, lease = queue.claim_one("w"), transport.claim("w")
            assert job is not None
            assert lease is not None
            verbs = (job.ack, lambda job=job: job.retry("x", 0), job.fail, job.release)
            assert sum(together(*verbs)) == 1
            assert sum(together(lease.ack, lease.fail, lease.nack, lease.release)) == 1
            queue.purge("pending")
            transport.purge("g")


async def _cycle(store: Any, log: Log, place: int, until: float) -> None:
    """One coroutine that puts, claims and acks, and writes it down."""
    queue, transport = store.queue("race"), store.transport("race")
    made = 0
    while time.monotonic() < until:
        value, group = f"{place}:{made}", f"g{(place + made) % 10}"
        made += 1
        if made % 2:
            number = log.invoke("put", kind="message", scope=group, value=value)
            log.ok(number, id=await transport.publish(group, value))
        else:
            number = log.invoke("put", kind="job", scope="race", value=value)
            log.ok(number, id=await queue.enqueue(value))
        number = log.invoke("claim")
        leases, jobs = await asyncio.gather(transport.claim_batch(f"w{place}", 2), queue.claim_batch(f"w{place}", 2))
        log.ok(number, got=[message_line(lease, 30) for lease in leases] + [job_line(job) for job in jobs])
        for held, kind, id in [(one, "message", one.seq) for one in leases] + [(one, "job", one.id) for one in jobs]:
            number = log.invoke("settle", kind=kind, id=id, token=held.token, verb="ack")
            log.ok(number, result=await held.ack())


def test_fifty_coroutines(url: str, span: Callable[[float], float]) -> None:
    """At once on one store: judged like the threads."""

    async def main() -> list[Record]:
        logs = [Log(f"task-{n}") for n in range(50)]
        async with rota.aopen(url) as store:
            until = time.monotonic() + span(0.7)
            await asyncio.gather(*(_cycle(store, logs[n], n, until) for n in range(50)))
            last = Log("drain")
            await asyncio.to_thread(drain, store.as_sync(), last)
        return [record for log in (*logs, last) for record in log.records]

    records = asyncio.run(main())
    assert judge(records).faults() == {}
    assert sum(len(record.get("got", ())) for record in records) > 50


def test_processes_race_to_open_a_new_file(tmp_path: Path, rounds: Callable[[int], int]) -> None:
    """Both find it good, and what each of them stored at once is there."""
    for number in range(rounds(2)):
        path = tmp_path / f"new-{number}.db"
        start = micros(time.time() + 0.6)
        newcomers = [python("newcomer", f"sqlite:///{path}", str(start)) for _ in range(3)]
        ids = [json.loads(ended(one)) for one in newcomers]
        assert sorted(one for both in ids for one in both["jobs"]) == list(range(1, 31))
        assert len({seq for both in ids for seq in both["seqs"]}) == 30
        with rota.open(f"sqlite:///{path}", create=False) as store:
            assert store.queue("q").stats().pending == 30
            assert len(store.transport("t").claim_batch("w", 100)) == 30


def test_threads_race_to_open_a_new_file(tmp_path: Path, rounds: Callable[[int], int]) -> None:
    """The same within a process."""
    for number in range(rounds(20)):
        url = f"sqlite:///{tmp_path / f'threads-{number}.db'}"

        def newcomer(url: str = url) -> int:
            with rota.open(url) as store:
                return store.queue("q").enqueue("work")

        assert sorted(together(*[newcomer] * 4)) == [1, 2, 3, 4]


def test_clock_steps_under_threads(engine: str, url: str, span: Callable[[float], float]) -> None:
    """The clock jumps back and forth while threads work: no second valid holder, no token twice, nothing lost."""
    clock = ManualClock()
    stores = [rota.open(url, clock=clock) for _ in range(4)]
    until = time.monotonic() + span(0.7)
    stores[0].transport("t").publish_many([(f"g{n % 5}", n) for n in range(100)])
    stores[0].queue("q", max_attempts=10**6).enqueue_many(range(20))
    newest: dict[Any, int] = {}
    lock = threading.Lock()
    tokens: list[int] = []

    def work(store: Any) -> list[tuple[Any, int, bool]]:
        transport, queue = store.transport("t"), store.queue("q")
        settled = []
        while time.monotonic() < until:
            for held in (transport.claim("w", visibility=2), queue.claim_one("w", visibility=2)):
                if held is None:
                    continue
                scope = getattr(held, "group_id", getattr(held, "id", None))
                with lock:
                    tokens.append(held.token)
                    newest[scope] = max(newest.get(scope, 0), held.token)
                time.sleep(0.001)
                with lock:
                    overtaken = newest[scope] > held.token
                # Whoever was overtaken before it asked must be refused.
                settled.append((scope, held.token, held.release() and overtaken))
        return settled

    def steps() -> list[tuple[Any, int, bool]]:
        for number in range(10**9):
            if time.monotonic() > until:
                break
            clock.advance((3_600, -3_600, 3, -1, 5, -7)[number % 6])
            time.sleep(0.001)
        return []

    with switching_often():
        outcomes = together(*(lambda store=store: work(store) for store in stores[:3]), steps)
    assert [one for outcome in outcomes for one in outcome if one[2]] == []
    assert len(tokens) == len(set(tokens))
    assert len(tokens) > 20
    clock.advance(10_000)
    transport, queue = stores[0].transport("t"), stores[0].queue("q")
    assert transport.stats().messages == 100
    assert len(queue.claim_batch("w", 100)) == 20
    assert len(transport.claim_batch("w", 100)) == 5
    for store in stores:
        store.close()
