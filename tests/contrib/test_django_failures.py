"""Tasks that fail, and workers that do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.contrib.django import TaskAborted

from .project import Project, framework, tasks

READY, FAILED, SUCCESSFUL = (framework.TaskResultStatus[name] for name in ("READY", "FAILED", "SUCCESSFUL"))


@pytest.mark.parametrize("name", ["refuse", "arefuse"])
def test_a_failure_is_final_unless_said_otherwise(site: Project, name: str) -> None:
    result = getattr(site.jobs, name).enqueue("no such order")
    assert site.drain(advance=True) == 1
    result.refresh()
    assert (result.status, result.attempts, result.worker_ids) == (FAILED, 1, ["w1"])
    (error,) = result.errors
    assert error.exception_class_path == "contrib.jobs.Refused"
    assert error.exception_class is site.jobs.Refused
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("Refused: no such order")
    assert f"in {name}\n" in error.traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    # An operator finds it where failed jobs are, and may let it run again.
    queue = site.store.queue("default")
    (letter,) = queue.dead_letters()
    assert letter.id == int(result.id.partition("-")[0])
    assert letter.last_error.startswith("attempt 1, ")
    assert "rota/contrib" not in error.traceback.replace("\\", "/")
    queue.redrive("all")
    result.refresh()
    assert (result.status, result.attempts) == (READY, 0)


def test_attempts_go_on_until_one_succeeds(make: Callable[..., Project], caplog: pytest.LogCaptureFixture) -> None:
    site = make(max_attempts=5, backoff_base=2)
    result = site.jobs.refuse_until.enqueue(3)
    seen: list[Any] = []
    with caplog.at_level(logging.WARNING):
        while not result.is_finished:
            site.drain()
            result.refresh()
            seen.append((str(result.status), result.attempts, len(result.errors)))
            site.clock.advance(60)
    assert seen == [("READY", 1, 1), ("READY", 2, 2), ("SUCCESSFUL", 3, 2)]
    assert site.jobs.calls == [1, 2, 3]
    assert result.return_value == "done"
    assert [error.traceback.rpartition(": ")[2] for error in result.errors] == ["attempt 1", "attempt 2"]
    assert result.started_at < result.last_attempted_at == result.finished_at
    assert result.worker_ids == ["w1"] * 3
    assert [
        record.getMessage().partition(" path=")[2]
        for record in caplog.records
        if record.name == "rota.contrib.django.running"
    ] == [
        "contrib.jobs.refuse_until failed, attempt 1 of 5",
        "contrib.jobs.refuse_until failed, attempt 2 of 5",
    ]
    # The worker's own log names the task's exception, not the Retry it is wrapped in.
    failed = [record for record in caplog.records if record.getMessage().startswith("handler_failed")]
    assert [vars(record)["error"] for record in failed] == ["Refused"] * 2


def test_attempts_run_out(make: Callable[..., Project]) -> None:
    site = make(max_attempts=4)
    result = site.jobs.refuse.enqueue("never")
    assert site.drain(advance=True) == 4
    result.refresh()
    # Each attempt's time and worker, the last two errors.
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 4, 2)
    assert result.worker_ids == ["w1"] * 4
    assert result.started_at == result.enqueued_at < result.last_attempted_at
    assert {error.exception_class_path for error in result.errors} == {"contrib.jobs.Refused"}


def test_a_worker_that_dies_is_told(make: Callable[..., Project]) -> None:
    site = make(visibility=30)
    result = site.jobs.add.enqueue(1)
    assert site.store.queue("default").claim_one("dies") is not None
    site.clock.advance(31)
    assert site.drain() == 0
    result.refresh()
    assert (result.status, result.worker_ids) == (FAILED, ["dies"])
    (error,) = result.errors
    assert error.exception_class is TaskAborted
    assert error.traceback == "max attempts exceeded"
    assert site.jobs.calls == []


def test_a_worker_that_dies_has_its_task_run_again(make: Callable[..., Project]) -> None:
    site = make(visibility=30, max_attempts=3)
    result = site.jobs.refuse_until.enqueue(3)
    assert site.store.queue("default").claim_one("dies") is not None
    site.clock.advance(31)
    assert site.drain(advance=True) == 2
    result.refresh()
    # Nobody wrote down who had the first attempt.
    assert (result.status, result.worker_ids, result.started_at) == (SUCCESSFUL, ["unknown", "w1", "w1"], None)


@pytest.mark.parametrize(
    ("what", "kind"), [("object", "TypeError"), ("nan", "ValueError"), ("long", "PayloadTooLarge")]
)
def test_a_return_value_that_is_no_json_fails_for_good(make: Callable[..., Project], what: str, kind: str) -> None:
    site = make(max_attempts=3)
    result = site.jobs.returns.enqueue(what)
    assert site.drain(advance=True) == 1
    result.refresh()
    assert (result.status, site.jobs.calls) == (FAILED, [what])
    assert result.errors[-1].exception_class_path.rpartition(".")[2] == kind


def test_what_rota_s_handlers_may_raise(make: Callable[..., Project]) -> None:
    site = make(max_attempts=3)
    snoozed, failed = site.jobs.ends.enqueue("snooze"), site.jobs.ends.enqueue("fail")
    assert site.drain(advance=True) == 3
    snoozed.refresh()
    failed.refresh()
    assert (snoozed.status, snoozed.attempts) == (SUCCESSFUL, 1)
    assert (failed.status, failed.attempts) == (FAILED, 1)
    assert failed.errors[0].exception_class is rota.Fail


def test_a_task_cannot_end_the_worker(site: Project) -> None:
    result = site.jobs.ends.enqueue("exit")
    after = site.jobs.add.enqueue(1)
    assert site.drain() == 2
    result.refresh()
    after.refresh()
    assert (result.status, after.status) == (FAILED, SUCCESSFUL)
    assert result.errors[0].exception_class is SystemExit


def test_a_task_nobody_knows_waits_for_somebody_who_does(site: Project, caplog: pytest.LogCaptureFixture) -> None:
    """A module was renamed, or the worker is older than the site."""
    result = site.jobs.add.enqueue(1)
    known = site.jobs.add
    del site.jobs.add
    try:
        assert site.drain() == 1
        assert "There is no task contrib.jobs.add here" in caplog.text
        with pytest.raises(framework.InvalidTask, match=r"is there \(READY\), but not its function 'contrib.jobs.add'"):
            site.backend.get_result(result.id)
        # No attempt was used up.
        (job,) = site.store.queue("default").jobs()
        assert (job.state, job.attempts, job.releases) == ("pending", 0, 1)
    finally:
        site.jobs.add = known
    assert site.drain(advance=True) == 1
    result.refresh()
    assert (result.status, result.attempts) == (SUCCESSFUL, 1)


@pytest.mark.parametrize("name", ["os.system", "nosuchmodule.task", "x", "contrib.jobs.calls"])
def test_only_tasks_are_run(site: Project, name: str) -> None:
    """A path in the database leads to tasks or nowhere."""
    site.store.queue("default").enqueue({"args": ["true"], "kwargs": {}}, name=name)
    assert site.drain() == 1
    (job,) = site.store.queue("default").jobs()
    assert (job.state, job.attempts, job.releases) == ("pending", 0, 1)


def test_a_running_worker_counts_time_for_async_tasks(site: Project) -> None:
    """Timeouts are the worker's; what it says is read as an error."""
    queue = site.store.queue("default")
    result = site.jobs.aadd.enqueue(1, 1)
    job = queue.claim_one("w1")
    assert job is not None
    assert job.fail("timed out after 5 s")
    result.refresh()
    assert result.status == FAILED
    assert (result.errors[0].exception_class, result.errors[0].traceback) == (TimeoutError, "timed out after 5 s")


def test_a_worker_in_threads_and_on_a_loop(site: Project) -> None:
    """The runtime itself: several tasks of both kinds at once."""
    results = [site.jobs.add.enqueue(n) for n in range(20)] + [site.jobs.aadd.enqueue(n, n) for n in range(20)]
    worker = tasks.worker(concurrency=4, worker_id="w2").bind(site.store)

    async def program() -> None:
        running = asyncio.create_task(worker.arun(signals=False))
        for _ in range(1_200):
            await asyncio.sleep(0.05)
            if len(site.jobs.calls) == 40 and site.store.queue("default").stats().done == 40:
                break
        worker.stop()
        await running

    asyncio.run(program())
    for result in results:
        result.refresh()
    assert {str(result.status) for result in results} == {"SUCCESSFUL"}
    assert {one for result in results for one in result.worker_ids} == {"w2"}
