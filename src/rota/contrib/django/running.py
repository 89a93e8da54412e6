"""The worker: running tasks as Django's contract says."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.utils import timezone

from rota.aio.queue import AsyncJob
from rota.contrib.django import results
from rota.contrib.django.backend import RotaBackend
from rota.contrib.django.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    TaskContext,
    TaskResultStatus,
    signals,
    task_backends,
)
from rota.facade.queues import JobData
from rota.sync.queue import Job
from rota.units import Duration
from rota.worker.choosing import ChoosingWorker
from rota.worker.outcomes import Fail, Retry, Snooze
from rota.worker.registry import DEFAULT_CONCURRENCY
from rota.worker.worker import DEFAULT_GRACE, Worker

logger = logging.getLogger(__name__)
# Not CancelledError and KeyboardInterrupt: they are the worker's, which knows why.
_CAUGHT = (Exception, SystemExit)


def worker(
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    *,
    queues: Iterable[str] | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    timeout: Duration | None = None,
    grace: Duration | None = DEFAULT_GRACE,
    worker_id: str | None = None,
    housekeeping: bool = True,
) -> Worker:
    """A worker for the tasks of a backend: ``manage.py rota_worker`` runs one, ``rota run myproject.tasks:worker`` too.

    Plain tasks run in threads, async ones on an event loop, ``concurrency`` of each queue at once. ``queues``: by
    default all of the backend's QUEUES. The other options are those of ``rota.Worker`` and its queues. Django must be
    set up. Raises ``ImproperlyConfigured`` where there is nothing to work on.
    """
    tasks = task_backends[backend]
    if not isinstance(tasks, RotaBackend):
        raise ImproperlyConfigured(f"TASKS[{backend!r}] is no rota.contrib.django.RotaBackend: it has no worker")
    if isinstance(queues, str):
        raise TypeError(f"queues must be several names, got the one str {queues!r}: write [{queues!r}]")
    names = sorted(tasks.queues if queues is None else set(queues))
    if not names:
        raise ImproperlyConfigured(f"TASKS[{backend!r}] takes tasks for any queue: say which ones to work on")
    foreign = sorted(set(names) - tasks.queues) if tasks.queues else []
    if foreign:
        raise ImproperlyConfigured(f"TASKS[{backend!r}] has no queue {foreign}, only {sorted(tasks.queues)}")
    made = ChoosingWorker(tasks.url, grace=grace, worker_id=worker_id, housekeeping=housekeeping)
    runs = Runs(tasks)
    for name in names:
        made.choose(name, {"thread": runs.run, "loop": runs.arun}, choose, concurrency=concurrency, timeout=timeout)
    return made


def choose(path: str) -> str | None:
    """Where the task at this path runs; None: there is none in this process, which is logged."""
    try:
        return "loop" if iscoroutinefunction(results.find(path).func) else "thread"
    except Exception:
        logger.warning("There is no task %s here: its calls are given back, they wait", path, exc_info=True)
        return None


class Runs:
    """Runs a backend's tasks, one at a time in each thread and each task of the loop."""

    def __init__(self, backend: RotaBackend) -> None:
        self._alias = backend.alias
        self._sender = type(backend)

    def run(self, job: Job) -> Any:
        """A plain task, in a thread."""
        # What Django does around a request: connections of this thread that are too old or broken are closed.
        close_old_connections()
        try:
            result = self._begun(job)
            self._tell(signals.task_started, result)
            try:
                self._done(job, result, result.task.func(*_context(result), *result.args, **result.kwargs))
            except _CAUGHT as error:
                outcome = self._failed(job, result, error)
                if result.is_finished:
                    # Here, where receivers can look at the exception.
                    self._tell(signals.task_finished, result)
                if outcome is error:
                    raise
                raise outcome from error
            self._tell(signals.task_finished, result)
            return result._return_value
        finally:
            close_old_connections()

    async def arun(self, job: AsyncJob) -> Any:
        """An async task, on the loop. Django's connections are those of the one thread it has for async programs."""
        await sync_to_async(close_old_connections)()
        try:
            result = self._begun(job)
            await sync_to_async(self._tell)(signals.task_started, result)
            try:
                self._done(job, result, await result.task.func(*_context(result), *result.args, **result.kwargs))
            except _CAUGHT as error:
                outcome = self._failed(job, result, error)
                if result.is_finished:
                    await sync_to_async(self._tell)(signals.task_finished, result)
                if outcome is error:
                    raise
                raise outcome from error
            await sync_to_async(self._tell)(signals.task_finished, result)
            return result._return_value
        finally:
            await sync_to_async(close_old_connections)()

    def _tell(self, signal: Any, result: Any) -> None:
        # Robust: a receiver's failure is logged by Django and must not make a task that was run run again.
        signal.send_robust(self._sender, task_result=result)

    # -- What the result says ------------------------------------------------------------------------------------------

    def _begun(self, job: JobData) -> Any:
        return results.of_job(job, self._alias)

    def _done(self, job: JobData, result: Any, value: Any) -> None:
        try:
            kept = results.plain(value)
            # Refused here and not when it is stored, where the worker could only drop it.
            job._queue._result(kept)
        except Exception as error:
            # Running it once more would do its work once more and return the same.
            raise Fail from error
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=kept)

    def _failed(self, job: JobData, result: Any, error: BaseException) -> BaseException:
        """What to raise for it, after the result was brought up to date."""
        if isinstance(error, Snooze):
            return error
        meant = isinstance(error, Fail | Retry)
        told: BaseException = error.__cause__ or error if meant else error
        text = results.failure_text(job, told)
        result.errors.append(results.task_error(text))
        if isinstance(error, Fail) or job.attempts >= job.max_attempts:
            _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            return Fail(text)
        _set(result, status=TaskResultStatus.READY)
        logger.warning(
            "Task id=%s path=%s failed, attempt %d of %d",
            result.id,
            result.task.module_path,
            job.attempts,
            job.max_attempts,
            exc_info=told,
        )
        return Retry(error.delay if isinstance(error, Retry) else None, text)


def _context(result: Any) -> list[Any]:
    return [TaskContext(task_result=result)] if result.task.takes_context else []


def _set(result: Any, **values: Any) -> None:
    # Results are frozen for everyone but backends.
    for name, value in values.items():
        object.__setattr__(result, name, value)
