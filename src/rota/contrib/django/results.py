"""A job as Django's ``TaskResult``, and what the worker writes into a job's error so that it can be one.

An error's text begins with a line for each attempt: its number, when it began, the exception's class, the worker. Then
comes the traceback. The store keeps the last two errors and knows the last attempt by itself.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.module_loading import import_string

from rota.contrib.django.framework import (
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
)
from rota.worker.outcomes import error_text

# The header that makes an id unguessable, and tells tasks from other jobs of the queue.
SECRET = "django-task"
_LINE = re.compile(r"attempt (?P<number>\d+), (?P<began>\S+), (?P<kind>\S+), (?P<worker>[^\n]+)\n")
_HERE = os.path.dirname(__file__) + os.sep
_MOST_LINES = 50
_STATUS = {
    "pending": TaskResultStatus.READY,
    "processing": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
}
_OF_JOBS = (
    *("id", "queue", "name", "payload", "headers", "priority", "attempts"),
    *("worker_id", "claimed_at", "enqueued_at", "last_error"),
)
UNKNOWN_WORKER = "unknown"


class TaskAborted(Exception):
    """What a result's errors name where the task's own function raised nothing: its worker died (``max attempts
    exceeded``), or an operator ended it. The traceback is the text that is known."""


class Attempt(NamedTuple):
    """One that failed, as an error's text tells."""

    began: datetime
    kind: str
    worker: str


# -- Errors ------------------------------------------------------------------------------------------------------------


def class_path(error: BaseException) -> str:
    """As Django writes it."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def failure_text(job: Any, error: BaseException) -> str:
    """The text of a failed attempt: what is known of the ones before, this one, the traceback."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_HERE):
        inner = inner.tb_next
    if inner is not None:
        # Begins with the task's own function, for whoever logs it too.
        error.__traceback__ = inner
    known = attempts_in(job.last_error)
    known[job.attempts] = Attempt(moment(job.claimed_at), class_path(error), job.worker_id)
    lines = [
        f"attempt {number}, {one.began.isoformat()}, {one.kind}, {one.worker}\n"
        for number, one in sorted(known.items())[-_MOST_LINES:]
        if number <= job.attempts
    ]
    return "".join(lines) + error_text(error)


def attempts_in(text: str | None) -> dict[int, Attempt]:
    """The attempts an error's text tells of, by number."""
    found: dict[int, Attempt] = {}
    at = 0
    while text and (line := _LINE.match(text, at)):
        at = line.end()
        try:
            began = datetime.fromisoformat(line["began"])
        except ValueError:
            break
        found[int(line["number"])] = Attempt(began, line["kind"], line["worker"])
    return found


def task_error(text: str) -> Any:
    """A ``TaskError`` from an error's text, whoever wrote it."""
    known = attempts_in(text)
    if known:
        end = 0
        while line := _LINE.match(text, end):
            end = line.end()
        return TaskError(exception_class_path=known[max(known)].kind, traceback=text[end:])
    kind = "builtins.TimeoutError" if text.startswith("timed out after ") else f"{__package__}.{TaskAborted.__name__}"
    return TaskError(exception_class_path=kind, traceback=text)


# -- Tasks -------------------------------------------------------------------------------------------------------------


def find(path: str) -> Any:
    """The task at a path. Raises what importing raises, ``ImportError`` where there is no task."""
    found = import_string(path)
    if not isinstance(found, Task):
        raise ImportError(f"{path} is no task but of type {type(found).__name__}")
    return found


def payload_of(task: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What is stored of a call."""
    payload: dict[str, Any] = {"args": args, "kwargs": kwargs}
    if task.run_after is not None:
        payload["run_after"] = task.run_after.isoformat()
    return payload


def task_of(found: Any, record: Any, backend: str) -> Any:
    """The task as it was enqueued."""
    after = record.payload.get("run_after")
    return found.using(
        priority=record.priority,
        queue_name=record.queue,
        backend=backend,
        run_after=None if after is None else datetime.fromisoformat(after),
    )


def moment(seconds: float) -> datetime:
    """POSIX seconds as Django's ``timezone.now`` would give them."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at if timezone.now().tzinfo is not None else timezone.make_naive(at)


def _optional(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


# -- Results -----------------------------------------------------------------------------------------------------------


def id_of(number: int, secret: str) -> str:
    """A result's id."""
    return f"{number}-{secret}"


def parts_of(result_id: Any) -> tuple[int, str] | None:
    """The job's number and the secret in a result's id; None for what is none."""
    number, mark, secret = str(result_id).partition("-")
    return (int(number), secret) if mark and secret and re.fullmatch(r"[0-9]{1,19}", number) else None


def of_job(job: Any, backend: str) -> Any:
    """The result of a task that begins to run."""
    values = {name: getattr(job, name) for name in _OF_JOBS}
    unknown = dict.fromkeys(("previous_error", "result", "done_at", "died_at"))
    return result_of(SimpleNamespace(state="processing", **values, **unknown), backend)


def result_of(record: Any, backend: str) -> Any:
    """What the store knows of a task. ``InvalidTask`` where its function cannot be found any more."""
    try:
        found = find(record.name or "")
    except Exception as error:
        raise InvalidTask(
            f"the task {record.id} is there ({_STATUS[record.state]}), but not its function {record.name!r}: {error}"
        ) from error
    known = attempts_in(record.last_error)
    if record.state != "pending" and record.worker_id is not None and record.claimed_at is not None:
        known[record.attempts] = Attempt(moment(record.claimed_at), "", record.worker_id)
    numbers = range(1, record.attempts + 1)
    texts = [record.previous_error, record.last_error]
    result = TaskResult(
        task=task_of(found, record, backend),
        id=id_of(record.id, record.headers.get(SECRET, "")),
        status=_STATUS[record.state],
        enqueued_at=moment(record.enqueued_at),
        started_at=known[1].began if 1 in known and record.attempts else None,
        last_attempted_at=next((known[number].began for number in reversed(numbers) if number in known), None),
        finished_at=_optional(record.done_at if record.state == "done" else record.died_at),
        args=record.payload["args"],
        kwargs=record.payload["kwargs"],
        backend=backend,
        errors=[task_error(text) for text in texts if text],
        worker_ids=[known[number].worker if number in known else UNKNOWN_WORKER for number in numbers],
    )
    if record.state == "done":
        object.__setattr__(result, "_return_value", record.result)
    return result


def plain(value: Any) -> Any:
    """A value as JSON carries it: members of enums, safe strings and the like become what they are made of.

    Raises ``TypeError`` or ``ValueError`` for what is no JSON, as Django's own backends do.
    """
    try:
        return json.loads(json.dumps(normalize_json(value), allow_nan=False))
    except RecursionError:
        raise ValueError("nested too deeply to be JSON, or contains itself") from None
