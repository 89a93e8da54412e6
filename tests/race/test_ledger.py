"""Exactly once for effects in the ack's own transaction, whatever is killed; and the judge that would see it if not.

The full size is run by hand, see ``ledger``; ``ROTA_RACE_SECONDS`` scales these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .ledger import ACCOUNTS, OPENING, Transfer, judge, ledger, replay


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_each_transfer_once_under_kills(url: str, tmp_path: Path, seed: str, rounds: Callable[[int], int]) -> None:
    report = ledger(url, tmp_path, seed, rounds(150), rounds(6))
    print(report)
    assert report.faults == {}
    assert report.noted == rounds(150)
    assert report.kills == rounds(6)
    # A storm that cut nothing in two shows little.
    assert report.cut + report.again > 0


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_an_ack_outside_of_the_transaction_is_found_out(url: str, tmp_path: Path, seed: str) -> None:
    report = ledger(url, tmp_path, seed, 150, 8, "apart")
    print(report)
    assert {"count", "twice", "balances"} <= set(report.faults)


ASKED = [Transfer(0, 1, 2, 10), Transfer(1, 2, 3, 20), Transfer(2, 3, 1, 5)]


@pytest.mark.parametrize(
    ("journal", "moved", "left", "faults"),
    [
        (ASKED, ASKED, {}, set()),
        ([*ASKED, ASKED[0]], [*ASKED, ASKED[0]], {}, {"count", "twice", "balances"}),
        (ASKED[1:], ASKED[1:], {}, {"count", "missing", "balances"}),
        ([*ASKED[1:], ASKED[1]], [*ASKED[1:], ASKED[1]], {}, {"twice", "missing", "balances"}),
        (ASKED, ASKED[1:], {}, {"replay", "balances"}),
        (ASKED[1:], ASKED, {}, {"count", "missing", "replay"}),
        ([*ASKED[:2], Transfer(2, 3, 1, 6)], [*ASKED[:2], Transfer(2, 3, 1, 6)], {}, {"strange", "balances"}),
        (ASKED, ASKED, {"processing": 1}, {"left"}),
    ],
)
def test_the_judge(journal: list[Transfer], moved: list[Transfer], left: dict[str, int], faults: set[str]) -> None:
    assert set(judge(ASKED, journal, replay(moved), left)) == faults


def test_the_judge_sees_half_a_transfer() -> None:
    half = replay(ASKED)
    half[1] -= 10
    assert {"sum", "replay", "balances"} == set(judge(ASKED, ASKED, half, {}))
    assert sum(replay(ASKED)) == ACCOUNTS * OPENING
