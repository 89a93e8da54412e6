"""A database whose default isolation is stricter, and the predicates as they stand in the functions."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

import rota

# -- Isolation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_default_isolation_changes_nothing(postgres_url: str, level: str) -> None:
    """The functions need READ COMMITTED and say so; the engine then begins every transaction itself."""
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{level}'")  # type: ignore[call-overload]
        assert connection.execute("SELECT count(*) FROM rota.jobs").fetchone() == (0,)
    with rota.open(postgres_url, notify=False) as store:
        transport, queue = store.transport("t"), store.queue("q")
        transport.publish_many([(f"g{number % 10}", number) for number in range(300)])
        queue.enqueue_many(list(range(300)))
        failures: list[BaseException] = []
        events: list[Any] = []
        jobs: list[Any] = []

        def work() -> None:
            try:
                while True:
                    leases, claims = transport.claim_batch("w", 3), queue.claim_batch("w", 10)
                    if not leases and not claims:
                        return
                    assert transport.ack_batch(leases) == len(leases)
                    assert queue.ack_batch(claims, "w") == len(claims)
                    events.extend(lease.event for lease in leases)
                    jobs.extend(job.payload for job in claims)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        work()
        assert not failures
        assert sorted(events) == sorted(jobs) == list(range(300))


def test_the_predicates_stand_verbatim() -> None:
    """The two or three predicates SQL knows are written alike wherever they stand."""
    from importlib.resources import files

    folder = files("rota.engines.postgres").joinpath("schema")
    texts = "\n".join(entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql"))
    flat = " ".join(texts.split())
    claimable = (
        "AND (expires_at IS NULL OR expires_at > v_now) "
        "AND (state = 0 AND run_at <= v_now OR state = 1 AND claim_expires_at < v_now)"
    )
    assert flat.count(claimable) >= 1
    assert flat.count("state = 1 AND claim_expires_at <") == flat.count("OR state = 1 AND claim_expires_at < v_now)")
    fence = "WHERE id = p_id AND queue = p_queue AND token = p_token AND state = 1 AND worker_id = p_worker FOR UPDATE"
    assert flat.count(fence) == flat.count("AND token = p_token AND state = 1") == 4
    assert flat.count("IF NOT FOUND OR v_deadline < v_now THEN RETURN false;") == 4
    in_flight = "AND NOT coalesce(deadline >= v_now, false)"
    assert flat.count(in_flight) >= 1
