"""``step`` and ``drain``: the worker in one thread, on a clock moved by hand, on every engine."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any

import pytest

import rota
from rota.testing import ManualClock


def test_drain_through_three_retries_to_the_dead_letter(timeless: rota.Store, clock: ManualClock) -> None:
    """In milliseconds of real time, minutes of the store's."""
    worker, tries = rota.Worker(timeless), []

    @worker.queue("q")
    async def handle(job: rota.AsyncJob) -> None:
        tries.append((job.attempts, timeless.now()))
        raise ConnectionError("still down")

    queue = timeless.queue("q", max_attempts=4, backoff_base=60)
    queue.enqueue("work")
    begin, start = time.monotonic(), timeless.now()
    assert worker.drain(advance=clock) == 4
    assert time.monotonic() - begin < 1
    worker.close()
    assert [attempt for attempt, _ in tries] == [1, 2, 3, 4]
    waits = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(tries)]
    for number, wait in enumerate(waits):
        assert 30 * 2**number <= wait <= 60 * 2**number
    assert tries[0][1] == start
    (letter,) = queue.dead_letters()
    assert letter.reason == "max attempts exceeded"
    assert "ConnectionError: still down" in letter.last_error
    assert (letter.previous_error or "").startswith("Traceback")


def test_step_starts_no_thread_and_tells_whether_there_was_one(timeless: rota.Store) -> None:
    worker, seen = rota.Worker(timeless), []
    worker.queue("a")(lambda payload: seen.append(("a", payload, threading.current_thread())))
    worker.queue("b")(lambda payload: seen.append(("b", payload, threading.current_thread())))

    @worker.transport("t")
    async def on_event(event: Any) -> None:
        seen.append(("t", event, threading.current_thread()))

    timeless.queue("a").enqueue_many([1, 2, 3])
    timeless.queue("b").enqueue_many([1, 2])
    timeless.transport("t").publish_many([("g", 1), ("h", 2)])
    before = threading.active_count()
    assert [worker.step() for _ in range(9)] == [True] * 7 + [False] * 2
    assert threading.active_count() == before
    assert {thread for _, _, thread in seen} == {threading.current_thread()}
    # Sources take turns.
    assert [where for where, _, _ in seen] == ["a", "b", "t", "a", "b", "t", "a"]
    assert [source.acked for source in worker.health().sources] == [3, 2, 2] or worker.health().sources
    assert sum(source.acked for source in worker.health().sources) == 7
    worker.close()


def test_tasks_are_told_apart_by_name_and_unknown_ones_are_given_back(timeless: rota.Store, clock: ManualClock) -> None:
    """Released, not burnt, later and later; a worker that knows the name then has it with all its attempts."""
    old, seen = rota.Worker(timeless), []

    @old.task("q")
    def welcome(payload: Any) -> None:
        seen.append(("welcome", payload))

    @old.task("q", name="bye")
    async def say_goodbye(payload: Any) -> None:
        seen.append(("bye", payload))

    queue = timeless.queue("q", max_attempts=1)
    queue.enqueue(1, name="welcome")
    queue.enqueue(2, name="bye")
    new = queue.enqueue(3, name="new")
    nameless = queue.enqueue(4)
    assert old.drain() == 4
    assert sorted(seen) == [("bye", 2), ("welcome", 1)]
    for _ in range(3):
        clock.advance(60)
        assert old.drain() == 2
    for id in (new, nameless):
        record = queue.get_job(id)
        assert record is not None
        assert (record.state, record.attempts, record.releases, record.last_error) == ("pending", 0, 4, None)
        assert 0 < record.run_at - timeless.now() <= 60
    newer = rota.Worker(timeless)
    newer.queue("q")(lambda job: seen.append((job.name, job.payload, job.attempts)))
    assert newer.drain(advance=clock) == 2
    assert sorted(seen[2:], key=str) == [("new", 3, 1), (None, 4, 1)]
    old.close()


