"""Runs the programs of an example as its README says, in a copy of its folder."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, build_opener

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# No proxy, whatever the environment says: everything is on this machine.
_open = build_opener().open


class Program:
    """One process; its output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._output.read_text(encoding="utf-8")

    def lines(self) -> list[str]:
        return self.output.splitlines()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


class Answer(NamedTuple):
    status: int
    text: str


class Example:
    """A copy of an example's folder and the programs started in it."""

    def __init__(self, name: str, place: Path) -> None:
        self.folder = place / name
        shutil.copytree(EXAMPLES / name, self.folder, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
        self._readme = (self.folder / "README.md").read_text(encoding="utf-8")
        self._programs: list[Program] = []
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ROTA_", "PYTEST_", "DJANGO_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        self.environment = kept | {"PATH": path, "PYTHONUNBUFFERED": "1"}

    def start(self, command: str, *more: str, instead: str = "") -> Program:
        """Start what the README names; ``instead``: what takes the place of the command's last word."""
        assert f"\n{command}\n" in self._readme, f"the README does not say {command!r}"
        words = shlex.split(command)
        if instead:
            words[-1] = instead
        output = self.folder / f"output-{len(self._programs)}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*words, *more],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._programs.append(Program(process, output))
        return self._programs[-1]

    def run(self, command: str) -> str:
        """Run what the README names to its end; its output."""
        program = self.start(command)
        assert program.process.wait(60) == 0, program.output
        return program.output

    def close(self) -> None:
        for program in self._programs:
            if program.process.poll() is None:
                program.process.kill()
            program.process.wait()

    def outputs(self) -> str:
        """What all programs printed, for a failed test."""
        return "\n".join(f"-- {program.process.args}\n{program.output}" for program in self._programs)


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        number: int = one.getsockname()[1]
        return number


def http(url: str, *, body: bytes | dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Answer:
    """A request: POST with a body, else GET. A dict is sent as a form."""
    data = urlencode(body).encode() if isinstance(body, dict) else body
    try:
        with _open(Request(url, data, headers or {}), timeout=10) as answer:
            return Answer(answer.status, answer.read().decode())
    except HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


def until(true: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until it is true; what it gave. A server that does not listen yet is waited for."""
    end = time.monotonic() + seconds
    while True:
        try:
            value = true()
        except OSError:
            value = None
        if value:
            return value
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)
