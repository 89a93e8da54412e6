"""The command in this process (``cli``) and as a process of its own (``Shell``)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from rota.cli import main

_numbers = iter(range(1, 1_000_000))


class Result(NamedTuple):
    """What a run of the command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Cli:
    """``main([...])`` on one store, with its output captured."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capsys.readouterr()
        code = main(["--url", self.url, *words])
        out, err = self._capsys.readouterr()
        return Result(code, out, err)

    def ok(self, *words: str, stdin: str | bytes = b"") -> Result:
        """A run that must succeed."""
        result = self(*words, stdin=stdin)
        assert result.code == 0, result
        return result


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that is not there yet."""
    if request.param == "memory":
        return f"memory://cli-{next(_numbers)}"
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'rota.db'}"


@pytest.fixture
def store(url: str) -> Iterator[rota.Store]:
    """The same store from the side."""
    with rota.open(url) as opened:
        yield opened


@pytest.fixture
def cli(url: str, store: rota.Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command on that store, in this process."""
    monkeypatch.delenv("ROTA_URL", raising=False)
    return Cli(url, capsys, monkeypatch)


class Shell:
    """The command as a process, in a directory of its own with a fresh ``rota.db``."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.url = f"sqlite:///{place / 'rota.db'}"
        # So that "rota" is the one of this interpreter, in shell lines too.
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")} | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    def line(self, text: str, timeout: float = 60) -> Result:
        """A line of shell."""
        done = subprocess.run(
            ["sh", "-c", text], cwd=self.place, env=self.env, capture_output=True, text=True, timeout=timeout
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run(self, *words: str, stdin: str = "", timeout: float = 60) -> Result:
        """One command, to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "rota", *words],
            cwd=self.place,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """One command that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "rota", *words],
            cwd=self.place,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def open(self) -> rota.Store:
        """The store from the side."""
        return rota.open(self.url)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A directory to run commands in."""
    return Shell(tmp_path)
