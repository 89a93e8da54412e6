"""Which store a backend's tasks are in, and the stores of this process, opened when they are first used."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created

import rota
from rota import engines
from rota.contrib.django.framework import DEFAULT_TASK_BACKEND_ALIAS, task_backends

_lock = threading.Lock()
# Django makes a backend for each thread, and for each task of an event loop: what is opened is shared by them all.
_stores: dict[str, rota.Store] = {}

NO_TABLES = "Has `manage.py migrate` made Rota's tables, with rota.contrib.django in INSTALLED_APPS?"

# What libpq does not know: it is Django's, or psycopg's.
_DJANGOS = frozenset(
    ("pool", "isolation_level", "server_side_binding", "assume_role", "cursor_factory", "prepare_threshold")
)


class InMemory(ImproperlyConfigured):
    """The database has no file. So it is in most test runs, where nobody need enqueue anything."""


def store(backend: str = DEFAULT_TASK_BACKEND_ALIAS) -> rota.Store:
    """The store a backend's tasks are in, for queues of your own beside them. It stays open with the process.

    Raises ``ImproperlyConfigured`` where the settings lead to no store, and what ``rota.open`` raises.
    """
    return opened(task_backends[backend].url)


def opened(url: str) -> rota.Store:
    """The store of a URL."""
    found = _stores.get(url)
    if found is None:
        with _lock:
            found = _stores.get(url)
            if found is None:
                if not _stores:
                    atexit.register(_close_all)
                    connection_created.connect(_make_way, dispatch_uid="rota.contrib.django")
                try:
                    found = _stores[url] = rota.open(url)
                except (rota.EngineBusy, rota.SchemaMismatch) as error:
                    error.add_note(NO_TABLES)
                    raise
    return found


def _close_all() -> None:
    for one in _stores.values():
        one.close()


def _make_way(connection: Any, **kwargs: Any) -> None:
    """Leave the databases of the project when Django's test runner makes, copies or drops them, which PostgreSQL
    refuses while anybody is there. That is the only thing Django has a connection to no database for."""
    if connection.alias != NO_DB_ALIAS:
        return
    from rota.contrib.django.backend import RotaBackend

    for backend in task_backends.all():
        # A store of its own is no test runner's business.
        if isinstance(backend, RotaBackend) and backend.database is not None:
            with suppress(ImproperlyConfigured), _lock:
                if (left := _stores.pop(backend.url, None)) is not None:
                    left.close()


def url_of(alias: str, options: dict[str, Any]) -> str:
    """The URL of a database of the project. ``ImproperlyConfigured`` where Rota has no engine for it."""
    if alias not in connections.settings:
        raise ImproperlyConfigured(f"there is no database {alias!r} in DATABASES, only {sorted(connections.settings)}")
    connection = connections[alias]
    # The connection's own: a test run puts the name of its test database there.
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return with_options(f"sqlite:///{_file(alias, str(settings['NAME']))}", options)
    if connection.vendor == "postgresql":
        return _postgres(alias, settings, options)
    raise ImproperlyConfigured(
        f"the database {alias!r} is {connection.vendor}, where Rota cannot keep tasks (only sqlite and postgresql): "
        'name another one in OPTIONS, as {"url": "sqlite:////var/lib/app/tasks.db"}'
    )


def is_test(alias: str) -> bool:
    """Whether it is the database in memory that Django's test runner makes."""
    return str(connections[alias].settings_dict["NAME"]).startswith("file:memorydb_")


def _file(alias: str, name: str) -> str:
    if not name or name.startswith("file:") or ":memory:" in name:
        raise InMemory(
            f"the database {alias!r} is SQLite in memory ({name!r}), which no other process and no other connection "
            "sees: give it a file (for tests, in its TEST: {'NAME': …}), or use Django's ImmediateBackend or "
            "DummyBackend for tests"
        )
    if "?" in name:
        raise ImproperlyConfigured(f"the file of the database {alias!r} has a ? in its name: {name!r}")
    return os.path.abspath(name)


def _postgres(alias: str, settings: dict[str, Any], options: dict[str, Any]) -> str:
    libpq = {name: value for name, value in settings["OPTIONS"].items() if name not in _DJANGOS and value is not None}
    if not settings["NAME"] and "service" not in libpq:
        raise ImproperlyConfigured(f"the database {alias!r} has no NAME")
    host = str(settings["HOST"] or "")
    if not host or "/" in host or "," in host:
        # A socket's folder, or several hosts.
        libpq |= {"host": host} if host else {}
        host = ""
    who = quote(str(settings["USER"] or ""), safe="")
    if settings["PASSWORD"]:
        who += ":" + quote(str(settings["PASSWORD"]), safe="")
    where = (f"{who}@" if who else "") + host + (f":{settings['PORT']}" if settings["PORT"] else "")
    return with_options(f"postgresql://{where}/{quote(str(settings['NAME'] or ''), safe='')}", libpq | options)


def check(url: str) -> None:
    """Whether it can be a store's URL, without opening it. ``ValueError`` and the like where not."""
    engines.parse(url, {})


def with_options(url: str, options: dict[str, Any]) -> str:
    """A URL with these options."""
    if not options:
        return url
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}{urlencode({name: str(value) for name, value in options.items()}, quote_via=quote)}"
