"""The conformance suite is run whole: what is skipped has failed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .tally import is_marked, mark


def pytest_itemcollected(item: pytest.Item) -> None:
    mark(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and is_marked(item):
        report.outcome = "failed"
        report.longrepr = f"skipped, which no promise may be: {report.longrepr}"
    return report
