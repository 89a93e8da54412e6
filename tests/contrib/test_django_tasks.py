"""What Django's contract says of a backend: enqueueing, running, results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import models
from django.utils.safestring import mark_safe

import rota

from .project import Project, framework, override_settings

READY, RUNNING = framework.TaskResultStatus.READY, framework.TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = framework.TaskResultStatus.FAILED, framework.TaskResultStatus.SUCCESSFUL
NAMES = {getattr(framework.signals, f"task_{name}"): name for name in ("enqueued", "started", "finished")}
EPOCH = datetime.fromtimestamp(1_700_000_000, UTC)


class Size(models.IntegerChoices):
    LARGE = 3


def test_a_task_runs_and_its_result_is_read(site: Project) -> None:
    result = site.jobs.add.enqueue(2, b=5)
    assert (result.status, result.args, result.kwargs, result.attempts) == (READY, [2], {"b": 5}, 0)
    assert result.task == site.jobs.add
    assert len(result.id) < 64
    found = site.jobs.add.get_result(result.id)
    assert (found.status, found.id, found.task) == (READY, result.id, site.jobs.add)
    assert (found.enqueued_at, found.started_at, found.finished_at, found.worker_ids) == (EPOCH, None, None, [])
    with pytest.raises(ValueError, match="not finished"):
        _ = found.return_value
    site.clock.advance(10)
    assert site.drain() == 1
    assert site.jobs.calls == [(2, 5)]
    result.refresh()
    assert (result.status, result.return_value, result.is_finished) == (SUCCESSFUL, 7, True)
    after = EPOCH + timedelta(seconds=10)
    assert (result.enqueued_at, result.started_at, result.last_attempted_at) == (EPOCH, after, after)
    assert (result.finished_at, result.worker_ids, result.attempts, result.errors) == (after, ["w1"], 1, [])


def test_it_is_running_while_it_runs(site: Project) -> None:
    result = site.jobs.add.enqueue(1)
    job = site.store.queue("default").claim_one("other")
    assert job is not None
    result.refresh()
    assert (result.status, result.worker_ids, result.started_at) == (RUNNING, ["other"], EPOCH)
    assert result.finished_at is None


def test_an_async_task_runs_on_a_loop(site: Project) -> None:
    result = site.jobs.aadd.enqueue(2, 3)
    context = site.jobs.atold.enqueue()
    assert site.drain() == 2
    assert site.jobs.aadd.get_result(result.id).return_value == {"sum": 5, "loop": True}
    assert site.jobs.atold.get_result(context.id).return_value == 1


def test_the_async_verbs(site: Project) -> None:
    async def program() -> Any:
        result = await site.jobs.add.aenqueue(1, b=1)
        found = await site.jobs.add.aget_result(result.id)
        await result.arefresh()
        return found

    found = asyncio.run(program())
    assert found.status == READY
    assert site.drain() == 1
    assert site.jobs.add.get_result(found.id).return_value == 2


def test_the_context_is_passed(site: Project) -> None:
    result = site.jobs.told.enqueue("hello")
    assert site.drain() == 1
    result.refresh()
    assert result.return_value == [1, result.id, "RUNNING", 0, "hello"]
    (seen,) = site.jobs.calls
    assert (seen.worker_ids, seen.started_at, seen.task) == (["w1"], EPOCH, site.jobs.told)


def test_what_is_declared_is_true(make: Callable[..., Project]) -> None:
    backend = make().backend
    assert (backend.supports_defer, backend.supports_async_task, backend.supports_priority) == (True, True, True)
    assert backend.supports_get_result
    assert list(backend.check()) != []  # the test's settings have no INSTALLED_APPS


def test_without_keep_done_there_are_no_results(make: Callable[..., Project]) -> None:
    site = make(keep_done=0)
    assert not site.backend.supports_get_result
    result = site.jobs.add.enqueue(1)
    assert site.drain() == 1
    with pytest.raises(NotImplementedError):
        result.refresh()
    assert site.jobs.calls == [(1, 0)]


def test_a_result_is_kept_for_keep_done(make: Callable[..., Project]) -> None:
    site = make(keep_done=60)
    result = site.jobs.add.enqueue(1)
    assert site.drain() == 1
    site.clock.advance(59)
    site.store.queue("default").sweep_expired()
    assert site.jobs.add.get_result(result.id).status == SUCCESSFUL
    site.clock.advance(2)
    site.store.queue("default").sweep_expired()
    with pytest.raises(framework.TaskResultDoesNotExist):
        result.refresh()


def test_higher_priority_goes_first(site: Project) -> None:
    for priority in (-100, 0, 100, 7):
        site.jobs.add.using(priority=priority).enqueue(priority)
    assert site.drain() == 4
    assert [a for a, _ in site.jobs.calls] == [100, 7, 0, -100]
    with pytest.raises(framework.InvalidTask, match="priority"):
        site.jobs.add.using(priority=101)


def test_run_after(site: Project) -> None:
    at = EPOCH + timedelta(hours=1)
    later = site.jobs.add.using(run_after=at).enqueue(2)
    soon = site.jobs.add.enqueue(1)
    assert site.drain() == 1
    assert site.jobs.add.get_result(soon.id).status == SUCCESSFUL
    found = site.jobs.add.get_result(later.id)
    assert (found.status, found.task.run_after) == (READY, at)
    assert site.drain(advance=True) == 1
    later.refresh()
    assert (later.status, later.started_at) == (SUCCESSFUL, at)
    with pytest.raises(framework.InvalidTask, match="aware"):
        site.jobs.add.using(run_after=datetime(2030, 1, 1))


def test_without_use_tz_times_are_local(site: Project) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="America/New_York"):
        result = site.jobs.add.using(run_after=datetime(2023, 11, 14, 18, 13, 20)).enqueue(1)
        # One hour after the clock's epoch, as New York has it.
        record = site.store.queue("default").peek(1) or site.store.queue("default").jobs()
        assert record[0].run_at == 1_700_000_000 + 3_600
        assert site.drain(advance=True) == 1
        result.refresh()
        assert result.enqueued_at == datetime(2023, 11, 14, 17, 13, 20)
        assert result.started_at == datetime(2023, 11, 14, 18, 13, 20)
        assert result.task.run_after == datetime(2023, 11, 14, 18, 13, 20)


def test_arguments_are_what_json_makes_of_them(site: Project) -> None:
    site.jobs.add.enqueue(Size.LARGE, b=(1, {Size.LARGE: mark_safe("x")}))
    assert site.drain() == 1
    assert site.jobs.calls == [(3, [1, {"3": "x"}])]
    assert type(site.jobs.calls[0][0]) is int


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("bad", [object(), {1, 2}, float("nan"), "\ud800", datetime(2030, 1, 1, tzinfo=UTC), ENDLESS])
def test_arguments_that_are_no_json_are_refused_before_any_effect(site: Project, bad: Any) -> None:
    with pytest.raises((TypeError, ValueError, rota.PayloadError)):
        site.jobs.add.enqueue(bad)
    with pytest.raises(rota.PayloadTooLarge):
        site.jobs.add.enqueue("x" * 2_000_000)
    assert site.store.queue("default").stats().pending == 0
    assert site.drain() == 0


def test_queues(site: Project) -> None:
    result = site.jobs.mail.enqueue("ada")
    assert site.store.queues() == ["mails"]
    assert site.jobs.mail.get_result(result.id).task.queue_name == "mails"
    with pytest.raises(framework.InvalidTask, match="Queue 'other'"):
        site.jobs.mail.using(queue_name="other")


@pytest.mark.parametrize("id", ["", "1", "1-", "-x", "x-1", "99999999999999999999-a", "1-wrong", "١-a", None])
def test_an_unknown_id_has_no_result(site: Project, id: Any) -> None:
    site.jobs.add.enqueue(1)
    with pytest.raises(framework.TaskResultDoesNotExist):
        site.backend.get_result(id)


def test_ids_of_others_have_no_result(site: Project) -> None:
    mail, add = site.jobs.mail.enqueue("ada"), site.jobs.add.enqueue(1)
    with pytest.raises(Exception, match="does not match") as caught:
        site.jobs.add.get_result(mail.id)
    assert type(caught.value).__name__ == "TaskResultMismatch"
    # A queue that is not the backend's, and a job that is no task.
    site.backend.queues = {"default"}
    with pytest.raises(framework.TaskResultDoesNotExist):
        site.backend.get_result(mail.id)
    own = site.store.queue("default").enqueue(1)
    with pytest.raises(framework.TaskResultDoesNotExist):
        site.backend.get_result(f"{own}-{add.id.partition('-')[2]}")
    site.backend.queues = set()
    assert site.backend.get_result(mail.id).status == READY


def test_only_what_a_worker_can_find_is_enqueued(site: Project) -> None:
    original = site.jobs.add
    try:
        site.jobs.add = "something else"
        with pytest.raises(framework.InvalidTask, match="does not lead to this task"):
            original.enqueue(1)
    finally:
        site.jobs.add = original
    assert site.store.queue("default").stats().pending == 0


def test_signals(make: Callable[..., Project]) -> None:
    site = make(max_attempts=2)
    heard: list[Any] = []

    def receiver(sender: Any, signal: Any, task_result: Any, **kwargs: Any) -> None:
        heard.append((NAMES[signal], sender, task_result.task.name, str(task_result.status)))
        if signal is not framework.signals.task_enqueued:
            raise RuntimeError("a receiver's own fault")

    for signal in NAMES:
        signal.connect(receiver)
    try:
        site.jobs.add.enqueue(1, 2)
        site.jobs.arefuse.enqueue("no")
        site.drain(advance=True)
    finally:
        for signal in NAMES:
            signal.disconnect(receiver)
    backend = type(site.backend)
    assert heard == [
        ("enqueued", backend, "add", "READY"),
        ("enqueued", backend, "arefuse", "READY"),
        ("started", backend, "add", "RUNNING"),
        ("finished", backend, "add", "SUCCESSFUL"),
        ("started", backend, "arefuse", "RUNNING"),
        ("started", backend, "arefuse", "RUNNING"),
        ("finished", backend, "arefuse", "FAILED"),
    ]
    assert site.jobs.calls == [(1, 2)]
