"""Tasks in the project's own database: committed or rolled back with it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import transaction

import rota
from rota.contrib.django.management.commands.rota_worker import Command
from rota.wakeups import queue_address

from .project import Project, framework, project, stores

TABLE = "CREATE TABLE IF NOT EXISTS notes (text varchar(100))"


@pytest.fixture
def site(make: Callable[..., Project]) -> Any:
    made = make()
    made.execute(TABLE)
    made.execute("DELETE FROM notes")
    yield made
    if made.connection.vendor == "postgresql":
        made.execute("DROP TABLE notes")


def rolled_back(site: Project, act: Callable[[], Any]) -> Any:
    """Do it in a transaction that an exception then rolls back; what it returned."""
    try:
        with transaction.atomic(using=site.alias):
            done = act()
            raise RuntimeError
    except RuntimeError:
        return done


def pending(site: Project) -> int:
    return site.store.queue("default").stats().pending


def test_a_task_is_committed_with_the_row(site: Project) -> None:
    with transaction.atomic(using=site.alias):
        site.execute("INSERT INTO notes (text) VALUES (%s)", "ada")
        result = site.jobs.add.enqueue(1)
        assert pending(site) == 0
        with pytest.raises(framework.TaskResultDoesNotExist):
            result.refresh()
    assert (pending(site), site.notes()) == (1, ["ada"])
    assert site.drain() == 1
    result.refresh()
    assert result.return_value == 1


def test_a_task_is_rolled_back_with_the_row(site: Project) -> None:
    def view() -> Any:
        site.execute("INSERT INTO notes (text) VALUES (%s)", "ada")
        return site.jobs.add.enqueue(1)

    result = rolled_back(site, view)
    assert (pending(site), site.notes()) == (0, [])
    assert site.drain() == 0
    with pytest.raises(framework.TaskResultDoesNotExist):
        result.refresh()


def test_an_inner_block_is_rolled_back_alone(site: Project) -> None:
    with transaction.atomic(using=site.alias):
        site.jobs.add.enqueue(1)
        rolled_back(site, lambda: site.jobs.add.enqueue(2))
        site.jobs.add.enqueue(3)
    assert site.drain() == 2
    assert site.jobs.calls == [(1, 0), (3, 0)]


def test_outside_of_a_transaction_it_is_there_at_once(site: Project) -> None:
    site.jobs.add.enqueue(1)
    assert pending(site) == 1


def test_without_autocommit_it_is_in_the_transaction_too(site: Project) -> None:
    transaction.set_autocommit(False, using=site.alias)
    try:
        site.jobs.add.enqueue(1)
        assert pending(site) == 0
        transaction.rollback(using=site.alias)
        assert pending(site) == 0
        site.jobs.add.enqueue(2)
        transaction.commit(using=site.alias)
        assert pending(site) == 1
    finally:
        transaction.set_autocommit(True, using=site.alias)


def test_the_commit_wakes_and_a_rollback_does_not(site: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []
    monkeypatch.setattr(site.store._core.wakeups, "wake", woken.append)
    rolled_back(site, lambda: site.jobs.add.enqueue(1))
    assert woken == []
    with transaction.atomic(using=site.alias):
        site.jobs.add.enqueue(2)
        assert woken == []
    assert woken == [queue_address("default")]


def test_the_store_may_be_opened_within_a_transaction(site: Project) -> None:
    """As by a view that is the first to enqueue in its process."""
    url = site.backend.url
    own = stores._stores.pop(url)
    try:
        with transaction.atomic(using=site.alias):
            site.execute("INSERT INTO notes (text) VALUES (%s)", "ada")
            result = site.jobs.add.enqueue(1)
        assert site.jobs.add.get_result(result.id).status == "READY"
        assert stores._stores[url] is not own
    finally:
        stores._stores.pop(url).close()
        stores._stores[url] = own


def test_without_tables_it_is_said_what_to_do(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "new.db") as connection:
        connection.execute(TABLE)
    connection.close()
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with project(url, store={"busy_timeout": 0.1}, prepared=False) as site, transaction.atomic(using=site.alias):
        site.execute("INSERT INTO notes (text) VALUES (%s)", "ada")
        with pytest.raises(rota.EngineBusy) as caught:
            site.jobs.add.enqueue(1)
    assert "Has `manage.py migrate` made Rota's tables" in caught.value.__notes__[0]


def test_a_worker_without_tables_says_what_to_do(postgres_url: str) -> None:
    with (
        project(postgres_url, store={"schema": "absent"}, prepared=False),
        pytest.raises(CommandError, match=r"SchemaMismatch: (.|\n)*Has `manage.py migrate` made Rota's tables"),
    ):
        call_command(Command())


def test_signals_come_with_the_commit(site: Project) -> None:
    heard: list[str] = []

    def enqueued(task_result: Any, **kwargs: Any) -> None:
        heard.append(task_result.id)

    framework.signals.task_enqueued.connect(enqueued)
    try:
        rolled_back(site, lambda: site.jobs.add.enqueue(1))
        assert heard == []
        with transaction.atomic(using=site.alias):
            result = site.jobs.add.enqueue(1)
            assert heard == []
        assert heard == [result.id]
    finally:
        framework.signals.task_enqueued.disconnect(enqueued)


def test_in_an_async_program_the_transaction_is_that_of_django_s_thread(site: Project) -> None:
    async def program() -> None:
        await sync_to_async(rolled_back)(site, lambda: site.jobs.add.enqueue(1))
        await site.jobs.add.aenqueue(2)

    asyncio.run(program())
    assert site.drain() == 1
    assert site.jobs.calls == [(2, 0)]


@pytest.mark.parametrize("name", ["touch_database", "atouch_database"])
def test_a_task_uses_django_s_database(site: Project, name: str) -> None:
    result = getattr(site.jobs, name).enqueue(site.alias, "from a task")
    assert site.drain() == 1
    result.refresh()
    assert str(result.status) == "SUCCESSFUL", result.errors
    assert site.notes() == ["from a task"]
