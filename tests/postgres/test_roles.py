"""The roles of the guide: each can do its work, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from postgres.server import Server
from rota.errors import EngineUnavailable

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "postgresql.md"


def sql(word: str) -> str:
    """The block of the guide that begins with this word in a comment."""
    (block,) = [
        text for text in re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.S) if text.startswith(f"-- {word}:")
    ]
    return block


@pytest.fixture
def as_role(postgres_server: Server, empty_postgres_url: str) -> Iterator[Callable[..., Any]]:
    """Opens stores as a role of the guide."""
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(sql("who").encode())
        url = empty_postgres_url
        rota.open(url.replace("postgres@", "rota_owner@"), migrate=True).close()
        for _ in range(2):
            connection.execute(sql("what").encode())
    stores: list[rota.Store] = []

    def open_as(role: str, **options: Any) -> rota.Store:
        stores.append(rota.open(url.replace("postgres@", f"rota_{role}@"), **options))
        return stores[-1]

    yield open_as
    for store in stores:
        store.close()
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        for role in ("owner", "producer", "worker", "reader"):
            connection.execute(f"DROP OWNED BY rota_{role} CASCADE".encode())
            connection.execute(f"DROP ROLE rota_{role}".encode())


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(EngineUnavailable, match=r"42501.*lacks a right"):
        call()


def produce(store: rota.Store, end: str = "") -> None:
    queue, transport = store.queue("q" + end), store.transport("t" + end, new_groups="last")
    queue.enqueue(1, key="k")
    queue.enqueue(1, key="k")
    queue.enqueue_many([rota.Item(number, priority=number, key=f"k{number}") for number in range(10)])
    transport.publish("g", 1, key="k", headers={"a": "b"})
    transport.publish("g", 1, key="k")
    transport.publish("g", 1)
    transport.publish_many([(f"g{number}", number) for number in range(10)])
    plain = store.transport("plain")
    plain.publish("g", 1)
    store.notify("c", "x")


def work(store: rota.Store, end: str = "") -> None:
    queue = store.queue("q" + end)
    jobs = queue.claim_batch("w", 9)
    assert len(jobs) == 9
    assert queue.heartbeat_batch(jobs) == []
    assert jobs[0].ack()
    assert jobs[1].retry("again")
    assert jobs[2].fail("no")
    assert jobs[3].release()
    assert queue.ack_batch(jobs[4:6], "w") == 2
    assert queue.sweep_expired() == 0
    transport = store.transport("t" + end, max_deliveries=1, poison="hold")
    leases = transport.claim_batch("w", 6)
    assert len(leases) == 6
    assert leases[0].ack()
    assert leases[1].nack()
    assert leases[2].nack(delay=60)
    assert leases[3].extend(60)
    assert leases[4].release()
    assert leases[5].fail("no")
    assert transport.ack_batch(leases[3:4]) == 1
    while lease := transport.claim("w"):
        lease.nack()
    assert transport.sweep() == 0
    assert transport.stats().dead >= 2
    assert store.queue("q" + end).claim_one("w", wait=0.1) is not None


def look(store: rota.Store, end: str = "") -> None:
    queue, transport = store.queue("q" + end), store.transport("t" + end)
    assert (store.queues(), store.transports()) == (sorted({"q", "q" + end}), sorted({"plain", "t", "t" + end}))
    queue.stats(), transport.stats()
    queue.peek(5), queue.jobs("pending", 5), queue.dead_letters(5), queue.get_job(1), queue.explain(1)
    transport.groups(), transport.peek("g", 5), transport.dead_letters(5), transport.explain("g")
    store.engine_facts()
    assert list(store.listen("c", timeout=0.1)) == []


def test_each_role_does_its_work(as_role: Callable[..., Any]) -> None:
    produce(as_role("producer"))
    look(as_role("reader"))
    work(as_role("worker"))
    look(as_role("reader"))
    produce(as_role("producer"))
    owner = as_role("owner")
    produce(owner, "2")
    work(owner, "2")
    look(owner, "2")
    assert owner.queue("q").suspend()
    assert owner.queue("q").redrive("all")
    assert owner.transport("t").redrive("all")
    assert owner.transport("t").purge("g9") >= 0
    owner.configure_transport("plain", max_deliveries=9)


def test_the_readable_views_are_the_readers(as_role: Callable[..., Any], empty_postgres_url: str) -> None:
    produce(as_role("producer"))
    with psycopg.connect(empty_postgres_url.replace("postgres@", "rota_reader@")) as connection:
        for view in ("readable_jobs", "readable_groups", "readable_messages"):
            rows = connection.execute(f"SELECT * FROM rota.{view}".encode()).fetchall()
            assert len(rows) > 5


def test_and_nothing_more(as_role: Callable[..., Any], empty_postgres_url: str) -> None:
    producer, worker, reader = as_role("producer"), as_role("worker"), as_role("reader")
    produce(producer)
    queue, transport = producer.queue("q"), producer.transport("t")
    refused(lambda: queue.claim_one("w"))
    refused(lambda: transport.claim("w"))
    refused(lambda: queue.peek(1))
    refused(lambda: queue.cancel(1))
    refused(lambda: queue.purge("pending"))
    refused(lambda: transport.purge("g"))
    refused(queue.suspend)
    queue, transport = worker.queue("q"), worker.transport("t")
    refused(lambda: queue.enqueue(1))
    refused(lambda: queue.enqueue_many([1]))
    refused(lambda: transport.publish("g", 1))
    refused(lambda: transport.publish_many([("g", 1)]))
    queue.claim_one("w").fail()  # type: ignore[union-attr]
    refused(lambda: queue.redrive("all"))
    refused(lambda: queue.cancel(2))
    refused(lambda: transport.purge("g"))
    refused(queue.suspend)
    queue, transport = reader.queue("q"), reader.transport("t")
    for call in (
        lambda: queue.enqueue(1),
        lambda: queue.claim_one("w"),
        lambda: queue.cancel(1),
        lambda: queue.purge("pending"),
        lambda: queue.purge_dead(older_than=0),
        queue.suspend,
        queue.sweep_expired,
        lambda: transport.publish("g", 1),
        lambda: transport.claim("w"),
        lambda: transport.purge("g"),
        lambda: transport.suspend(),
        lambda: reader.configure_transport("t", max_deliveries=3),
    ):
        refused(call)
    for role in ("producer", "worker", "reader"):
        with pytest.raises(EngineUnavailable, match="may not make the schema"):
            as_role(role, schema="another", migrate=True)
        with psycopg.connect(empty_postgres_url.replace("postgres@", f"rota_{role}@"), autocommit=True) as connection:
            for statement in ("CREATE TABLE rota.x (a int)", "DROP TABLE rota.jobs", "TRUNCATE rota.jobs"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
    # Payloads are nothing a producer can read, letters nothing it can delete.
    with psycopg.connect(empty_postgres_url.replace("postgres@", "rota_producer@"), autocommit=True) as connection:
        for statement in ("SELECT payload FROM rota.jobs", "SELECT event FROM rota.messages", "DELETE FROM rota.jobs"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
