"""The memory engine where threads cannot be started: the wheel under Pyodide in Node, from the npm package ``pyodide``.

Skipped, with the reason, where Node and npm are missing, or where the package cannot be had outside CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGE = "pyodide@314"
EXPECTED = """\
no threads
transport ada bob None True 2
queue True no
waits True
woken ('awake', True)
nothing None
"""


@pytest.fixture(scope="module")
def pyodide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pyodide's module, installed by name into pytest's cache, where there is one."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: Pyodide runs in Node")
    cache = getattr(request.config, "cache", None)
    place = cache.mkdir("pyodide") if cache is not None else tmp_path_factory.mktemp("pyodide")
    module = place / "node_modules" / "pyodide" / "pyodide.mjs"
    if module.exists():
        return module
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), PACKAGE],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail(f"npm install {PACKAGE} failed:\n{done.stdout}{done.stderr}")
        pytest.skip(f"npm install {PACKAGE} failed: {done.stderr.strip()[-300:]}")
    return module


def test_the_memory_engine_runs_without_threads(pyodide: Path, wheel: Path) -> None:
    done = subprocess.run(
        ["node", str(HERE / "pyodide_run.mjs"), str(pyodide), str(wheel), str(HERE / "pyodide_program.py")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == EXPECTED
