"""``transactional=True``, one item after the other: effect and ack together, or neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

from .transactional import Step, Trial, effect, fail, give


@pytest.fixture
def trial(timeless: rota.Store, kind: str, colour: str) -> Iterator[Trial]:
    trial = Trial(timeless, kind, colour)
    yield trial
    trial.worker.close()
    # Whatever happened, nothing holds the store.
    timeless.queue("free").enqueue(1)


def settle(verb: str) -> Step:
    return lambda handle, tx: getattr(handle, verb)(tx=tx)


def test_returning_commits_effect_and_ack(trial: Trial) -> None:
    trial.handler(effect(), give("result"))
    (id,) = trial.add()
    assert trial.worker.drain() == 1
    assert trial.effects == ["effect"]
    assert trial.live == 0
    assert trial.counts == {"acked": 1}
    if trial.kind == "queue":
        record = trial.queue.get_job(id)
        assert record is not None
        assert (record.state, record.result) == ("done", "result")


def test_a_result_that_cannot_be_carried_is_dropped(trial: Trial) -> None:
    trial.handler(effect(), give({1, 2}))
    trial.add()
    trial.worker.drain()
    assert (trial.effects, trial.live, trial.counts) == (["effect"], 0, {"acked": 1})


def test_an_exception_rolls_back_and_is_a_failed_try(trial: Trial, clock: ManualClock) -> None:
    trial.handler(effect(), lambda handle, tx: 1 / 0 if len(trial.tries) == 1 else None)
    trial.add()
    assert trial.worker.step()
    assert trial.effects == []
    assert trial.counts == {"retried": 1}
    handle = trial.queue.jobs()[0] if trial.kind == "queue" else trial.transport.peek("g0")[0]
    assert "ZeroDivisionError" in (handle.last_error or "")
    # It begins with the handler's own lines.
    assert "worker/transactional" not in (handle.last_error or "").replace("tests/worker/transactional.py", "")
    assert trial.worker.drain(advance=clock) == 1
    assert (trial.tries, trial.effects, trial.live) == ([1, 2], ["effect"], 0)


@pytest.mark.parametrize(
    ("error", "counted", "tries"),
    [
        (rota.Retry(delay=5, reason="again"), "retried", [1, 2]),
        (rota.Fail("never"), "failed", [1]),
        (rota.Snooze(5), "released", [1, 1]),
        (SystemExit(), "retried", [1, 2]),
        (asyncio.CancelledError(), "retried", [1, 2]),
        (rota.TransactionAborted("conflict"), "retried", [1, 2]),
        (rota.OutcomeUnknown("elsewhere"), "retried", [1, 2]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_way_out_rolls_back(
    trial: Trial, clock: ManualClock, error: BaseException, counted: str, tries: list[int]
) -> None:
    trial.handler(effect(), lambda handle, tx: fail(error)(handle, tx) if len(trial.tries) == 1 else None)
    trial.add()
    assert trial.worker.step()
    assert trial.effects == []
    assert trial.counts == {counted: 1}
    trial.worker.drain(advance=clock)
    assert trial.tries == tries
    assert trial.effects == ([] if counted == "failed" else ["effect"])
    assert trial.dead == (["never"] if counted == "failed" else [])
    assert trial.live == 0


@pytest.mark.parametrize(("verb", "live"), [("ack", 0), ("retry", 1), ("fail", 0), ("release", 1)])
def test_settling_inside_is_all_there_is(trial: Trial, verb: str, live: int) -> None:
    trial.handler(effect(), settle(verb))
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.live) == (["effect"], live)
    assert len(trial.dead) == (verb == "fail")
    assert trial.counts == {}
    assert trial.handles[0].settled


@pytest.mark.parametrize("by", ["one", "batch"])
def test_settling_by_the_queue_or_transport(trial: Trial, by: str) -> None:
    """It is the same as by the handle."""

    def step(handle: Any, tx: Any) -> Any:
        store = trial.store.as_async() if trial.colour == "async" else trial.store
        place: Any = store.queue("q") if trial.kind == "queue" else store.transport("t")
        if by == "one":
            return place.ack(handle, tx=tx)
        return place.ack_batch([handle], *((handle.worker_id,) if trial.kind == "queue" else ()), tx=tx)

    trial.handler(effect(), step)
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.live, trial.counts) == (["effect"], 0, {})


def test_settling_inside_and_then_failing_settles_nothing(trial: Trial) -> None:
    trial.handler(effect(), settle("ack"), fail(ArithmeticError()))
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.live, trial.counts) == ([], 1, {"retried": 1})
    assert not trial.handles[0].settled


def test_settling_in_a_savepoint_that_is_undone(trial: Trial) -> None:
    """Then it is not settled, and acked at the end as ever."""

    def undone(handle: Any, tx: rota.Transaction) -> None:
        try:
            with tx.savepoint():
                tx.enqueue("effects", "undone")
                assert handle.fail(tx=tx)
                assert handle.settled
                raise ArithmeticError
        except ArithmeticError:
            assert not handle.settled

    async def undone_async(handle: Any, tx: rota.AsyncTransaction) -> None:
        try:
            async with tx.savepoint():
                await tx.enqueue("effects", "undone")
                assert await handle.fail(tx=tx)
                assert handle.settled
                raise ArithmeticError
        except ArithmeticError:
            assert not handle.settled

    trial.handler(effect(), undone_async if trial.colour == "async" else undone)
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.live, trial.dead, trial.counts) == (["effect"], 0, [], {"acked": 1})


def test_rolling_back_and_returning_acks_alone(trial: Trial) -> None:
    """The handler said that there is nothing to write, and returned: that is done."""
    trial.handler(effect(), lambda handle, tx: tx.rollback(), give("result"))
    (id,) = trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.live, trial.counts) == ([], 0, {"acked": 1})
    if trial.kind == "queue":
        assert (trial.queue.get_job(id) or 0).result == "result"


def test_a_lost_claim_commits_nothing(trial: Trial, clock: ManualClock) -> None:
    """A job's claim lapses under its handler: the ack shows it. Nothing is recorded, and it is handed out again.

    A lease that lapsed and that nobody took may still be settled (T6).
    """
    trial.handler(effect(), lambda handle, tx: clock.advance(1000) if len(trial.tries) == 1 else None)
    trial.add()
    assert trial.worker.step()
    if trial.kind == "queue":
        assert (trial.effects, trial.live, trial.counts) == ([], 1, {"lost": 1})
        assert (trial.queue.get_job(1) or trial.queue.jobs()[0]).last_error is None
        trial.worker.drain(advance=clock)
    assert trial.effects == ["effect"]
    assert trial.live == 0


def test_lease_lost_raised_by_the_handler(trial: Trial, clock: ManualClock) -> None:
    error = rota.LeaseLost("another one's")
    trial.handler(effect(), lambda handle, tx: fail(error)(handle, tx) if len(trial.tries) == 1 else None)
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.live, trial.counts) == ([], 1, {"lost": 1})
    trial.worker.drain(advance=clock)
    assert (trial.tries, trial.effects, trial.live) == ([1, 2], ["effect"], 0)


@pytest.fixture
def begins(timeless: rota.Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts something in the place of the engine's next transactions."""
    engine = timeless._core.engine

    def instead(act: Callable[[Any], Any]) -> None:
        begin, abegin = engine.begin, engine.abegin

        def begin_other() -> Any:
            return act(begin())

        async def abegin_other() -> Any:
            return act(await abegin())

        monkeypatch.setattr(engine, "begin", begin_other)
        monkeypatch.setattr(engine, "abegin", abegin_other)

    return instead


