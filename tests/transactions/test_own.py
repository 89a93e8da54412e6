"""The store's own transaction, used wrongly, from several threads, and interrupted at every line."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rota
from rota.testing.colours import Colour


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if engine == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"memory://own-{id(request)}" if engine == "memory" else f"sqlite:///{tmp_path}/s.db?durability=normal"


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    colour = Colour(request.param)
    yield colour.open(rota.open, rota.aopen, url=url)
    colour.close()


# -- Savepoints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("undone", [False, True])
def test_savepoints_end_from_the_inside_out(store: Any, undone: bool) -> None:
    """One that ended with the one around it cannot end again, the same on every engine."""
    queue = store.queue("q")
    failure = (KeyError, KeyError(), None) if undone else (None, None, None)
    with store.transaction() as tx:
        queue.enqueue(1, tx=tx)
        outer, inner = tx.savepoint(), tx.savepoint()
        outer.__enter__()
        queue.enqueue(2, tx=tx)
        inner.__enter__()
        queue.enqueue(3, tx=tx)
        outer.__exit__(*failure)
        queue.enqueue(4, tx=tx)
        with pytest.raises(rota.TransactionError, match="savepoint is over"):
            inner.__exit__(*failure)
        with pytest.raises(rota.TransactionError, match="savepoint is over"):
            outer.__exit__(*failure)
    assert [one.payload for one in queue.peek()] == ([1, 4] if undone else [1, 2, 3, 4])


def test_a_savepoint_that_cannot_be_undone_takes_the_transaction_along(tmp_path: Path) -> None:
    """What was to be undone must not be committed because undoing it failed."""
    with rota.open(f"sqlite:///{tmp_path}/s.db") as store:
        queue = store.queue("q")

        def act() -> None:
            with store.transaction() as tx:
                try:
                    with tx.savepoint():
                        queue.enqueue("undone", tx=tx)
                        tx.connection.execute("RELEASE rota_1")
                        raise KeyError
                except KeyError:
                    pass

        with pytest.raises(rota.TransactionAborted):
            act()
        assert queue.peek() == []
        queue.enqueue(1)


def test_a_queue_first_used_in_what_the_caller_undoes(tmp_path: Path) -> None:
    """By a statement of the caller's, that is: the queue is listed nevertheless once something is in it."""
    with rota.open(f"sqlite:///{tmp_path}/s.db") as store:
        with store.transaction() as tx:
            tx.connection.execute("SAVEPOINT mine")
            tx.enqueue("new", 1)
            tx.connection.execute("ROLLBACK TO mine")
            tx.enqueue("new", 2)
        store.queue("new").enqueue(3)
        assert store.queues() == ["new"]
        assert [one.payload for one in store.queue("new").peek()] == [2, 3]


# -- Threads -----------------------------------------------------------------------------------------------------------


def test_transactions_of_several_threads(store: Any) -> None:
    """Nobody is refused because another thread holds one: where there is one writer they wait."""
    queue = store.queue("q")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(3):
                with store.transaction() as tx:
                    queue.enqueue((number, turn).__repr__(), tx=tx)
                    time.sleep(0.01)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert queue.stats().pending == 12


def test_handed_to_another_thread(url: str) -> None:
    """It may be used there, and ended there; whose it was is free then."""
    with rota.open(url) as store:
        queue = store.queue("q")
        tx = store.transaction().__enter__()

        def there() -> None:
            queue.enqueue(1, tx=tx)
            # Not its own: a write beside it is not refused, but waits where there is one writer.
            tx.__exit__(None, None, None)
            queue.enqueue(2)

        thread = threading.Thread(target=there)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        queue.enqueue(3)
        assert [one.payload for one in queue.peek()] == [1, 2, 3]


def test_a_generator_that_is_given_up_rolls_back(url: str) -> None:
    with rota.open(url) as store:
        queue = store.queue("q")

        def generate() -> Iterator[int]:
            with store.transaction() as tx:
                yield queue.enqueue(1, tx=tx)
                yield queue.enqueue(2, tx=tx)

        generating = generate()
        next(generating)
        del generating
        queue.enqueue(3)
        assert [one.payload for one in queue.peek()] == [3]


# -- Interrupts --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such signals here")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_a_signal_in_the_middle_of_a_verb_is_told_so(url: str) -> None:
    """Its handler uses the same transaction, in the very thread that is in the middle of a verb: it would hang."""
    with rota.open(url) as store:
        queue = store.queue("q")
        with store.transaction() as tx:
            queue.enqueue(1, tx=tx)
            told: list[BaseException] = []

            def handler(number: int, frame: FrameType | None) -> None:
                try:
                    queue.enqueue("from the handler", tx=tx)
                except BaseException as error:
                    told.append(error)

            previous = signal.signal(signal.SIGALRM, handler)
            try:
                # Inside a verb, for certain.
                tx._engine._verb_lock.take(lambda: signal.raise_signal(signal.SIGALRM))
            finally:
                signal.signal(signal.SIGALRM, previous)
            assert [type(error) for error in told] == [rota.TransactionError]
            queue.enqueue(2, tx=tx)
        assert [one.payload for one in queue.peek()] == [1, 2]


class Interrupt(BaseException):
    """As of Ctrl-C."""


class Interrupting:
    """Raises at the n-th line that is run in the facade."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.hit = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        folder = frame.f_code.co_filename.rpartition("rota")[2]
        if not folder.startswith(("/sync/", "/facade/")) or frame.f_code.co_name == "__del__":
            return None
        self._left -= 1
        if not self._left:
            self.hit = True
            raise Interrupt
        return self


def patiently(act: Callable[[], object]) -> None:
    """What was interrupted before it could roll back is rolled back elsewhere, soon."""
    deadline = time.monotonic() + 10
    while True:
        try:
            act()
            return
        except rota.EngineBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def test_interrupted_at_every_line(url: str) -> None:
    """It is committed or rolled back, whole, and the same thread can begin the next one."""
    with rota.open(url) as store:
        queue, transport = store.queue("q"), store.transport("t")
        transport.publish("z", 0)

        def work(number: int, job: Any) -> None:
            with store.transaction() as tx:
                queue.enqueue(number, tx=tx)
                transport.publish("g", number, tx=tx)
                with tx.savepoint():
                    queue.enqueue(-number, tx=tx)
                job.ack(tx=tx)

        number, hit, whole = 0, True, set()
        while hit:
            number += 1
            queue.enqueue("seed", max_attempts=2)
            job = queue.claim_one("w")
            interrupting = Interrupting(number)
            before = sys.gettrace()
            sys.settrace(interrupting)
            try:
                work(number, job)
            except Interrupt as error:
                error.__traceback__ = None
            finally:
                sys.settrace(before)
            hit = interrupting.hit
            with store.transaction() as tx:
                assert queue.enqueue("next", tx=tx)
            jobs = [one.payload for one in queue.jobs(limit=1000)]
            there = (jobs.count(number), jobs.count(-number), len(transport.peek("g", 10)), jobs.count("seed"))
            whole.add(there)
            for state in ("pending", "processing"):
                patiently(lambda state=state: queue.purge(state))
            transport.purge("g")
        assert whole == {(0, 0, 0, 1), (1, 1, 1, 0)}
        assert number > 100
