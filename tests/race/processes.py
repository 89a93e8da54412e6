"""Actors as processes of their own, to be killed at any point."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from .actors import GROUPS

HERE = Path(__file__).parent
# As what this directory was imported (``race`` or ``tests.race``): the children import it the same way.
_PACKAGE = __package__ or "race"
_ROOT = HERE.parents[_PACKAGE.count(".")]


def python(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module of this package as a program; it ends when its standard input does."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def ended(process: subprocess.Popen[bytes], patience: float = 60.0) -> bytes:
    """End a process by closing its standard input; its output. It must end well."""
    out, err = process.communicate(timeout=patience)
    assert process.returncode == 0, err.decode()
    return out


class Life(NamedTuple):
    """One process of a troupe."""

    role: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float


class Troupe:
    """So many actors of each role, replaced whenever one is killed; every life writes a log of its own.

    A role is "claimer" or "publisher", on the async facade "claimer async" or "publisher async".
    """

    def __init__(self, url: str, place: Path, seed: str, roles: list[str], groups: int = GROUPS) -> None:
        self._url = url
        self._place = place
        self._seed = seed
        self._groups = groups
        self._rng = random.Random(seed)
        self._lives = 0
        self.kills = 0
        self.living = [self._start(role) for role in roles]

    def _start(self, role: str) -> Life:
        self._lives += 1
        kind, _, colour = role.partition(" ")
        by = f"{kind}-{self._lives}"
        log = self._place / f"{by}.log"
        log.touch()
        seed = f"{self._seed}/{by}"
        process = python("actors", kind, self._url, str(log), seed, str(self._groups), colour or "sync")
        return Life(role, process, log, time.time())

    def storm(self, seconds: float, pause: float = 0.25) -> None:
        """Kill one of them after another, at random points, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self._rng.random() * 2 * pause)
            self.kill()

    def kill(self) -> None:
        """Kill one of them, and start another one in its place."""
        place = self._rng.randrange(len(self.living))
        life = self.living[place]
        # Only one that is at work: killing it while it still imports shows nothing.
        if life.log.stat().st_size:
            life.process.kill()
            _, err = life.process.communicate()
            assert life.process.returncode == -9, err.decode()
            self.kills += 1
            self.living[place] = self._start(life.role)

    def at_work(self) -> bool:
        """Whether each of them has begun."""
        return all(life.log.stat().st_size for life in self.living)

    def end(self) -> None:
        """Let those that live finish what they do."""
        for life in self.living:
            ended(life.process)

    def logs(self) -> list[Path]:
        """Of the living and the dead."""
        return sorted(self._place.glob("*.log"))
