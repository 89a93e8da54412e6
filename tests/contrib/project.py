"""A Django project for one test: a database, TASKS, a worker moved by the test."""

from __future__ import annotations

import asyncio
import importlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg
from asgiref.sync import sync_to_async
from django.conf import settings

import rota
from rota.testing import ManualClock

# Others in this process may have configured it already, with less; both are served.
if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()

from django.db import connections
from django.test.utils import override_settings

import rota.contrib.django as tasks
from rota.contrib.django import framework, stores

_numbers = itertools.count()


def database_settings(url: str) -> dict[str, Any]:
    """What DATABASES has for the database of a store."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {"timeout": 20}}
    found = psycopg.conninfo.conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found["dbname"],
        "USER": found["user"],
        "HOST": found["host"],
        "PORT": str(found.get("port", "")),
        "PASSWORD": found.get("password", ""),
    }


class Project:
    """``jobs``: the module with the tasks. ``store`` is the backend's own."""

    store: rota.Store
    worker: rota.Worker

    def __init__(self, alias: str, clock: ManualClock, prepared: bool) -> None:
        self.alias = alias
        self.clock = clock
        self.jobs: Any = importlib.import_module("contrib.jobs")
        self.jobs.calls.clear()
        self.backend: Any = framework.task_backends["default"]
        if not prepared:
            return
        url = self.backend.url
        self.store = stores._stores[url] = rota.open(url, clock=clock)
        self.worker = tasks.worker(worker_id="w1").bind(self.store)

    @property
    def connection(self) -> Any:
        return connections[self.alias]

    def drain(self, *, advance: bool = False) -> int:
        """Run what is there; how many."""
        return self.worker.drain(advance=self.clock if advance else None)

    def execute(self, text: str, *values: Any) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(text, values)

    def notes(self) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT text FROM notes ORDER BY text")
            return [text for (text,) in cursor.fetchall()]

    def close(self) -> None:
        if hasattr(self, "store"):
            self.worker.close()
            stores._stores.pop(self.backend.url, None)
            self.store.close()
        _close(self.alias)


@contextmanager
def project(url: str, *, prepared: bool = True, **options: Any) -> Iterator[Project]:
    """A project whose database is the store's, with these OPTIONS. ``prepared``: its store is open already."""
    # Threads keep connections by alias.
    alias = f"tasks{next(_numbers)}"
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: database_settings(url)})[alias]
    setting = {
        "default": {
            "BACKEND": "rota.contrib.django.RotaBackend",
            "QUEUES": ["default", "mails"],
            "OPTIONS": {"database": alias, **options},
        }
    }
    with override_settings(TASKS=setting):
        made = Project(alias, ManualClock(1_700_000_000), prepared)
        try:
            yield made
        finally:
            made.close()
            # The thread Django has for async programs has its own connection.
            asyncio.run(sync_to_async(_close)(alias))
            del connections.settings[alias]


def _close(alias: str) -> None:
    connections[alias].close()
    del connections[alias]
