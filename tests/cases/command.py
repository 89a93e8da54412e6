"""The ``rota`` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

PATIENCE = 60


def start(url: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start it on a store."""
    return subprocess.Popen(
        [sys.executable, "-m", "rota", *arguments],
        env={**os.environ, "ROTA_URL": url, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        **options,
    )


def run(url: str, *arguments: str, status: int = 0) -> str:
    """Run it to its end; what it printed on stdout. It must end with ``status`` and without a traceback."""
    process = start(url, *arguments)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, err
    assert "Traceback" not in err
    return out


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for its end; what it said on stderr."""
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, err
    assert "Traceback" not in err
    return err