def test_undecodable_payload_is_dead_lettered_with_its_text(timeless: rota.Store) -> None:
    worker, seen = rota.Worker(timeless), []

    class Fragile:
        def encode(self, obj: Any) -> str:
            return str(obj)

        def decode(self, text: str) -> Any:
            if text == "2":
                raise ValueError("what is a 2?")
            return int(text)

    codec = Fragile()
    worker.queue("q", codec=codec)(lambda payload: seen.append(payload))
    worker.transport("t", codec=codec)(lambda event: seen.append(event))
    timeless.queue("q", codec=codec).enqueue_many([1, 2, 3])
    timeless.transport("t", codec=codec).publish_many([("a", 1), ("b", 2), ("c", 3)])
    assert worker.drain() == 6
    assert sorted(seen) == [1, 1, 3, 3]
    for source in (timeless.queue("q"), timeless.transport("t")):
        (letter,) = source.dead_letters()
        assert letter.reason == "failed"
        assert "what is a 2?" in letter.last_error


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), Exception("x")])
@pytest.mark.parametrize("color", ["async", "sync"])
def test_exits_are_failed_tries(timeless: rota.Store, error: BaseException, color: str) -> None:
    worker, seen = rota.Worker(timeless), []

    def act(payload: Any) -> None:
        seen.append(payload)
        if payload == "bad":
            raise error

    async def act_async(payload: Any) -> None:
        act(payload)

    worker.queue("q")(act_async if color == "async" else act)
    queue = timeless.queue("q")
    bad = queue.enqueue("bad")
    queue.enqueue("good")
    assert worker.drain() == 2
    worker.close()
    assert seen == ["bad", "good"]
    record = queue.get_job(bad)
    assert record is not None
    assert (record.state, record.attempts) == ("pending", 1)
    assert type(error).__name__ in (record.last_error or "")
    assert queue.stats().processing == 0


def test_keyboard_interrupt_is_a_failed_try_and_goes_on_to_whoever_steps(timeless: rota.Store) -> None:
    worker = rota.Worker(timeless)

    @worker.queue("q")
    def handle(payload: Any) -> None:
        raise KeyboardInterrupt

    id = timeless.queue("q").enqueue(1)
    with pytest.raises(KeyboardInterrupt):
        worker.step()
    record = timeless.queue("q").get_job(id)
    assert record is not None
    assert (record.state, record.attempts) == ("pending", 1)
    assert "KeyboardInterrupt" in (record.last_error or "")


def test_handler_that_settles_itself(timeless: rota.Store) -> None:
    """Nothing is done twice, and nothing counts as lost."""
    worker = rota.Worker(timeless)

    @worker.queue("q")
    async def handle(job: rota.AsyncJob) -> str:
        if job.payload == "ack":
            assert await job.ack("mine")
        elif job.payload == "retry":
            assert await job.retry("mine", 60)
        else:
            assert await job.fail("mine")
        return "not kept"

    queue = timeless.queue("q", keep_done=60)
    ids = queue.enqueue_many(["ack", "retry", "fail"])
    assert worker.drain() == 3
    worker.close()
    records = [queue.get_job(id) for id in ids]
    assert [record and record.state for record in records] == ["done", "pending", "dead"]
    assert records[0] is not None
    assert records[0].result == "mine"
    assert worker.health().sources == () or all(one.lost == 0 for one in worker.health().sources)


def test_result_that_cannot_be_kept_is_dropped_not_redone(timeless: rota.Store) -> None:
    worker = rota.Worker(timeless)
    worker.queue("q")(lambda payload: {1, 2, 3})
    queue = timeless.queue("q", keep_done=60)
    id = queue.enqueue("work")
    assert worker.drain() == 1
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.result) == ("done", None)


def test_priority_share_and_floor(timeless: rota.Store) -> None:
    """The share of claims that tries the floor first; without a share the floor is one."""
    shared, hard, seen = rota.Worker(timeless), rota.Worker(timeless), []
    shared.transport("t", priority_share=0.5, min_priority=5)(lambda lease: seen.append(lease.priority))
    hard.transport("h", min_priority=5)(lambda lease: seen.append(lease.priority))
    for name in ("t", "h"):
        timeless.transport(name).publish_many([(f"low{n}", n, 0) for n in range(20)])
        timeless.transport(name).publish_many([(f"high{n}", n, 5) for n in range(20)])
    for _ in range(20):
        assert shared.step()
    assert seen == [0, 5] * 10
    assert shared.drain() == 20
    assert sorted(seen[20:]) == [0] * 10 + [5] * 10
    seen.clear()
    assert hard.drain() == 20
    assert seen == [5] * 20


