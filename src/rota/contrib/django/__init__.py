"""A backend for Django's tasks: ``TASKS = {"default": {"BACKEND": "rota.contrib.django.RotaBackend"}}``.

By default the tasks are in the project's own database, so that a task enqueued in ``transaction.atomic()`` is committed
or rolled back with it. Put ``rota.contrib.django`` into ``INSTALLED_APPS``: ``manage.py migrate`` then makes the
tables, and ``manage.py rota_worker`` runs the tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.contrib.django.backend import RotaBackend
    from rota.contrib.django.results import TaskAborted
    from rota.contrib.django.running import worker
    from rota.contrib.django.stores import store

__all__ = ["RotaBackend", "TaskAborted", "store", "worker"]

_HOMES = {"RotaBackend": "backend", "TaskAborted": "results", "store": "stores", "worker": "running"}


def __getattr__(name: str) -> Any:
    # On demand: Django imports this package before its own settings and applications are ready.
    if name in _HOMES:
        from importlib import import_module

        # First, since it says what is missing.
        import_module(f"{__name__}.framework")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
