"""A view that enqueues on commit and a worker with Django's models: real Django, real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .programs import Example, free_port, http, until


def test_a_view_enqueues_and_the_worker_uses_the_models(example: Callable[[str], Example]) -> None:
    django = example("django")
    django.run("python manage.py migrate --run-syncdb")
    port = str(free_port())
    django.start("python manage.py runserver 8000", "--noreload", instead=port)
    base = f"http://127.0.0.1:{port}/signups"

    def look(pk: int) -> Any:
        return json.loads(http(f"{base}/{pk}").text)

    answer = until(lambda: http(base, body={"address": "ada@example.org"}))
    assert answer.status == 201, answer
    pk = json.loads(answer.text)["id"]
    assert look(pk) == {"address": "ada@example.org", "welcomed": False}
    # Rolled back: the address is taken, so nothing is enqueued.
    assert http(base, body={"address": "ada@example.org"}).status == 500

    worker = django.start("rota run worker:worker")
    until(lambda: look(pk)["welcomed"])
    others = [json.loads(http(base, body={"address": f"u{n}@example.org"}).text)["id"] for n in range(10)]
    until(lambda: all(look(pk)["welcomed"] for pk in others))
    assert worker.stop() == 0
    assert worker.output.count("Subject: Welcome") == 11
    assert worker.output.count("To: ada@example.org") == 1
    assert "handler_failed" not in worker.output
