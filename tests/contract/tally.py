"""What each engine passed of the conformance suite, side by side, told at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

# Tests that have no colour of their own: of one facade only, or of neither.
COLOURS = ("sync", "async", "other")
OUTCOMES = ("passed", "failed")
_MARK = "rota conformance"

Count = Counter[tuple[str, str, str]]


def mark(item: pytest.Item) -> None:
    """Note engine and colour on a test of the whole suite; they travel with its reports, also from workers."""
    from rota.testing import tck

    if isinstance(item, pytest.Function) and item.cls is not None and issubclass(item.cls, tck.Conformance):
        colour = item.callspec.params.get("colour", "other") if hasattr(item, "callspec") else "other"
        item.user_properties.append((_MARK, (item.cls.__name__.removeprefix("Test"), colour)))


def is_marked(item: pytest.Item) -> bool:
    return any(name == _MARK for name, _ in item.user_properties)


def count(reports: Iterable[pytest.TestReport]) -> Count:
    """How many tests of each engine and colour ended how; one that fails in its set-up or tear-down has failed."""
    ends: dict[str, tuple[str, str, str]] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == _MARK and (report.failed or report.nodeid not in ends):
                engine, colour = value  # type: ignore[misc]
                ends[report.nodeid] = (str(engine), str(colour), "failed" if report.failed else "passed")
    return Counter(ends.values())


def table(counts: Count) -> list[str]:
    """A line for each engine, and what they have in common."""
    engines = sorted({engine for engine, _, _ in counts})
    lines = [f"{'passed':<12}" + "".join(f"{colour:>7}" for colour in COLOURS) + f"{'failed':>9}"]
    for engine in engines:
        passed = "".join(f"{counts[engine, colour, 'passed']:>7}" for colour in COLOURS)
        failed = sum(counts[engine, colour, "failed"] for colour in COLOURS)
        lines.append(f"{engine:<12}{passed}{failed:>9}")
    rows = {tuple(counts[engine, colour, end] for colour in COLOURS for end in OUTCOMES) for engine in engines}
    lines.append("equal numbers, none skipped" if len(rows) == 1 else "NOT the same numbers")
    return lines
