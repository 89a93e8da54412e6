"""One virtual environment per peer, made on first use, with the pinned version from the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements"
DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "rota-bench-peers"
PATIENCE = 900  # Seconds for an installation or a round.
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class Missing(Exception):
    """A peer that could not be installed or run; the text says why."""


def environment(folder: Path, python: str, requirements: list[str]) -> str:
    """The interpreter of the environment in ``folder``, whose packages are pip's arguments ``requirements``."""
    own = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    stamp = folder / "requirements.stamp"
    if stamp.exists() and stamp.read_text() == _wanted(requirements):
        return own
    if not Path(own).exists():
        run([python, "-m", "venv", str(folder)])
    run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    stamp.write_text(_wanted(requirements))
    return own


def _wanted(requirements: list[str]) -> str:
    """The pins themselves, so that an environment is brought up to date when one changes."""
    files = [Path(one).read_text() for one in requirements if one.endswith(".txt")]
    return "\n".join([*requirements, *files])


def run(command: list[str]) -> str:
    """What a command prints; ``Missing`` with its last words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Missing(f"not over after {PATIENCE} s") from None
    if done.returncode:
        words = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip(" ^~")]
        raise Missing("; ".join(words[-2:]) or f"exit status {done.returncode}")
    return done.stdout


def interpreter(asked: str | None, oldest: str) -> tuple[str, str]:
    """An interpreter for every environment, so that no library gains by a newer one, and its version.

    The one asked for; else the running one if it is at least ``oldest``; else the newest that is installed; else the
    running one after all, and whatever needs a newer one will be missing.
    """
    if asked is not None:
        return asked, run([asked, "-c", _VERSION]).strip()
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if _order(own) >= _order(oldest):
        return sys.executable, own
    names = [shutil.which(f"python3.{minor}") for minor in range(16, _order(oldest)[1] - 1, -1)]
    for candidate in [*filter(None, names), *_of_pyenv()]:
        try:
            version = run([candidate, "-c", _VERSION]).strip()
        except Missing:
            continue
        if _order(version) >= _order(oldest):
            return candidate, version
    return sys.executable, own


def _of_pyenv() -> list[str]:
    """pyenv's shims answer for the selected versions only, so its folder is looked at too; newest first."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [path for path in root.glob("versions/3.*/bin/python3") if path.parent.parent.name.count(".") == 2]
    return [str(path) for path in sorted(found, key=lambda path: _order(path.parent.parent.name), reverse=True)]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2])
