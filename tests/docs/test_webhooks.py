"""The guide's webhooks against its receiver, on each engine: it fails, hangs, restarts, and the worker dies."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, blocks

import rota
from rota.testing import ManualClock

_names = itertools.count()


def module(name: str) -> Any:
    """A file of the guide."""
    (block,) = (block for block in blocks(ROOT / "docs" / "guide" / "webhooks.md") if block.file == f"{name}.py")
    made = types.ModuleType(name)
    exec(compile(block.text, block.file or "", "exec"), made.__dict__)
    return made


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    hooks = module("hooks")
    monkeypatch.setitem(sys.modules, "hooks", hooks)
    hooks.TIMEOUT = 5
    yield hooks
    hooks.worker.close()


@pytest.fixture
def receivers() -> Iterator[Any]:
    """Starts receivers; what still runs is stopped."""
    started: list[Any] = []
    make = module("receiver").Receiver

    def start(port: int = 0) -> Any:
        started.append(make(port))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[rota.Store]:
    url = {
        "memory": lambda: f"memory://hooks-{next(_names)}?codec=json",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'hooks.db'}",
        "postgresql": lambda: str(request.getfixturevalue("postgres_url")),
    }[request.param]()
    with rota.open(url, clock=clock) as store:
        yield store


def payload(receiver: Any) -> dict[str, Any]:
    return {"url": receiver.url, "event": "order.placed", "data": {"order": 1}}


def test_fails_hangs_and_restarts(store: rota.Store, clock: ManualClock, hooks: Any, receivers: Any) -> None:
    """Whatever it does, each event is done once, and in the end none is left."""
    outbox, receiver = store.outbox("webhooks"), receivers()
    with store.transaction() as tx:
        ids = [outbox.enqueue(payload(receiver), tx=tx) for _ in range(4)]
    worker = hooks.worker.bind(store)
    receiver.answers = [500, "done, then 500", 429, 200]
    assert [worker.step() for _ in range(4)] == [True] * 4
    hooks.TIMEOUT = 0.1
    receiver.answers = ["hang"]
    clock.advance(5)
    assert worker.step()
    errors = {job.last_error for job in outbox.jobs()}
    assert errors == {"answered 500", "answered 429", "no answer: timed out"} or len(errors) == 3
    hooks.TIMEOUT = 5
    receiver.stop()
    clock.advance(10)
    while worker.step():
        pass
    assert any("Connection refused" in (job.last_error or "") for job in outbox.jobs())
    again = receivers(receiver.port)
    worker.drain(advance=clock)
    assert outbox.stats().pending == outbox.stats().dead == 0
    assert receiver.done | again.done == {f"shop-{id}" for id in ids}
    assert not receiver.done - {f"shop-{id}" for id in ids}


def test_a_worker_that_dies_after_the_answer(store: rota.Store, clock: ManualClock, hooks: Any, receivers: Any) -> None:
    """The receiver sees the same key twice."""
    outbox, receiver = store.outbox("webhooks"), receivers()
    id = outbox.enqueue(payload(receiver))
    job = outbox.claim_one("doomed")
    assert job is not None
    hooks.deliver(job)
    # Its claim lapses after the outbox's visibility.
    assert hooks.worker.bind(store).drain() == 0
    clock.advance(60.001)
    assert hooks.worker.drain() == 1
    assert receiver.tries == [200, 200]
    assert receiver.done == {f"shop-{id}"}


def test_dead_letters_and_redrive(store: rota.Store, clock: ManualClock, hooks: Any, receivers: Any) -> None:
    outbox, receiver = store.outbox("webhooks"), receivers()
    refused, unlucky = outbox.enqueue(payload(receiver)), outbox.enqueue(payload(receiver))
    receiver.answers = [404] + [503] * 5
    begin = clock.now()
    assert hooks.worker.bind(store).drain(advance=clock) == 6
    assert 37.5 <= clock.now() - begin <= 75
    letters = {letter.id: (letter.attempts, letter.last_error) for letter in outbox.dead_letters()}
    assert letters == {refused: (1, "refused with 404"), unlucky: (5, "answered 503")}
    assert sorted(outbox.redrive("all")) == sorted([refused, unlucky])
    assert hooks.worker.drain(advance=clock) == 2
    assert receiver.done == {f"shop-{refused}", f"shop-{unlucky}"}


def test_what_is_sent(store: rota.Store, hooks: Any) -> None:
    assert hooks.signature(b"body") == hooks.signature(b"body") != hooks.signature(b"other")
