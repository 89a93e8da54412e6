"""The application: ``manage.py migrate`` makes the tables of stores that are in the project's databases."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate


class RotaConfig(AppConfig):
    """Goes into INSTALLED_APPS as ``rota.contrib.django``."""

    name = "rota.contrib.django"
    label = "rota"
    verbose_name = "Rota"

    def ready(self) -> None:
        """Hear of migrations; with django-tasks, check the settings as Django 6 does by itself."""
        from rota.contrib.django import framework  # noqa: F401

        post_migrate.connect(make_tables, sender=self, dispatch_uid="rota.contrib.django")


def make_tables(using: str, verbosity: int = 1, stdout: Any = None, **kwargs: Any) -> None:
    """Make Rota's tables in a database that was just migrated, or bring them up to date."""
    import rota
    from rota.contrib.django.backend import RotaBackend
    from rota.contrib.django.framework import task_backends

    for backend in task_backends.all():
        if not isinstance(backend, RotaBackend) or backend.database != using:
            continue
        try:
            url = backend.url
        except ImproperlyConfigured:
            # A test database in memory, say: nobody can keep tasks there, and who tries is told.
            continue
        if verbosity >= 1:
            print(f"  Rota's tables for TASKS[{backend.alias!r}] in {using!r}", file=stdout)
        rota.open(url, migrate=True).close()
