"""The row of transactional handlers before an engine."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from rota.worker import turns as module
from rota.worker.turns import Turns, turns


def test_first_come_first_served_but_for_those_that_go_first() -> None:
    row, told = Turns(2), []
    one, two = row.ask(lambda: None), row.ask(lambda: None)
    assert one.mine
    assert two.mine
    three = row.ask(lambda: told.append(3))
    four = row.ask(lambda: told.append(4))
    beat = row.ask(lambda: told.append("beat"), first=True)
    row.leave(four)
    for turn in (one, two, beat):
        row.leave(turn)
    assert told == ["beat", 3]
    assert three.mine
    assert not four.mine
    row.leave(three)
    again = row.ask(lambda: None)
    assert again.mine
    # Twice is no harm.
    row.leave(three)
    assert row.ask(lambda: None).mine
    assert not row.ask(lambda: None).mine


def test_a_thread_waits_no_longer_than_it_is_wanted() -> None:
    row, wanted = Turns(1), threading.Event()
    held = row.wait(lambda: True)
    assert held is not None
    wanted.set()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(row.wait(wanted.is_set)))
    thread.start()
    time.sleep(0.05)
    assert got == []
    wanted.clear()
    thread.join(10)
    assert got == [None]
    row.leave(held)
    assert row.ask(lambda: None).mine


def test_tasks_wait_cancelled_ones_and_ended_loops_lose_nothing() -> None:
    row = Turns(1)
    held = row.ask(lambda: None)

    async def wait() -> None:
        turn = await row.await_turn()
        row.leave(turn)

    async def main() -> None:
        cancelled, other = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        row.leave(held)
        await other

    asyncio.run(main())
    last = row.ask(lambda: None)
    assert last.mine

    def gone() -> None:
        raise RuntimeError("the loop is closed")

    row.ask(gone)
    following = row.ask(lambda: None)
    row.leave(last)
    assert following.mine


class Engine:
    def __init__(self, at_once: int | None) -> None:
        self.transactions_at_once = at_once


def test_one_row_for_each_engine_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Engine(1), Engine(3)
    assert turns(Engine(None)) is None
    row = turns(one)
    assert row is not None
    assert row is turns(one)
    assert row is not turns(other)
    row.ask(lambda: None)
    monkeypatch.setattr(module.os, "getpid", lambda: -1)
    fresh = turns(one)
    assert fresh is not None
    assert fresh.ask(lambda: None).mine