class Odd:
    """A transaction that ends in its own way."""

    def __init__(self, inner: Any, commit: Callable[[Any], None]) -> None:
        self._inner, self._commit = inner, commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def acall(self, verb: Any, *args: Any) -> Any:
        if getattr(verb, "__func__", None) is Odd.commit:
            # Whatever the engine, the end comes from another thread: none of them minds there.
            return await self._acommit(*args)
        return await self._inner.acall(verb, *args)

    async def _acommit(self, then: Any) -> None:
        if self._commit is committed_and_unheard:
            await self._inner.acall(self._inner.commit, then)
        else:
            await self._inner.acall(self._inner.rollback)
        fail_of(self._commit)

    def commit(self, then: Any) -> None:
        if self._commit is committed_and_unheard:
            self._inner.commit(then)
        else:
            self._inner.rollback()
        fail_of(self._commit)


def committed_and_unheard(tx: Any) -> None: ...
def lost_and_unheard(tx: Any) -> None: ...
def aborted(tx: Any) -> None: ...


def fail_of(how: Any) -> None:
    raise rota.TransactionAborted("conflict") if how is aborted else rota.OutcomeUnknown("the connection broke")


@pytest.mark.parametrize("how", [committed_and_unheard, lost_and_unheard, aborted])
def test_a_commit_that_fails(trial: Trial, clock: ManualClock, begins: Any, how: Any) -> None:
    """Unknown: nothing is recorded; if it was committed it is done, else it comes again. Once, either way."""
    count = [0]

    def odd(tx: Any) -> Any:
        count[0] += 1
        return Odd(tx, how) if count[0] == 1 else tx

    trial.handler(effect())
    begins(odd)
    trial.add()
    assert trial.worker.step()
    assert trial.counts == ({"retried": 1} if how is aborted else {"lost": 1})
    assert trial.effects == (["effect"] if how is committed_and_unheard else [])
    trial.worker.drain(advance=clock)
    assert trial.effects == ["effect"]
    assert trial.live == 0
    assert trial.tries == ([1] if how is committed_and_unheard else [1, 2])


