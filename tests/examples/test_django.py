"""Views that enqueue tasks in their transactions, and a worker: real Django, real processes, both kinds of database."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from .programs import Answer, Example, free_port, http, until

PARTS = {"dbname": "PGDATABASE", "user": "PGUSER", "password": "PGPASSWORD", "host": "PGHOST", "port": "PGPORT"}


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_views_enqueue_and_the_worker_runs_tasks(
    example: Callable[[str], Example], engine: str, request: pytest.FixtureRequest
) -> None:
    django = example("django")
    if engine == "postgresql":
        # Rota's schema is made by Django's migrate.
        url = str(request.getfixturevalue("empty_postgres_url"))
        found = psycopg.conninfo.conninfo_to_dict(url)
        django.environment |= {name: str(found[part]) for part, name in PARTS.items() if part in found}
    migrated = django.run("python manage.py migrate --run-syncdb")
    assert "Rota's tables for TASKS['default'] in 'default'" in migrated
    port = str(free_port())
    django.start("python manage.py runserver 8000", "--noreload", instead=port)
    base = f"http://127.0.0.1:{port}"

    def post(what: str, **body: str) -> Answer:
        return http(f"{base}/{what}", body=body)

    def look(what: Any) -> Any:
        return json.loads(http(f"{base}/{what}").text)

    answer = until(lambda: post("signups", address="ada@example.org"))
    assert answer.status == 201, answer
    pk = json.loads(answer.text)["id"]
    assert look(f"signups/{pk}") == {"address": "ada@example.org", "status": "READY", "said": None, "welcomed": False}
    # Rolled back, before and after the task was enqueued: neither row nor task.
    assert post("signups", address="ada@example.org").status == 500
    assert post("signups", address="bob@nowhere.invalid").status == 500
    assert look("signups/total") == {"signups": 1}

    worker = django.start("python manage.py rota_worker")
    until(lambda: look(f"signups/{pk}")["status"] == "SUCCESSFUL")
    assert look(f"signups/{pk}") == {
        "address": "ada@example.org",
        "status": "SUCCESSFUL",
        "said": "welcomed ada@example.org",
        "welcomed": True,
    }
    others = [json.loads(post("signups", address=f"u{n}@example.org").text)["id"] for n in range(10)]
    until(lambda: all(look(f"signups/{pk}")["welcomed"] for pk in others))
    report = json.loads(post("reports", domain="example.org").text)["report"]
    until(lambda: look(f"reports/{report}")["status"] == "SUCCESSFUL")
    assert look(f"reports/{report}")["report"] == {"domain": "example.org", "signups": 11, "attempt": 1}

    assert worker.stop() == 0
    assert worker.output.count("Subject: Welcome") == 11
    assert worker.output.count("To: ada@example.org") == 1
    assert "nowhere.invalid" not in worker.output
    assert "Traceback" not in worker.output
    assert "failed" not in worker.output