def test_drain_of_what_never_ends(timeless: rota.Store, clock: ManualClock) -> None:
    worker = rota.Worker(timeless)

    @worker.queue("q")
    def handle(payload: Any) -> None:
        raise rota.Snooze(1)

    timeless.queue("q").enqueue(1)
    with pytest.raises(AssertionError, match="not drained after 50"):
        worker.drain(advance=clock, limit=50)


def test_drain_with_a_clock_that_is_not_the_stores(timeless: rota.Store) -> None:
    worker = rota.Worker(timeless)
    worker.queue("q")(lambda payload: None)
    timeless.queue("q").enqueue(1, delay=60)
    with pytest.raises(ValueError, match="the clock the store was opened with"):
        worker.drain(advance=ManualClock())
    with pytest.raises(TypeError, match="got True"):
        worker.drain(advance=True)  # type: ignore[arg-type]


def test_drain_of_a_name_that_nobody_knows(timeless: rota.Store, clock: ManualClock) -> None:
    """Told at once, and by name; what can be handled was."""
    worker, seen = rota.Worker(timeless), []
    worker.task("q", name="known")(seen.append)
    queue = timeless.queue("q")
    id = queue.enqueue(1, name="renamed")
    queue.enqueue(2, name="known")
    queue.enqueue(3, name="known", delay=0.2)
    begin = time.monotonic()
    with pytest.raises(AssertionError, match=f"queue 'q': this worker has no handler for job {id} .* 'renamed'"):
        worker.drain(advance=clock)
    assert time.monotonic() - begin < 1
    assert seen == [2, 3]
    record = queue.get_job(id)
    assert record is not None
    assert (record.state, record.attempts, record.releases) == ("pending", 0, 2)
    queue.cancel(id)
    nameless = queue.enqueue(4)
    with pytest.raises(AssertionError, match=f"job {nameless} has no name"):
        worker.drain(advance=clock)


def test_handlers_named_between_steps(timeless: rota.Store) -> None:
    """They count from then on; what was counted before stays."""
    worker, seen = rota.Worker(timeless), []
    worker.queue("a")(seen.append)
    timeless.queue("a").enqueue_many([1, 2])
    timeless.queue("b").enqueue(3)
    assert worker.drain() == 2

    @worker.queue("b")
    async def handle(payload: Any) -> None:
        seen.append(payload)

    assert [(one.name, one.acked) for one in worker.health().sources] == [("a", 2)]
    assert worker.drain() == 1
    worker.task("a", name="x")(lambda payload: seen.append("x"))
    timeless.queue("a").enqueue(4, name="x")
    assert worker.drain() == 1
    assert seen == [1, 2, 3, "x"]
    assert sorted((one.name, one.acked) for one in worker.health().sources) == [("a", 3), ("b", 1)]
    worker.close()


def test_async_timeout(timeless: rota.Store) -> None:
    worker = rota.Worker(timeless)

    @worker.queue("q", timeout=0.05)
    async def handle(payload: Any) -> None:
        await asyncio.sleep(20)

    id = timeless.queue("q").enqueue(1)
    assert worker.step()
    worker.close()
    record = timeless.queue("q").get_job(id)
    assert record is not None
    assert record.last_error == "timed out after 0.05 s"


def test_inside_a_running_loop_it_is_refused_before_anything_is_claimed(timeless: rota.Store) -> None:
    worker = rota.Worker(timeless)

    @worker.queue("q")
    async def handle(payload: Any) -> None: ...

    timeless.queue("q").enqueue(1)

    async def main() -> None:
        for call in (worker.step, worker.drain, worker.run):
            with pytest.raises(RuntimeError, match="loop"):
                call()

    asyncio.run(main())
    assert timeless.queue("q").stats().pending == 1
