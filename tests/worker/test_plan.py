"""The pure plan: no clock, no store, no thread."""

from __future__ import annotations

import ast
import asyncio
import itertools
from pathlib import Path

import pytest

from rota import Fail, Retry, Snooze
from rota.worker import plan
from rota.worker.plan import ACK, NOTHING, RELEASE, Pace, Settlement


def raised(error: BaseException) -> BaseException:
    """The exception with a traceback, as the worker catches it: its own frame outside, the handler's inside."""

    def handler() -> None:
        raise error

    try:
        handler()
    except BaseException as caught:
        return caught
    raise AssertionError


class TestSettlement:
    def test_return_acks_and_keeps_a_result(self) -> None:
        assert plan.settlement(None, None, None, None, settled=False) is ACK
        assert plan.settlement(None, None, None, 5, settled=False) == Settlement("ack", result=5)

    def test_settled_by_its_handler_is_left_alone_unless_it_raises(self) -> None:
        assert plan.settlement(None, None, None, None, settled=True) is NOTHING
        assert plan.settlement(raised(ValueError("x")), None, None, None, settled=True).kind == "retry"

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("why"),
            KeyboardInterrupt("why"),
            SystemExit("why"),
            GeneratorExit("why"),
            asyncio.CancelledError("why"),
        ],
    )
    def test_exceptions_are_failed_tries_with_their_traceback(self, error: BaseException) -> None:
        what = plan.settlement(raised(error), None, None, None, settled=False)
        assert (what.kind, what.delay) == ("retry", None)
        assert what.error is not None
        assert what.error.startswith("Traceback")
        assert what.error.endswith(f"{type(error).__name__}: why")
        assert "in handler" in what.error

    def test_signals(self) -> None:
        for error, expected in (
            (Retry(5, "later"), Settlement("retry", "later", 5.0)),
            (Retry(), Settlement("retry", None, None)),
            (Fail("no"), Settlement("fail", "no")),
            (Fail(), Settlement("fail", None)),
            (Snooze(0), Settlement("release", delay=0.0)),
        ):
            assert plan.settlement(error, None, None, None, settled=False) == expected

    def test_retry_from_another_exception_takes_its_text(self) -> None:
        error = Retry(1)
        error.__cause__ = raised(ValueError("cause"))
        assert "ValueError: cause" in (plan.settlement(error, None, None, None, settled=False).error or "")
        error = Retry(1, "told")
        error.__cause__ = raised(ValueError("cause"))
        assert plan.settlement(error, None, None, None, settled=False).error == "told"

    @pytest.mark.parametrize("error", [None, ValueError("x"), asyncio.CancelledError()])
    def test_what_the_worker_ended(self, error: BaseException | None) -> None:
        for why in ("lost", "overdue", "left"):
            assert plan.settlement(error, why, 3.0, None, settled=False) is NOTHING
        assert plan.settlement(error, "timeout", 1.5, None, settled=False).error == "timed out after 1.5 s"
        stopped = plan.settlement(error, "stopped", None, None, settled=False)
        assert stopped is (ACK if error is None else RELEASE)

    def test_long_texts_lose_their_middle(self) -> None:
        text = plan.settlement(raised(ValueError("x" * 500_000 + "END")), None, None, None, settled=False).error or ""
        assert len(text.encode()) < 65_536
        assert text.startswith("Traceback")
        assert text.endswith("END")

    def test_undecodable_and_unknown(self) -> None:
        assert plan.undecodable(ValueError("bad")) == Settlement("fail", "ValueError: bad")
        delays = [plan.unknown_name(releases, 1.0).delay for releases in range(10)]
        assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
        assert plan.unknown_name(3, 0.0) == Settlement("release", delay=4.0)
        assert (plan.unknown_name(10_000, 1.0).delay or 0) <= 60


