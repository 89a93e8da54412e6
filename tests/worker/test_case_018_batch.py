"""One bad job neither strands nor ages the rest of a claimed batch (case 018).

Seen in dbos-inc/dbos-transact-py 546, taskiq-python/taskiq 569 and celery/kombu 1198.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

import rota

from .faults import Faults
from .running import until

VISIBILITY, TAKES = 0.5, 0.4


class Fragile:
    """A codec that cannot read everything that was written."""

    def encode(self, obj: Any) -> str:
        return json.dumps(obj)

    def decode(self, text: str) -> Any:
        if "bad" in text:
            raise ValueError("which version was this?")
        return json.loads(text)


@pytest.mark.parametrize("bad", ["no handler", "undecodable"])
def test_the_others_run_once_each_on_a_valid_lease(store: rota.Store, running: Any, bad: str) -> None:
    """One slot, five jobs, handlers almost as long as the lease, a second worker idle beside."""
    starts: list[tuple[str, Any, bool]] = []
    lock = threading.Lock()

    def worker_named(name: str) -> rota.Worker:
        worker = rota.Worker(store, worker_id=name)

        @worker.task("q", name="good", concurrency=1, visibility=VISIBILITY, codec=Fragile())
        def handle(job: rota.Job) -> None:
            with lock:
                starts.append((name, job.payload, job.claim_expires_at > store.now()))
            time.sleep(TAKES)

        return worker

    queue = store.queue("q", keep_done=60, codec=Fragile())
    ids = [
        queue.enqueue("bad" if n == 2 else n, name="unknown" if bad == "no handler" and n == 2 else "good")
        for n in range(1, 6)
    ]
    workers = [worker_named("one"), worker_named("two")]
    for worker in workers:
        running(worker)
    until(lambda: sum(worker.health().sources[0].acked for worker in workers) == 4)
    assert sorted(payload for _, payload, _ in starts) == [1, 3, 4, 5]
    assert all(valid for _, _, valid in starts)
    for id in ids[:1] + ids[2:]:
        record = queue.get_job(id)
        assert record is not None
        assert (record.state, record.attempts) == ("done", 1)
    record = queue.get_job(ids[1])
    assert record is not None
    if bad == "undecodable":
        assert record.state == "dead"
        assert "which version was this?" in (record.last_error or "")
    else:
        assert (record.state, record.attempts) == ("pending", 0)
        assert record.releases >= 1
    assert sum(worker.health().sources[0].lost for worker in workers) == 0


def test_what_waits_for_a_slot_is_not_hoarded(store: rota.Store, running: Any) -> None:
    """A worker used to fast jobs meets slow ones: what it claimed ahead goes to whoever is idle, uncounted."""
    lock = threading.Lock()
    started: list[Any] = []

    def worker_named(name: str) -> rota.Worker:
        worker = rota.Worker(store, worker_id=name)

        @worker.queue("q", concurrency=1, visibility=VISIBILITY)
        def handle(job: rota.Job) -> None:
            if job.payload != "fast":
                with lock:
                    started.append((name, job.payload, job.attempts))
                time.sleep(2 * VISIBILITY)

        return worker

    queue = store.queue("q")
    queue.enqueue_many(["fast"] * 3_000 + list(range(6)))
    one, two = worker_named("one"), worker_named("two")
    running(one)
    until(lambda: started and one.health().unsettled == 0)
    # A machine that stands still for as long as a claim holds has lost fast ones.
    lost = one.health().sources[0].lost
    running(two)
    until(lambda: len(started) == 6)
    assert sorted(payload for _, payload, _ in started) == list(range(6))
    assert {name for name, _, _ in started} == {"one", "two"}
    assert all(attempts == 1 for _, _, attempts in started)
    until(lambda: queue.stats().pending == queue.stats().processing == 0)
    assert (one.health().sources[0].lost, two.health().sources[0].lost) == (lost, 0)


def test_a_share_that_cannot_be_filled_up_is_handled(store: rota.Store, running: Any) -> None:
    """The claim at the floor gave some, the one below it fails: what there is is not left to lapse."""
    transport = store.transport("t")
    transport.publish_many([("urgent", 1, 9), ("usual", 2, 0)])
    faults, failed, seen = Faults(store), list[Any](), list[Any]()

    def below_the_floor(args: tuple[Any, ...]) -> BaseException | None:
        if args[3] is None and len(args) == 4 and len(failed) < 3:
            failed.append(args)
            return rota.EngineUnavailable("gone for a moment")
        return None

    faults.fails["claim"] = below_the_floor
    worker = rota.Worker(store, housekeeping=False)

    @worker.transport("t", priority_share=1, min_priority=5, visibility=600)
    def handle(lease: rota.Lease) -> None:
        seen.append((lease.group_id, lease.deliveries))

    running(worker)
    until(lambda: transport.stats().messages == 0)
    assert failed
    assert sorted(seen) == [("urgent", 1), ("usual", 1)]