@pytest.mark.parametrize("error", [rota.EngineBusy("locked"), rota.EngineUnavailable("away")], ids=["busy", "away"])
def test_not_being_able_to_begin_costs_no_attempt(
    trial: Trial, clock: ManualClock, begins: Any, error: Exception
) -> None:
    count = [0]

    def refuse(tx: Any) -> Any:
        count[0] += 1
        if count[0] > 3:
            return tx
        tx.abandon()
        raise error

    trial.handler(effect())
    begins(refuse)
    trial.add(max_attempts=1) if trial.kind == "queue" else trial.add()
    start = clock.now()
    assert trial.worker.drain(advance=clock) == 4
    assert trial.tries == [1]
    assert (trial.effects, trial.live, trial.counts) == (["effect"], 0, {"released": 3, "acked": 1})
    assert 1.5 <= clock.now() - start <= 3


@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_timeout(trial: Trial, clock: ManualClock) -> None:
    # Real seconds: the second try needs its time on a busy machine, too.
    trial.options["timeout"] = 0.5
    trial.handler(effect(), lambda handle, tx: asyncio.sleep(60) if len(trial.tries) == 1 else None)
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.counts) == ([], {"retried": 1, "timed_out": 1})
    trial.worker.drain(advance=clock)
    assert (trial.tries, trial.effects, trial.live) == ([1, 2], ["effect"], 0)


def test_writes_outside_of_it_are_refused(trial: Trial, clock: ManualClock) -> None:
    def outside(handle: Any, tx: Any) -> Any:
        store = trial.store.as_async() if trial.colour == "async" else trial.store
        return store.queue("effects").enqueue("outside")

    trial.handler(effect(), outside)
    trial.add()
    assert trial.worker.step()
    assert (trial.effects, trial.counts) == ([], {"retried": 1})


def test_its_connection(trial: Trial, engine: str) -> None:
    seen: list[Any] = []
    trial.handler(lambda handle, tx: seen.append(tx.connection))
    trial.add()
    assert trial.worker.step()
    module = type(seen[0]).__module__.partition(".")[0]
    assert module in {"memory": ("builtins",), "sqlite": ("sqlite3",), "postgresql": ("psycopg", "rota")}[engine]


class TestSignatures:
    def test_by_annotation_and_keyword(self) -> None:
        got: list[Any] = []
        worker = rota.Worker()

        @worker.queue("q", transactional=True)
        def handle(number: int, /, *, within: rota.Transaction, job: rota.Job, more: int = 7) -> None:
            got.append((number, type(within).__name__, job.attempts, more))

        @worker.task("q", name="other", transactional=True)
        async def other(tx: rota.AsyncTransaction) -> None:
            got.append(type(tx).__name__)

        with rota.open("memory://") as store:
            store.queue("q").enqueue(5)
            store.queue("q").enqueue(5, name="other")
            worker.bind(store).drain()
            worker.close()
        assert got == [(5, "Transaction", 1, 7), "AsyncTransaction"]

    def test_an_applications_own_transaction_is_a_payload(self) -> None:
        class Transaction: ...

        def resolved(it: Transaction) -> None: ...
        def text(it: Transaction) -> None: ...

        text.__annotations__["it"] = "Transaction"
        worker = rota.Worker()
        worker.queue("a")(resolved)
        worker.queue("b")(text)

    @pytest.mark.parametrize(
        ("how", "options", "says"),
        [
            ("takes", {}, r"gets one if it is decorated with transactional=True"),
            ("annotated", {}, r"gets one if it is decorated with transactional=True"),
            ("without", {"transactional": True}, "takes no transaction, so nothing it does would be in it"),
            ("asynchronous", {"transactional": True}, r"must be rota.AsyncTransaction, not rota.Transaction"),
            ("annotated_async", {"transactional": True}, r"must be rota.Transaction, not rota.AsyncTransaction"),
            ("twice", {"transactional": True}, "the transaction more than once: tx, other"),
            ("takes", {"transactional": True, "processes": True}, "in a process of its own, where no transaction"),
        ],
    )
    @pytest.mark.parametrize("decorator", ["queue", "task", "transport"])
    def test_refusals(self, decorator: str, how: str, options: Any, says: str) -> None:
        def takes(payload: Any, tx: Any) -> None: ...
        def annotated(payload: Any, it: rota.Transaction) -> None: ...
        def annotated_async(payload: Any, it: rota.AsyncTransaction) -> None: ...
        async def asynchronous(payload: Any, it: rota.Transaction) -> None: ...
        def without(payload: Any) -> None: ...
        def twice(tx: Any, other: rota.Transaction) -> None: ...

        worker = rota.Worker()
        with pytest.raises(TypeError, match=says):
            getattr(worker, decorator)("q", **options)(locals()[how])
        assert not worker.sources
