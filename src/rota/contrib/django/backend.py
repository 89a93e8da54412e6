"""The backend: enqueueing, and reading results."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone
from django.utils.crypto import get_random_string

import rota
from rota.contrib.django import results, stores
from rota.contrib.django.framework import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
)

APP = "rota.contrib.django"
KEEP_DONE = 86_400
# Given to the queue's handle as they are.
_STAMPS = ("visibility", "max_attempts", "backoff_base", "dead_letter_retention", "keep_done")
_OPTIONS = ("database", "url", "store", *_STAMPS)


class RotaBackend(BaseTaskBackend):
    """Keeps tasks in a store of Rota; a worker beside runs them (``manage.py rota_worker``).

    OPTIONS: ``database``, the alias in DATABASES whose database the tasks are in (``default``), or ``url``, a store of
    its own. ``store``: a dict of what ``rota.open`` takes in a URL. ``keep_done``: seconds a result can be read after
    success (a day; 0: never). ``max_attempts`` (1: a failure is final), ``backoff_base``, ``visibility`` and
    ``dead_letter_retention`` (seconds a failed task can be read; for ever) are those of a queue.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True
    # With keep_done=0 not: what is done is gone.
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if isinstance(params.get("QUEUES"), str):
            # Its letters would be the queues.
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: QUEUES must be a list of names, got {params['QUEUES']!r}")
        unknown = sorted(set(self.options) - set(_OPTIONS))
        if unknown:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: OPTIONS has no {unknown}, only {', '.join(_OPTIONS)}")
        if "url" in self.options and "database" in self.options:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: OPTIONS has both a url and a database: which is it?")
        if not isinstance(self.options.get("store") or {}, dict):
            raise InvalidTaskBackend(
                f"TASKS[{alias!r}]: store in OPTIONS must be a dict such as {{'durability': 'normal'}}, got "
                f"{self.options['store']!r}"
            )
        # The database whose transactions tasks take part in; None: a store of its own.
        self.database: str | None = None if "url" in self.options else self.options.get("database", DEFAULT_DB_ALIAS)
        self._stamp: dict[str, Any] = {"max_attempts": 1, "keep_done": KEEP_DONE} | {
            name: self.options[name] for name in _STAMPS if self.options.get(name) is not None
        }
        self.supports_get_result = self._stamp["keep_done"] != 0
        try:
            with rota.open("memory://") as nothing:
                nothing.queue("checked", **self._stamp)
        except (TypeError, ValueError) as error:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {error}") from None

    @property
    def url(self) -> str:
        """The store's URL. ``ImproperlyConfigured`` where the settings lead to none."""
        options = self.options.get("store") or {}
        if self.database is None:
            return stores.with_options(self.options["url"], options)
        return stores.url_of(self.database, options)

    def queue(self, name: str) -> rota.Queue:
        """The queue of Rota that a queue of Django is: it has the same name."""
        return stores.opened(self.url).queue(name, **self._stamp)

    # -- In ------------------------------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a call of the task: in the transaction this thread is in, if it is one of the tasks' database.

        Raises ``InvalidTask``; ``TypeError``, ``ValueError`` or ``rota.PayloadError`` for arguments that are no JSON,
        before anything is stored; and the store's own errors.
        """
        self.validate_task(task)
        _check_path(task)
        # The same for the worker and for who reads the result.
        args, kwargs = results.plain(list(args)), results.plain(dict(kwargs))
        connection = self._transaction()
        secret = get_random_string(24)
        number = self.queue(task.queue_name).enqueue(
            results.payload_of(task, args, kwargs),
            name=task.module_path,
            priority=int(task.priority),
            run_at=_aware(task.run_after),
            headers={results.SECRET: secret},
            tx=connection,
        )
        result = TaskResult(
            task=task,
            id=results.id_of(number, secret),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        announce = partial(signals.task_enqueued.send, type(self), task_result=result)
        if connection is not None and connection.in_atomic_block:
            # What is rolled back was never enqueued.
            transaction.on_commit(announce, using=self.database, robust=True)
        else:
            announce()
        return result

    def _transaction(self) -> Any:
        """Django's connection, where this thread is in a transaction on it."""
        if self.database is None:
            return None
        connection = connections[self.database]
        if connection.in_atomic_block or not connection.settings_dict["AUTOCOMMIT"]:
            return connection
        return connection if connection.connection is not None and not connection.get_autocommit() else None

    # -- Out -----------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> Any:
        """What became of a task. ``TaskResultDoesNotExist``: of another backend, not committed, or no longer kept.

        Raises ``InvalidTask`` for a task that is there but whose function is not.
        """
        if not self.supports_get_result:
            return super().get_result(result_id)
        parts = results.parts_of(result_id)
        if parts is not None:
            number, secret = parts
            store = stores.opened(self.url)
            # A job's number is the store's, whatever queue it is in.
            for name in sorted(self.queues or store.queues()):
                record = store.queue(name).get_job(number)
                if record is not None and record.headers.get(results.SECRET) == secret:
                    return results.result_of(record, self.alias)
        raise TaskResultDoesNotExist(result_id)

    # -- Checks --------------------------------------------------------------------------------------------------------

    def check(self, **kwargs: Any) -> list[Any]:
        """What ``manage.py check`` says of it."""
        found = list(super().check(**kwargs))
        where = f"TASKS[{self.alias!r}]"
        try:
            stores.check(self.url)
        except stores.InMemory as error:
            if not stores.is_test(str(self.database)):
                found.append(checks.Error(f"{where}: {error}", id="rota.E001"))
        except (ImproperlyConfigured, TypeError, ValueError, rota.RotaError) as error:
            found.append(checks.Error(f"{where}: {error}", id="rota.E001"))
        if (
            self.database is not None
            and APP not in settings.INSTALLED_APPS
            and f"{APP}.apps.RotaConfig" not in (settings.INSTALLED_APPS)
        ):
            hint = "With it, manage.py migrate makes the tables and manage.py rota_worker runs the tasks."
            found.append(checks.Warning(f"{where}: {APP} is not in INSTALLED_APPS", hint, id="rota.W001"))
        return found


def _check_path(task: Any) -> None:
    """A worker finds the task by this path, so it must be there."""
    module = sys.modules.get(task.func.__module__)
    found = getattr(module, task.func.__qualname__, None)
    if getattr(found, "func", None) is not task.func or task.func.__module__ == "__main__":
        raise InvalidTask(
            f"{task.module_path} does not lead to this task, so no worker would find it: decorate a function at the "
            "top of a module that can be imported"
        )


def _aware(at: Any) -> Any:
    return timezone.make_aware(at) if at is not None and timezone.is_naive(at) else at
