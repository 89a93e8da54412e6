"""FastAPI with SQLAlchemy's async sessions, and workers that are killed: real processes, real HTTP."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import rota

from .programs import Answer, Example, free_port, http, until

PREPARE = 'python -c "import asyncio, shop; asyncio.run(shop.prepare())"'
APP = "uvicorn app:app --port 8000"
WORKER = "rota run worker:worker"
# The example's own handler, in a worker that hangs before its ack or between that and the commit.
STUCK = """
import asyncio
import sys

import rota
import worker as example
from rota.worker.handles import WorkerAsyncJob

worker = rota.Worker(example.URL)
worker.queue(example.MAILS, visibility=1)(example.confirm)
ack = WorkerAsyncJob.ack


async def hang(job, result=None, *, tx=None):
    if "{where}" == "after the ack":
        await ack(job, result, tx=tx)
    print("hangs", flush=True)
    await asyncio.sleep(3600)


WorkerAsyncJob.ack = hang
"""


class Shop:
    """The example on one engine, over HTTP and by its database."""

    def __init__(self, example: Example, engine: str, request: pytest.FixtureRequest) -> None:
        self.example = example
        self.url = f"sqlite:///{example.folder}/shop.db"
        if engine == "postgresql":
            self.url = str(request.getfixturevalue("empty_postgres_url"))
            example.environment["ROTA_URL"] = self.url
            rota.open(self.url, migrate=True).close()
        example.run(PREPARE)
        port = str(free_port())
        self.program = example.start(APP, "--log-level", "warning", instead=port)
        self._base = f"http://127.0.0.1:{port}"
        until(lambda: http(f"{self._base}/openapi.json").status == 200)

    def post(self, path: str, body: Any) -> Answer:
        return http(self._base + path, body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})

    def order(self, customer: str, quantity: int) -> Answer:
        return self.post("/orders", {"customer": customer, "item": "tea", "quantity": quantity})

    def placed(self, customer: str, quantity: int) -> int:
        answer = self.order(customer, quantity)
        assert answer.status == 201, answer
        number: int = json.loads(answer.text)["id"]
        return number

    def look(self, path: str) -> Any:
        answer = http(self._base + path)
        assert answer.status == 200, answer
        return json.loads(answer.text)

    def idle(self, store: rota.Store) -> bool:
        """Whether all is worked off."""
        counts = store.queue("mails").stats()
        return not (counts.pending or counts.processing or store.transport("customers").groups())

    def rows(self, question: str) -> list[Any]:
        if self.url.startswith("sqlite"):
            mine = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            found = mine.execute(question).fetchall()
            mine.close()
            return found
        with psycopg.connect(self.url) as connection:
            return connection.execute(question).fetchall()


# Refuses at the commit, after everything has been done.
REFUSE_LATE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not you'; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.customer = 'eve') EXECUTE FUNCTION refuse()
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(example: Callable[[str], Example], request: pytest.FixtureRequest) -> Shop:
    return Shop(example("fastapi_sqlalchemy"), request.param, request)


def test_an_order_and_its_mail_are_one_commit(shop: Shop) -> None:
    """Refused requests leave nothing, not even beside many good ones; each customer's events come in order."""
    first = shop.placed("ada", 3)
    assert shop.order("eve", 1000).status == 409
    assert shop.order("eve", 0).status == 422
    with rota.open(shop.url) as store:
        assert [job.payload for job in store.queue("mails").peek(10)] == [{"order": first}]
        assert [group.group_id for group in store.transport("customers").groups()] == ["ada"]
        assert shop.rows("SELECT id, customer FROM orders") == [(first, "ada")]

        worker = shop.example.start(WORKER)
        until(lambda: shop.look(f"/orders/{first}")["confirmed"] and shop.look("/customers/ada")["points"])
        in_order = [shop.placed("zoe", 1) for _ in range(4)]
        customers = [f"c{n % 3}" for n in range(12)]
        with ThreadPoolExecutor(4) as pool:
            refused = pool.map(lambda customer: shop.order(customer, 99).status, customers)
            numbers = list(pool.map(lambda customer: shop.placed(customer, 2), customers))
            assert set(refused) == {409}
        assert shop.post(f"/orders/{numbers[0]}/cancel", None) == Answer(200, '{"cancelled":true}')
        assert shop.post(f"/orders/{numbers[0]}/cancel", None).status == 200
        until(lambda: shop.idle(store))
        assert store.queue("mails").dead_letters() == []

    assert shop.rows("SELECT DISTINCT confirmed FROM orders") == [(1,)]
    assert shop.rows("SELECT count(*) FROM orders") == [(17,)]
    assert shop.rows("SELECT amount FROM stock") == [(100 - 3 - 4 - 24 + 2,)]
    assert shop.look("/customers/eve") == {"history": [], "points": 0}
    assert shop.look("/customers/zoe") == {"history": [f"placed:{number}" for number in in_order], "points": 4}
    for customer in ("c0", "c1", "c2"):
        found = shop.look(f"/customers/{customer}")
        stored = sorted(number for number, name in zip(numbers, customers, strict=True) if name == customer)
        events = [f"placed:{number}" for number in stored]
        if customer == "c0":
            events.append(f"cancelled:{numbers[0]}")
        assert sorted(found["history"]) == sorted(events)
        assert found["history"][-1] == events[-1] or customer != "c0"
        assert found["points"] == 2 * len(stored) - 2 * (customer == "c0")
    assert worker.stop() == 0
    assert "Traceback" not in worker.output
    assert worker.output.count("Dear") == 17
    assert "eve" not in worker.output
    assert shop.program.stop() in (0, -15)
    assert shop.program.output == ""


def test_nobody_is_told_of_an_order_whose_commit_failed(
    example: Callable[[str], Example], request: pytest.FixtureRequest
) -> None:
    shop = Shop(example("fastapi_sqlalchemy"), "postgresql", request)
    with psycopg.connect(shop.url) as connection:
        connection.execute(REFUSE_LATE)
    assert shop.order("eve", 1).status == 500
    number = shop.placed("ada", 1)
    with rota.open(shop.url) as store:
        assert [job.payload for job in store.queue("mails").peek(10)] == [{"order": number}]
        assert [group.group_id for group in store.transport("customers").groups()] == ["ada"]
    assert shop.rows("SELECT customer FROM orders") == [("ada",)]


def test_workers_killed_between_effect_and_ack(shop: Shop) -> None:
    """SIGKILL in the transaction, before and after its ack: the mail is sent again, and noted once."""
    number = shop.placed("ada", 1)
    for where in ("before the ack", "after the ack"):
        (shop.example.folder / "stuck.py").write_text(STUCK.replace("{where}", where), encoding="utf-8")
        stuck = shop.example.start(WORKER, instead="stuck:worker")
        until(lambda one=stuck: "hangs" in one.output)
        stuck.process.kill()
        stuck.process.wait()
        assert shop.look(f"/orders/{number}")["confirmed"] == 0
    worker = shop.example.start(WORKER)
    until(lambda: shop.look(f"/orders/{number}")["confirmed"])
    with rota.open(shop.url) as store:
        until(lambda: shop.idle(store))
    assert shop.look(f"/orders/{number}")["confirmed"] == 1
    assert shop.look("/customers/ada") == {"history": [f"placed:{number}"], "points": 1}
    assert worker.stop() == 0
    assert worker.output.count("Dear ada") == 1
