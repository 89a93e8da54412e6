"""Every example in the documentation runs, every link leads somewhere, what is generated is fresh."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import KINDS, PAGES, ROOT, Block, blocks, commands, matches
from run_page import Wrong, run

from rota.cli import exits
from rota.cli.parser import build_parser
from rota.testing import tck

HERE = Path(__file__).parent
# What console examples may call: the command, Python, and the shell's own tools.
RUNNABLE = re.compile(r"(?:ROTA_\w+=\S+ )*(rota|python|printf|echo|cat|ls|seq) ")
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def environment() -> dict[str, str]:
    """The test run's environment without Rota's own variables, with this interpreter's commands first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTEST_"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}", "COLUMNS": "100"}


def with_examples() -> list[Path]:
    return [page for page in PAGES if any(block.info in ("python", "console") for block in blocks(page))]


@pytest.mark.parametrize("page", with_examples(), ids=named)
def test_examples_run_as_shown(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = environment()
    if "POSTGRES_URL" in page.read_text(encoding="utf-8"):
        # A database with nothing in it.
        found["POSTGRES_URL"] = str(request.getfixturevalue("empty_postgres_url"))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "run_page.py"), str(page)],
        cwd=tmp_path,
        env=found,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    shown = sum(1 for block in blocks(page) if block.info == "python" and not block.file)
    shown += sum(len(commands(block)) for block in blocks(page) if block.info == "console")
    assert done.stdout == f"{shown} examples ran\n"
    assert done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_fences_are_of_a_kind_that_is_checked(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0, "a fence is not closed"
    found = blocks(page)
    assert len(found) * 2 == len(re.findall(r"^\s*```", text, re.MULTILINE)), "a fence is indented or odd"
    for before, block in zip([Block("", "", 0), *found], found, strict=False):
        assert block.info in KINDS, f"line {block.line}: {block.info!r}"
        if block.info == "output":
            assert before.info == "python", f"line {block.line}: output of what?"
        if block.info == "console":
            for command in commands(block):
                assert RUNNABLE.match(command.command + " "), f"line {command.line}: {command.command}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for found in _LINK.finditer(text):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{found[0]} leads nowhere"
        if anchor:
            assert anchor in anchors(place), f"{found[0]}: no such heading, only {sorted(anchors(place))}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as hosts of Markdown make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = [found["target"].partition("#")[0] for found in _LINK.finditer(page.read_text(encoding="utf-8"))]
        waiting += [(page.parent / target).resolve() for target in targets if target and "://" not in target]
    assert set(PAGES) - reached == set()


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_and_option_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    parser = build_parser()
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    assert len(subparsers.choices) >= 17
    for name, command in subparsers.choices.items():
        _, _, section = reference.partition(f"### rota {name}\n")
        section = section.partition("\n### ")[0]
        assert section, f"rota {name} is not documented"
        for action in command._actions:
            for option in action.option_strings:
                where = section if option not in ("-h", "--help", "--url", "-q", "--quiet") else reference
                assert f"`{option}" in where or f", {option}" in where, f"rota {name} {option} is not documented"
    for code in exits.MEANING:
        assert f"| {code} |" in reference


CLAUSES = [f"C{n}" for n in range(1, 10)] + [f"T{n}" for n in range(1, 12)] + [f"Q{n}" for n in range(1, 16)]
CLAUSES += [f"D{n}" for n in range(1, 5)] + [f"P{n}" for n in range(1, 5)] + [f"X{n}" for n in range(1, 9)] + ["E"]


def test_every_clause_is_on_the_page() -> None:
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    found = re.findall(r"^- \*\*([CTQDPXE]\d*)\b", page, re.MULTILINE)
    assert list(dict.fromkeys(found)) == CLAUSES


def test_every_clause_has_a_test_in_the_conformance_suite() -> None:
    named = {re.sub(r"^test_([A-Z]\d*)_.*", r"\1", name) for name in dir(tck.Conformance) if name.startswith("test_")}
    assert named == set(CLAUSES)


def test_readme_has_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in (
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/rota demo",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/python -m pytest -n 4",
    ):
        assert f"\n{command}\n" in readme


# -- The checks themselves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```\n",
        "```python\nprint(1)\n```\n\n```output\n2\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ exit 3\n```\n",
        "```python\n# unused.py\nx = 1\n```\n",
    ],
)
def test_a_wrong_example_is_noticed(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises((Wrong, AssertionError)):
        run(page)


def test_dots_stand_for_anything() -> None:
    assert matches("a ... c", "a b c\n")
    assert matches("a\n...\nc", "a\nb\nb\nc")
    assert not matches("a ... c", "a b d")
