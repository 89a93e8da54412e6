"""Django's tasks framework, from wherever it is: ``django.tasks`` of Django 6, before that the package django-tasks."""

from __future__ import annotations

try:
    import django
except ImportError as error:
    raise ImportError("rota.contrib.django needs Django: pip install 'rota[django]'") from error

if django.VERSION >= (6,):
    from django.tasks import (
        DEFAULT_TASK_BACKEND_ALIAS,
        Task,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        signals,
        task_backends,
    )
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.utils.json import normalize_json
else:
    try:
        import django_tasks  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"rota.contrib.django needs django.tasks of Django 6; here is Django {django.get_version()}, for which the "
            "package django-tasks has the same: pip install django-tasks"
        ) from error
    from django_tasks import (
        DEFAULT_TASK_BACKEND_ALIAS,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        signals,
        task_backends,
    )
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.utils import normalize_json

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task_backends",
]
