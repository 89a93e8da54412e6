"""Settings: which store they lead to, what is refused, what ``manage.py`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured

import rota

from .project import Project, connections, database_settings, framework, override_settings, stores, tasks

TESTS = Path(__file__).resolve().parents[1]
SQLITE = {"ENGINE": "django.db.backends.sqlite3"}
POSTGRES = {"ENGINE": "django.db.backends.postgresql"}


@contextmanager
def database(alias: str, **settings: Any) -> Iterator[None]:
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: settings})[alias]
    try:
        yield
    finally:
        del connections[alias]
        del connections.settings[alias]


def setting(**options: Any) -> Any:
    """TASKS with these OPTIONS."""
    return override_settings(TASKS={"default": {"BACKEND": "rota.contrib.django.RotaBackend", "OPTIONS": options}})


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (SQLITE | {"NAME": "/srv/my site.db"}, "sqlite:////srv/my site.db"),
        (SQLITE | {"NAME": Path("/srv/site.db")}, "sqlite:////srv/site.db"),
        (POSTGRES | {"NAME": "shop"}, "postgresql:///shop"),
        (
            POSTGRES | {"NAME": "sh op", "USER": "a@b", "PASSWORD": "p:/?#%", "HOST": "db", "PORT": 5433},
            "postgresql://a%40b:p%3A%2F%3F%23%25@db:5433/sh%20op",
        ),
        (POSTGRES | {"NAME": "shop", "HOST": "/run/pg"}, "postgresql:///shop?host=%2Frun%2Fpg"),
        (
            POSTGRES | {"NAME": "shop", "OPTIONS": {"sslmode": "require", "pool": True, "assume_role": "x"}},
            "postgresql:///shop?sslmode=require",
        ),
    ],
)
def test_a_database_of_django_is_a_store(settings: dict[str, Any], url: str) -> None:
    with database("there", **settings), setting(database="there"):
        backend: Any = framework.task_backends["default"]
        assert backend.url == url
        # It is one that Rota understands.
        assert [one.id for one in backend.check()] == ["rota.W001"]
        assert tasks.worker().bound_to == url


def test_options_of_the_store() -> None:
    with database("there", **SQLITE, NAME="/srv/site.db"), setting(database="there", store={"durability": "normal"}):
        assert framework.task_backends["default"].url == "sqlite:////srv/site.db?durability=normal"
    with setting(url="sqlite:////srv/site.db?durability=normal", store={"busy_timeout": 3}):
        assert framework.task_backends["default"].url == "sqlite:////srv/site.db?durability=normal&busy_timeout=3"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (SQLITE | {"NAME": ":memory:"}, "SQLite in memory"),
        (SQLITE | {"NAME": "file:mine?mode=memory&cache=shared"}, "SQLite in memory"),
        (SQLITE | {"NAME": "/srv/what?.db"}, "a ? in its name"),
        ({"ENGINE": "django.db.backends.dummy"}, "only sqlite and postgresql"),
        (POSTGRES, "no NAME"),
    ],
)
def test_databases_that_cannot_be_one(settings: dict[str, Any], why: str) -> None:
    with database("there", **settings), setting(database="there"):
        backend: Any = framework.task_backends["default"]
        with pytest.raises(ImproperlyConfigured, match=why.replace("?", r"\?")):
            _ = backend.url
        found = backend.check()
        assert [one.id for one in found] == ["rota.E001", "rota.W001"]
        assert why in found[0].msg


def test_an_alias_that_is_not_there() -> None:
    with setting(database="nowhere"):
        found = framework.task_backends["default"].check()
        assert [one.id for one in found] == ["rota.E001", "rota.W001"]
        assert "'nowhere'" in found[0].msg


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"databse": "default"}, "OPTIONS has no"),
        ({"url": "sqlite:///a.db", "database": "default"}, "both a url and a database"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"keep_done": -1}, "keep_done"),
        ({"visibility": "soon"}, "visibility"),
        ({"store": "normal"}, "store in OPTIONS must be a dict such as {'durability': 'normal'}, got 'normal'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], why: str) -> None:
    with setting(**options), pytest.raises(framework.InvalidTaskBackend, match=why):
        _ = framework.task_backends["default"]


def test_queues_are_no_text() -> None:
    """Its letters would be the queues."""
    backend = {"BACKEND": "rota.contrib.django.RotaBackend", "QUEUES": "mails"}
    with (
        override_settings(TASKS={"default": backend}),
        pytest.raises(framework.InvalidTaskBackend, match="QUEUES must be a list of names, got 'mails'"),
    ):
        _ = framework.task_backends["default"]
    with setting(url="sqlite:///a.db"), pytest.raises(TypeError, match=r"write \['default'\]"):
        tasks.worker(queues="default")


def test_a_url_that_is_none() -> None:
    with setting(url="mysql://somewhere"):
        found = framework.task_backends["default"].check()
        assert [one.id for one in found] == ["rota.E001"]


def test_a_store_of_its_own_takes_no_part_in_transactions(make: Callable[..., Project], tmp_path: Path) -> None:
    from django.db import transaction

    site = make()
    with setting(url=f"sqlite:///{tmp_path / 'own.db'}"):
        with transaction.atomic(using=site.alias):
            result = site.jobs.add.enqueue(1)
            assert site.jobs.add.get_result(result.id).status == "READY"
        assert tasks.store().queue("default").stats().pending == 1
        stores._stores.pop(framework.task_backends["default"].url).close()


def test_a_worker_that_has_nothing_to_do() -> None:
    with setting(url="sqlite:///a.db"):
        with pytest.raises(ImproperlyConfigured, match=r"no queue \['other'\]"):
            tasks.worker(queues=["default", "other"])
        framework.task_backends["default"].queues = set()
        with pytest.raises(ImproperlyConfigured, match="say which ones"):
            tasks.worker()
        assert tasks.worker(queues=["any"]).sources == ["queue:any"]
    immediate = framework.BaseTaskBackend.__module__.replace("base", "immediate.ImmediateBackend")
    with override_settings(TASKS={"default": {"BACKEND": immediate}}), pytest.raises(ImproperlyConfigured):
        tasks.worker()


# -- manage.py ---------------------------------------------------------------------------------------------------------

SETTINGS = """
SECRET_KEY = "for this test only"
USE_TZ = True
INSTALLED_APPS = {apps}
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}}}
TASKS = {{"default": {{"BACKEND": "rota.contrib.django.RotaBackend", "QUEUES": ["default", "mails"]}}}}
"""


class Managed:
    """A project in a folder of its own, used by commands."""

    def __init__(self, folder: Path, *apps: str) -> None:
        self.folder = folder
        # Before Django 6 the package has to be installed for its settings to be checked.
        more = () if framework.django.VERSION >= (6,) else ("django_tasks",)
        (folder / "settings.py").write_text(SETTINGS.format(apps=[*apps, *more]))

    def start(self, *command: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": f"{self.folder}{os.pathsep}{TESTS}",
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> tuple[int, str]:
        process = self.start(*command)
        try:
            output = process.communicate(timeout=120)[0]
        finally:
            process.kill()
        return process.returncode, output

    def manage(self, *command: str) -> tuple[int, str]:
        return self.run("-m", "django", *command)


def test_check_is_fine(tmp_path: Path) -> None:
    status, output = Managed(tmp_path, "rota.contrib.django").manage("check")
    assert (status, output) == (0, "System check identified no issues (0 silenced).\n")
    assert not (tmp_path / "site.db").exists()


def test_check_warns_without_the_application(tmp_path: Path) -> None:
    # Django looks at TASKS when somebody uses tasks.
    (tmp_path / "shop.py").write_text("import rota.contrib.django.framework\n")
    status, output = Managed(tmp_path, "shop").manage("check")
    assert status == 0, output
    assert "(rota.W001) TASKS['default']: rota.contrib.django is not in INSTALLED_APPS" in output


def test_migrate_makes_the_tables(tmp_path: Path) -> None:
    project = Managed(tmp_path, "rota.contrib.django")
    status, output = project.manage("migrate")
    assert status == 0, output
    with rota.open(f"sqlite:///{tmp_path / 'site.db'}?create=false") as store:
        assert store.queues() == []
    # A test database in memory, which Django's test runner makes, is none of Rota's business.
    (tmp_path / "test_nothing.py").write_text(
        "from django.test import TestCase\n\nclass Nothing(TestCase):\n    def test_nothing(self): pass\n"
    )
    status, output = project.manage("test")
    assert (status, "OK" in output) == (0, True), output


TESTED = """
from contrib import jobs
from django.test import TestCase, TransactionTestCase
from rota.contrib import django as tasks

