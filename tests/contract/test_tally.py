"""Every engine runs the same tests of the conformance suite, and the report at the end of a run says so."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from .tally import count, table

HERE = Path(__file__).parent
FILES = [HERE / "test_memory.py", HERE / "test_postgres.py", HERE / "test_sqlite.py"]
ENGINES = ["TestMemory", "TestPostgreSQL", "TestSQLite"]


def run(*arguments: str) -> list[str]:
    """What a run of its own prints, line by line."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent.parent, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_engine_is_asked_the_same() -> None:
    """The same names with the same parameters, each of them in both colours."""
    asked: dict[str, list[str]] = defaultdict(list)
    for line in run("--collect-only", str(HERE)):
        if line.count("::") >= 2:
            _, name, test = line.split("::", 2)
            # For each class that inherits a test pytest escapes its parameters once more.
            asked[name].append(test.replace("\\", ""))
    first, *others = (sorted(asked[name]) for name in ENGINES)
    assert len(first) > 700
    assert others == [first, first]
    sync = [test.replace("[sync", "[") for test in first if "[sync" in test]
    assert len(sync) > 300
    assert sorted(sync) == sorted(test.replace("[async", "[") for test in first if "[async" in test)


def test_a_run_ends_with_the_numbers_side_by_side() -> None:
    """Also where the tests run in other processes."""
    some = [f"{path}::{name}" for path, name in zip(FILES, ENGINES, strict=True)]
    spread = ["-n", "2"] if find_spec("xdist") else []
    lines = [line.split() for line in run(*spread, "-k", "T6_settling or T8_payload", *some)]
    head = lines.index(["passed", "sync", "async", "other", "failed"])
    rows = {name: tuple(map(int, numbers)) for name, *numbers in lines[head + 1 : head + 4]}
    assert list(rows) == ["Memory", "PostgreSQL", "SQLite"]
    sync, async_, *rest = rows["Memory"]
    assert sync == async_ > 0
    assert rest == [0, 0]
    assert len(set(rows.values())) == 1
    assert lines[head + 4] == ["equal", "numbers,", "none", "skipped"]


def report(name: str, engine: str, outcome: str, when: str = "call") -> pytest.TestReport:
    properties = [("rota conformance", (engine, "sync"))]
    return pytest.TestReport(f"{engine}::{name}", ("", 0, ""), {}, outcome, None, when, user_properties=properties)  # type: ignore[arg-type]


def test_a_difference_is_told() -> None:
    counts = count([report("a", "One", "passed"), report("b", "One", "passed"), report("a", "Two", "passed")])
    assert table(counts)[-1] == "NOT the same numbers"
    counts = count([report("a", "One", "passed"), report("a", "Two", "passed")])
    assert table(counts)[-1] == "equal numbers, none skipped"
    # Passed, then its fixtures failed.
    counts = count(
        [*(report("a", name, "passed") for name in ("One", "Two")), report("a", "Two", "failed", "teardown")]
    )
    assert counts == {("One", "sync", "passed"): 1, ("Two", "sync", "failed"): 1}
    assert table(counts)[-1] == "NOT the same numbers"


def test_a_skip_is_a_failure(tmp_path: Path) -> None:
    """Also one that is expected to fail: both say that a promise was not looked at."""
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(HERE.parent)!r})\n"
        "from contract.conftest import pytest_itemcollected, pytest_runtest_makereport\n"
    )
    (tmp_path / "test_skipping.py").write_text(
        "import pytest, rota\nfrom rota.testing import tck\n"
        "class TestSkipping(tck.Conformance):\n"
        "    def open(self, **options):\n        pytest.skip('not today')\n"
        "    def aopen(self, **options):\n        pytest.xfail('not today either')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "T6", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1, done.stdout
    tail = done.stdout.splitlines()[-1]
    assert "failed" in tail
    assert "skipped" not in tail
    assert "passed" not in tail
    assert "xfailed" not in tail
