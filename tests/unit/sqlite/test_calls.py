"""Verbs for the async facade."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota.engines.sqlite.calls import Calls


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


def test_verbs_run_beside_the_loop(calls) -> None:
    async def main() -> tuple[int, int]:
        return await calls.call(threading.get_ident), threading.get_ident()

    there, here = asyncio.run(main())
    assert there != here


def test_errors_come_through(calls) -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(calls.call(lambda: 1 // 0))


@pytest.mark.parametrize("again", [False, True])
def test_a_cancelled_claim_is_undone_before_the_cancellation_goes_on(calls, again: bool) -> None:
    running, go_on = threading.Event(), threading.Event()
    undone: list[str] = []

    def claim(worker: str) -> str:
        running.set()
        assert go_on.wait(10)
        return f"lease of {worker}"

    async def main() -> None:
        task = asyncio.create_task(calls.call_or_undo(claim, undone.append, "w"))
        assert await asyncio.to_thread(running.wait, 10)
        task.cancel()
        await asyncio.sleep(0.01)
        if again:
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert undone == ["lease of w"]

    asyncio.run(main())


def test_a_claim_that_ended_before_its_task_saw_it_is_undone(calls) -> None:
    undone: list[int] = []
    ended = threading.Event()

    def claim() -> int:
        ended.set()
        return 1

    async def main() -> None:
        task = asyncio.create_task(calls.call_or_undo(claim, undone.append))
        await asyncio.sleep(0)
        assert ended.wait(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert undone == [1]


def test_an_undisturbed_claim_is_kept(calls) -> None:
    undone: list[int] = []
    assert asyncio.run(calls.call_or_undo(lambda: 7, undone.append)) == 7
    assert undone == []


def test_a_verb_that_failed_is_not_undone(calls) -> None:
    undone: list[object] = []
    go_on = threading.Event()

    def claim() -> int:
        assert go_on.wait(10)
        raise ValueError("no")

    async def main() -> None:
        task = asyncio.create_task(calls.call_or_undo(claim, undone.append))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert undone == []


def test_where_threads_cannot_be_started_verbs_run_inline(calls, monkeypatch) -> None:
    def refuse(self):
        raise RuntimeError("can't start new thread")

    async def main() -> list[int]:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        return [await calls.call(threading.get_ident), await calls.call_or_undo(threading.get_ident, id)]

    assert set(asyncio.run(main())) == {threading.get_ident()}
