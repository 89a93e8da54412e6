"""Habits of the source tree that nobody has to remember."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 500
# Addresses of package registries, and paths that exist on somebody's machine only. In pieces, or this file names them.
_HOSTS = (
    "pypi" + ".org",
    "pypi" + ".python" + ".org",
    "files.python" + "hosted.org",
    "registry.npm" + "js.org",
    "proxy.go" + "lang.org",
)
_PLACES = ("/wo" + "rk/", "/ro" + "ot/", "/home" + "/", "/Us" + "ers/")
FORBIDDEN = re.compile("|".join(map(re.escape, (*_HOSTS, *_PLACES))))


def tracked() -> list[Path]:
    """Every text file of the project: what git tracks or would, else (in an unpacked archive) what is there."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = re.compile(r"/(\.venv|\.git|\.\w+_cache|__pycache__|build|dist|\.hypothesis)/")
        paths = [path for path in ROOT.rglob("*") if not hidden.search(f"/{path.relative_to(ROOT)}/")]
    return sorted(path for path in paths if path.is_file())


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def test_there_are_files_to_check() -> None:
    assert len(python_files()) > 50


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()
    }
    lengths |= {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in tracked()
        if path.suffix == ".sql"
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_no_registry_host_and_no_path_of_one_machine() -> None:
    found: list[str] = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize("name", ["utils", "util", "common", "helpers", "misc"])
def test_no_drawer_for_everything(name: str) -> None:
    assert [path for path in python_files() if "src" in path.parts and name in (path.stem, path.parent.name)] == []


def test_one_configuration_file() -> None:
    others = {"setup.py", "setup.cfg", "tox.ini", "pytest.ini", "mypy.ini", "ruff.toml", ".ruff.toml", ".importlinter"}
    assert [path for path in tracked() if path.name in others] == []