class Rolled(TestCase):
    databases = {"default", "other"}

    def test_back(self):
        jobs.add.enqueue(1)

class Committed(TransactionTestCase):
    def test_run(self):
        result = jobs.add.enqueue(1, 2)
        worker = tasks.worker()
        self.assertEqual(worker.drain(), 1)
        worker.close()
        result.refresh()
        self.assertEqual(result.return_value, 3)
"""


def test_the_test_runner_can_drop_its_database(tmp_path: Path, postgres_url: str) -> None:
    """PostgreSQL drops no database where a session is, and stores stay open with the process."""
    project = Managed(tmp_path, "rota.contrib.django")
    settings = tmp_path / "settings.py"
    real = database_settings(postgres_url)
    # Tests have the second one in memory, where no store can be.
    databases = {"default": real, "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": "other.db"}}
    other = {"BACKEND": "rota.contrib.django.RotaBackend", "OPTIONS": {"database": "other"}}
    settings.write_text(f"{settings.read_text()}\nDATABASES = {databases!r}\nTASKS['other'] = {other!r}\n")
    (tmp_path / "test_tasks.py").write_text(TESTED)
    status, output = project.manage("test", "--noinput")
    assert (status, "Ran 2 tests" in output) == (0, True), output
    with psycopg.connect(postgres_url) as connection:
        named = "SELECT 1 FROM pg_database WHERE datname = %s"
        assert connection.execute(named, [f"test_{real['NAME']}"]).fetchone() is None


SHOP = """
import django
django.setup()
from contrib import jobs
import rota.contrib.django
worker = rota.contrib.django.worker(concurrency=2)
"""


@pytest.mark.parametrize("command", [["-m", "django", "rota_worker"], ["-m", "rota", "run", "shop:worker"]])
def test_workers_of_the_command_line(tmp_path: Path, command: list[str]) -> None:
    project = Managed(tmp_path, "rota.contrib.django")
    (tmp_path / "shop.py").write_text(SHOP)
    assert project.manage("migrate")[0] == 0
    status, output = project.run(
        "-c",
        "import shop\nprint(shop.jobs.add.enqueue(1, b=1).id, shop.jobs.aadd.enqueue(1, 2).id)",
    )
    assert status == 0, output
    ids = output.split()
    worker = project.start(*command)
    try:
        status, output = project.run(
            "-c",
            "import shop, time\n"
            f"ids = {ids}\n"
            "end = time.monotonic() + 60\n"
            "while time.monotonic() < end:\n"
            "    results = [shop.worker and shop.jobs.add.get_backend().get_result(id) for id in ids]\n"
            "    if all(one.is_finished for one in results): break\n"
            "    time.sleep(0.05)\n"
            "print([one.return_value for one in results])",
        )
        assert (status, output) == (0, "[2, {'sum': 3, 'loop': True}]\n")
    finally:
        worker.terminate()
        said = worker.communicate(timeout=60)[0]
    assert worker.returncode == 0, said
    assert "worker_stopped" in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--queue", "other"], "has no queue ['other']"),
        (["--concurrency", "0"], "concurrency"),
        (["--backend", "other"], "other"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, options: list[str], why: str) -> None:
    status, output = Managed(tmp_path, "rota.contrib.django").manage("rota_worker", *options)
    assert status == 1
    assert why in output


@pytest.mark.parametrize(
    ("missing", "why"), [("django", "needs Django"), ("django_tasks", "django.tasks of Django 6; here is Django 5.2")]
)
def test_what_is_missing_is_said(missing: str, why: str) -> None:
    code = f"import sys\nsys.modules[{missing!r}] = None\n"
    if missing == "django_tasks":
        code += "import django\ndjango.VERSION = (5, 2, 1, 'final', 0)\ndjango.get_version = lambda: '5.2.1'\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "import rota.contrib.django\nrota.contrib.django.RotaBackend"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ImportError: rota.contrib.django needs" in done.stderr
    assert why in done.stderr
