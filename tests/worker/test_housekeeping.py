"""Sweeps by workers: expired jobs, old letters, one worker at a time."""

from __future__ import annotations

import threading
from typing import Any

import rota
from rota.names import HOUSEKEEPING as TRANSPORT
from rota.testing import ManualClock
from rota.worker.housekeeping import Housekeeping
from rota.worker.registry import SourceSpec
from rota.worker.sources import make_source

from .running import until


def specs() -> list[SourceSpec]:
    worker = rota.Worker()
    worker.queue("q")(lambda payload: None)
    worker.transport("t")(lambda event: None)
    return list(worker._registry.sources.values())


def test_a_running_worker_sweeps(store: rota.Store, running: Any) -> None:
    queue = store.queue("q")
    queue.enqueue("expired", expires=0)
    worker = rota.Worker(store)
    worker.queue("q")(lambda payload: None)
    running(worker)
    until(lambda: [letter.reason for letter in queue.dead_letters()] == ["expired"])


def test_each_source_is_swept_by_one_worker_at_a_time(timeless: rota.Store, clock: ManualClock) -> None:
    """Between two sweeps of a source lie 30 to 60 s, however many workers look; each is done by one of them."""
    workers = [
        Housekeeping(timeless, [make_source(spec, timeless, f"w{n}") for spec in specs()], f"w{n}") for n in range(5)
    ]
    assert [worker.look() for worker in workers] == [2, 0, 0, 0, 0]
    swept = 0
    for _ in range(60):
        clock.advance(5)
        swept += sum(worker.look() for worker in workers)
    assert 2 * 300 / 65 - 2 <= swept <= 2 * 300 / 30
    assert timeless.transport(TRANSPORT).stats().messages == 2


def test_workers_that_look_at_the_same_moment_share(timeless: rota.Store) -> None:
    counts: list[int] = []
    workers = [
        Housekeeping(timeless, [make_source(spec, timeless, f"w{n}") for spec in specs()], f"w{n}") for n in range(4)
    ]
    threads = [threading.Thread(target=lambda one=one: counts.append(one.look())) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 2


def test_what_a_worker_does_not_know_is_swept_too(timeless: rota.Store, clock: ManualClock) -> None:
    """The source of a worker that is gone; its old letters are forgotten as well."""
    gone = Housekeeping(timeless, [make_source(spec, timeless, "gone") for spec in specs()], "gone")
    assert gone.look() == 2
    queue = timeless.queue("q", dead_letter_retention=10)
    queue.enqueue(1)
    job = queue.claim_one("w")
    assert job is not None
    assert job.fail("no")
    clock.advance(70)
    assert Housekeeping(timeless, [], "other").look() == 2
    assert queue.dead_letters() == []


def test_the_longest_names_are_swept_like_any(timeless: rota.Store, clock: ManualClock) -> None:
    """Queues and transports whose names leave no room for their kind, and the others of the same worker."""
    worker = rota.Worker()
    for name in ("q" * 255, "q" * 254 + "r", "short"):
        worker.queue(name)(lambda payload: None)
        worker.transport(name)(lambda event: None)
    known = [make_source(spec, timeless, "w") for spec in worker._registry.sources.values()]
    queues = [timeless.queue(source.name) for source in known if source.kind == "queue"]
    for queue in queues:
        queue.enqueue("expired", expires=0)
    assert Housekeeping(timeless, known, "w").look() == 6
    assert [len(queue.dead_letters()) for queue in queues] == [1, 1, 1]
    # One that knows none of them finds them in the store.
    for queue in queues:
        queue.enqueue("expired", expires=0)
    clock.advance(70)
    assert Housekeeping(timeless, [], "other").look() == 6
    assert [len(queue.dead_letters()) for queue in queues] == [2, 2, 2]


def test_a_store_with_a_codec_of_its_own(url: str) -> None:
    """It is for the application's items; what the workers agree through is none of them."""

    class Refusing:
        def encode(self, obj: Any) -> str:
            raise rota.PayloadError(f"not one of ours: {obj!r}")

        decode = encode

    with rota.open(url, codec=Refusing()) as store:
        known = [make_source(spec, store, "w") for spec in specs()]
        assert Housekeeping(store, known, "w").look() == 2
