"""A web application and its worker: two processes, real HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .programs import Answer, Example, free_port, http, until

APP = "uvicorn app:app --port 8000"
WORKER = "rota run worker:worker"


class Site:
    """The application over HTTP."""

    def __init__(self, example: Example) -> None:
        port = str(free_port())
        self.program = example.start(APP, "--log-level", "warning", instead=port)
        self._base = f"http://127.0.0.1:{port}"
        until(lambda: http(f"{self._base}/openapi.json").status == 200)

    def post(self, body: Any, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return http(
            f"{self._base}/reports",
            body=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"} | named,
        )

    def look(self, url: str) -> dict[str, Any]:
        answer = http(self._base + url)
        assert answer.status == 200, answer
        found: dict[str, Any] = json.loads(answer.text)
        return found

    def ended(self, url: str) -> dict[str, Any]:
        return until(lambda: (job := self.look(url))["state"] in ("done", "dead") and job)  # type: ignore[no-any-return]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_request_enqueues_and_the_worker_works(
    example: Callable[[str], Example], engine: str, request: pytest.FixtureRequest
) -> None:
    web = example("web")
    if engine == "postgresql":
        web.environment["ROTA_URL"] = request.getfixturevalue("postgres_url")
    site = Site(web)

    # Without a worker the job waits.
    answer = site.post({"title": "June", "numbers": [1, 2, 6]}, Idempotency_Key="june")
    assert answer.status == 202
    url = json.loads(answer.text)["url"]
    assert site.look(url) == {"state": "pending", "attempts": 0, "result": None, "error": None}

    worker = web.start(WORKER)
    done = site.ended(url)
    assert done == {
        "state": "done",
        "attempts": 1,
        "result": {"title": "June", "mean": 3.0, "attempt": 1},
        "error": None,
    }
    # The same request again is the same job.
    assert site.post({"title": "June", "numbers": [1, 2, 6]}, Idempotency_Key="june") == answer

    urls = [json.loads(site.post({"title": f"r{n}", "numbers": [n]}).text)["url"] for n in range(30)]
    assert [site.ended(url)["result"]["mean"] for url in urls] == list(range(30))

    forbidden = site.ended(json.loads(site.post({"title": "forbidden", "numbers": [1]}).text)["url"])
    assert (forbidden["state"], forbidden["error"]) == ("dead", "nobody may have this report")
    assert site.post({"title": "empty", "numbers": []}).status == 422

    assert worker.stop() == 0
    assert "Traceback" not in worker.output
    # uvicorn ends with the signal it was sent.
    assert site.program.stop() in (0, -15)
    assert site.program.output == ""
    assert (web.folder / "reports.db").exists() == (engine == "sqlite")