class TestHowMuch:
    def test_slow_handlers_claim_nothing_ahead(self) -> None:
        assert plan.paced(Pace(), 10, 1.0) == Pace(10.0, 0)
        assert plan.room(10, 0, 10, 0) == 0
        assert plan.room(9, 0, 10, 0) == 1
        assert plan.room(0, 0, 10, 0) == 10

    def test_fast_handlers_claim_fifty_milliseconds_ahead(self) -> None:
        pace = Pace()
        for _ in range(20):
            pace = plan.paced(pace, 2_000, 0.1) or pace
        assert pace == Pace(20_000.0, 1_000)

    def test_it_grows_by_doubling_and_never_beyond_the_most(self) -> None:
        pace = Pace()
        ahead = []
        for _ in range(12):
            pace = plan.paced(pace, 10 + pace.ahead, (10 + pace.ahead) / 1_000_000 + 0.01) or pace
            ahead.append(pace.ahead)
        assert all(later <= 2 * max(10 + earlier, earlier) for earlier, later in itertools.pairwise(ahead))
        assert max(ahead) <= 4_000

    def test_too_little_to_judge(self) -> None:
        assert plan.paced(Pace(5.0, 3), 100, 0.005) is None

    def test_a_handler_that_became_slow_is_noticed_at_once(self) -> None:
        assert plan.paced(Pace(50_000.0, 2_500), 0, 0.25) == Pace(0.0, 0)
        assert plan.surplus(2_500, 0, 0.25) == 2_500
        assert plan.surplus(2_500, 0, 0.2) == 0
        assert plan.surplus(10, 20, 5) == 0

    def test_claims_come_in_batches(self) -> None:
        assert plan.room(100 + 501, 0, 100, 1_000) == 0
        assert plan.room(100 + 500, 0, 100, 1_000) == 500

    def test_a_slow_store_is_not_flooded(self) -> None:
        assert plan.room(0, 3_000, 10, 0) == 10
        assert plan.room(0, 5_000, 10, 0) == 0

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.99, 1.0])
    def test_the_share_of_floor_first_claims_is_exact_and_even(self, share: float) -> None:
        pattern = [plan.floor_first(number, share) for number in range(1_000)]
        assert sum(pattern) == round(share * 1_000)
        for begin in range(0, 900, 37):
            assert abs(sum(pattern[begin : begin + 100]) - share * 100) <= 1


class TestTimes:
    @pytest.mark.parametrize("visibility", [0.05, 1, 30, 300, 86_400])
    def test_beats_come_before_a_third_is_over(self, visibility: float) -> None:
        assert 0 < plan.beat_after(visibility) < visibility / 3
        assert plan.beat_after(visibility) + plan.beat_again_after(visibility) <= visibility / 2
        assert plan.beat_again_after(visibility) <= 1

    def test_pauses_grow_to_a_second(self) -> None:
        for pause in (plan.settle_pause, lambda tries: plan.outage_pause(tries, 0.0)):
            pauses = [pause(tries) for tries in range(1, 2_000)]
            assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
            assert pauses == sorted(pauses)
            assert max(pauses) == 1.0
        assert plan.outage_pause(50, 1.0) == 0.75

    def test_sweeps_are_jittered(self) -> None:
        assert (plan.sweep_pause(0), plan.sweep_pause(1)) == (30, 60)
        assert (plan.sweep_look_pause(0), plan.sweep_look_pause(1)) == (5, 10)


class TestStopping:
    def phases(self, grace: float | None, urgent_at: float | None, *, held: int = 1) -> list[str]:
        return [plan.phase(held, elapsed, grace, urgent_at) for elapsed in (0, 24.9, 25, 26.9, 27, 1e9)]

    def test_grace_then_cancel_then_leave(self) -> None:
        finishing, cancelling, leaving = "finishing", "cancelling", "leaving"
        assert self.phases(25, None) == [finishing, finishing, cancelling, cancelling, leaving, leaving]
        assert self.phases(None, None) == [finishing] * 6
        assert self.phases(25, None, held=0) == [leaving] * 6
        assert self.phases(0, None) == [cancelling, leaving, leaving, leaving, leaving, leaving]

    @pytest.mark.parametrize("grace", [None, 25, 1_000])
    def test_told_twice_means_now(self, grace: float | None) -> None:
        assert plan.phase(1, 10.0, grace, 10.0) == "cancelling"
        assert plan.phase(1, 10.4, grace, 10.0) == "cancelling"
        assert plan.phase(1, 10.5, grace, 10.0) == "leaving"


def test_the_plan_is_pure() -> None:
    """It imports nothing that knows a clock, chance or the outside."""
    tree = ast.parse(Path(plan.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported == {"__future__", "typing", "rota.worker.outcomes"}
