"""A failed ack does not leave a job held for ever by a living worker (case 017; seen in rails/solid_queue 748)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota

from .faults import Faults
from .running import until

VISIBILITY = 0.8
DOWN = rota.EngineUnavailable("the connection is gone")


def about(id: int) -> Callable[[tuple[Any, ...]], BaseException | None]:
    """Fails every settlement of one job, in whatever batch it comes."""

    def fails(args: tuple[Any, ...]) -> BaseException | None:
        claims = args[0] if isinstance(args[0], list) else [args[0]]
        return DOWN if any(claim.id == id for claim in claims) else None

    return fails


def working(store: rota.Store, outcome: str, seen: list[Any]) -> rota.Worker:
    worker = rota.Worker(store)

    @worker.queue("q", visibility=VISIBILITY)
    async def handle(job: rota.AsyncJob) -> None:
        seen.append((job.payload, job.attempts))
        if job.payload == "bad" and outcome == "retry":
            raise rota.Retry(delay=100)
        if job.payload == "bad" and outcome == "fail":
            raise rota.Fail("no")

    return worker


VERBS = {"ack": ("ack", "ack_batch"), "retry": ("retry",), "fail": ("fail",)}
STATE = {"ack": "done", "retry": "pending", "fail": "dead"}


@pytest.mark.parametrize("outcome", ["ack", "retry", "fail"])
def test_failing_once_is_tried_again_within_the_lease(store: rota.Store, running: Any, outcome: str) -> None:
    faults, seen = Faults(store), []
    for verb in VERBS[outcome]:
        faults.times(verb, 1, DOWN)
    queue = store.queue("q", keep_done=60)
    id = queue.enqueue("bad")
    worker = working(store, outcome, seen)
    running(worker)
    until(lambda: sum((h := worker.health().sources[0], h.acked + h.retried + h.failed)[1:]) == 1)
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.attempts) == (STATE[outcome], 1)
    assert seen == [("bad", 1)]
    assert worker.health().sources[0].lost == 0


@pytest.mark.parametrize("outcome", ["ack", "retry", "fail"])
def test_failing_for_ever_lets_the_lease_lapse(
    store: rota.Store, running: Any, caplog: pytest.LogCaptureFixture, outcome: str
) -> None:
    """The job is delivered again and counted; the others, even of the same batch, go on; one word in the log each."""
    caplog.set_level(logging.INFO, "rota.worker")
    faults, seen = Faults(store), []
    queue = store.queue("q", keep_done=60, max_attempts=2)
    bad, *others = queue.enqueue_many(["bad", *range(20)])
    for verb in VERBS[outcome]:
        faults.fails[verb] = about(bad)
    worker = working(store, outcome, seen)
    running(worker)
    until(lambda: worker.health().sources[0].acked == 20)
    fed = queue.enqueue("later")
    until(lambda: ("bad", 2) in seen)
    until(lambda: (queue.get_job(fed) or 0).state == "done")
    until(lambda: worker.health().sources[0].lost == 2)
    assert all((queue.get_job(id) or 0).state == "done" for id in others)
    assert [attempt for payload, attempt in seen if payload == "bad"] == [1, 2]
    assert sorted(payload for payload, _ in seen if isinstance(payload, int)) == list(range(20))
    events = [record.event for record in caplog.records if getattr(record, "job_id", None) == bad]
    assert events.count("outcome_not_recorded") == 2


def test_an_outage_longer_than_the_lease(store: rota.Store, running: Any) -> None:
    """Nothing can be settled or renewed for a while; then everything is done, and the worker is the same."""
    faults, seen = Faults(store), []
    queue = store.queue("q", max_attempts=5)
    queue.enqueue_many(range(30))
    worker = working(store, "ack", seen)
    end = time.monotonic() + 2 * VISIBILITY
    for verb in ("ack", "ack_batch", "heartbeat"):
        faults.fails[verb] = lambda args: DOWN if time.monotonic() < end else None
    running(worker)
    until(lambda: queue.stats().pending == queue.stats().processing == 0)
    assert queue.stats().dead == 0
    assert {payload for payload, _ in seen} == set(range(30))
    until(lambda: worker.health().store_failing_since is None)


def test_outcome_that_is_unknown_counts_as_done_when_it_was(store: rota.Store, running: Any) -> None:
    """The ack was committed and its answer lost: the second try finds nothing, and that is no lost claim."""
    engine = store.queue("q")._engine
    faults, seen = Faults(store), []
    queue = store.queue("q")
    worker = working(store, "ack", seen)

    def committed_but_unheard(args: tuple[Any, ...]) -> BaseException | None:
        faults.fails.clear()
        done = engine.ack(*args) if not isinstance(args[0], list) else engine.ack_batch(*args)
        assert done
        return rota.OutcomeUnknown("the connection broke while committing")

    for verb in VERBS["ack"]:
        faults.fails[verb] = committed_but_unheard
    queue.enqueue(1)
    running(worker)
    until(lambda: worker.health().sources[0].acked == 1)
    assert worker.health().sources[0].lost == 0
    assert seen == [(1, 1)]
