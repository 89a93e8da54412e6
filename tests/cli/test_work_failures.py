"""``rota work`` when the store fails, when signals come at bad moments, and with few places for much work."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.cli import exits
from rota.cli.session import Session
from rota.errors import EngineBusy, EngineUnavailable, SchemaMismatch
from worker.faults import Faults

from .conftest import Cli


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Faults], None]], list[Faults]]:
    """Puts faults into the store that the command opens."""
    opened: list[Faults] = []
    real = Session.open

    def prepare(put_in: Callable[[Faults], None]) -> list[Faults]:
        def faulty(self: Session, **options: Any) -> rota.Store:
            store = real(self, **options)
            opened.append(Faults(store))
            put_in(opened[-1])
            return store

        monkeypatch.setattr(Session, "open", faulty)
        return opened

    return prepare


def test_an_ack_that_fails_is_tried_again_within_the_claim(cli: Cli, store: rota.Store, faults: Any) -> None:
    store.queue("q").enqueue(1)
    opened = faults(lambda one: one.times("ack", 2, EngineBusy("locked")))
    result = cli.ok("work", "q", "--drain", "--", "true")
    assert opened[0].calls["ack"] == 3
    assert "acked 1" in result.err
    assert "lost" not in result.err


def test_an_ack_that_fails_for_ever_lets_the_claim_lapse_and_the_rest_goes_on(
    cli: Cli, store: rota.Store, faults: Any
) -> None:
    ids = store.queue("q").enqueue_many(range(6))

    def first_try_of_the_first(args: tuple[Any, ...]) -> BaseException | None:
        claims = args[0] if isinstance(args[0], list) else [args[0]]
        hit = any(claim.id == ids[0] and claim.attempts == 1 for claim in claims)
        return EngineUnavailable("gone") if hit else None

    def put_in(one: Faults) -> None:
        one.fails["ack"] = one.fails["ack_batch"] = first_try_of_the_first

    opened = faults(put_in)
    result = cli.ok("work", "q", "-j", "2", "--drain", "--visibility", "1.5", "--", "true")
    assert "acked 6, lost 1" in result.err
    assert result.err.count("could not be recorded: EngineUnavailable: gone") == 1
    assert opened[0].calls.get("heartbeat", 0) == 0, "it is not renewed while its settlement fails"


def test_a_claim_that_cannot_be_asked_for_now_is_asked_for_again(cli: Cli, store: rota.Store, faults: Any) -> None:
    store.queue("q").enqueue(1)
    faults(lambda one: one.times("claim", 3, EngineUnavailable("gone")))
    result = cli.ok("work", "q", "--drain", "--", "true")
    assert "acked 1" in result.err
    assert result.err.count("the store does not answer, trying again: EngineUnavailable: gone") == 1
    assert "the store answers again" in result.err


def test_what_does_not_pass_by_itself_ends_the_work(cli: Cli, store: rota.Store, faults: Any) -> None:
    store.queue("q").enqueue(1)
    faults(lambda one: one.times("claim", 9, SchemaMismatch("other version")))
    result = cli("work", "q", "--drain", "--", "true")
    assert result.code == exits.UNAVAILABLE
    assert result.err.endswith("rota: other version\n")


def test_what_is_claimed_in_the_moment_of_the_signal_is_given_back(cli: Cli, store: rota.Store, faults: Any) -> None:
    job_id = store.queue("q").enqueue(1)

    def signal_comes(args: tuple[Any, ...]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)

    faults(lambda one: one.fails.update(claim=signal_comes))
    result = cli.ok("work", "q", "--", "true")
    job = store.queue("q").get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts, job.releases) == ("pending", 0, 1)
    assert "released 1" in result.err


def test_one_heartbeat_that_fails_is_told_and_is_no_end(cli: Cli, store: rota.Store, faults: Any) -> None:
    store.queue("q").enqueue(1)
    opened = faults(lambda one: one.times("heartbeat", 1, EngineBusy("locked")))
    result = cli.ok("work", "q", "--drain", "--visibility", "1", "--", "sleep", "2.5")
    assert result.err.count("a heartbeat failed, trying again: EngineBusy: locked") == 1
    assert opened[0].calls["heartbeat"] >= 6
    assert "acked 1" in result.err
    assert "lost" not in result.err


def test_nobody_else_begins_before_a_command_that_ignores_sigterm_is_dead(
    cli: Cli, store: rota.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.cli.work_child.KILL_AFTER", 2.0)
    queue = store.queue("q", max_attempts=5, backoff_base=60)
    queue.enqueue(1)
    stolen: list[float] = []
    over = threading.Event()

    def thief() -> None:
        while not over.wait(0.05):
            stolen.extend(time.monotonic() for _ in queue.claim_batch("thief", 1))

    watching = threading.Timer(0.6, thief)
    watching.start()
    try:
        result = cli.ok(
            *("work", "q", "--max", "1", "--visibility", "0.8", "--timeout", "1"),
            *("--", "sh", "-c", "trap '' TERM; sleep 60; sleep 60"),
        )
    finally:
        over.set()
        watching.join()
    assert stolen == []
    assert "retried 1" in result.err
    assert "lost" not in result.err


# -- Few places ------------------------------------------------------------------------------------------------------


def test_each_address_gets_its_turn(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    store.queue("busy").enqueue_many(range(20))
    store.queue("rare").enqueue_many(range(3))
    store.transport("t").publish_many([("a", 1), ("b", 2), ("c", 3)])
    script = f'echo "${{ROTA_QUEUE:-t}}" >> {tmp_path}/order; sleep 0.02'
    result = cli.ok("work", "busy", "rare", "t", "-j", "1", "--drain", "--", "sh", "-c", script)
    assert "acked 26" in result.err
    order = (tmp_path / "order").read_text().split()
    assert {name: order.count(name) for name in ("busy", "rare", "t")} == {"busy": 20, "rare": 3, "t": 3}
    # In turns they would be over after about 9; a look that comes a little late may cost a turn or two.
    assert max(index for index, name in enumerate(order) if name != "busy") < 18, order


def test_at_most_so_many_of_all_addresses_together(cli: Cli, store: rota.Store) -> None:
    store.queue("a").enqueue_many(range(5))
    store.queue("b").enqueue_many(range(5))
    assert "acked 4" in cli.ok("work", "a", "b", "-j", "3", "--max", "4", "--", "true").err
    left = [job for name in ("a", "b") for job in store.queue(name).jobs()]
    assert [(job.state, job.attempts, job.releases) for job in left] == [("pending", 0, 0)] * 6


def test_the_last_ones_may_take_longer_than_the_grace(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue_many(range(2))
    result = cli.ok("work", "q", "-j", "2", "--max", "2", "--grace", "0", "--", "sleep", "1")
    assert "acked 2" in result.err
    assert "stopping" not in result.err


def test_only_those_that_stay_keep_house(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue(1)
    cli.ok("work", "q", "--drain", "--", "sleep", "1")
    assert store.transports() == []
