"""What importing Rota costs and brings along, and that everything public can be had."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import rota


def python(code: str) -> str:
    """Run code in a fresh interpreter; what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("name", rota.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(rota, name) is not None
    assert getattr(rota, name).__name__ == name


def test_names_on_demand_are_all_public_and_others_are_refused() -> None:
    assert set(rota._ON_DEMAND) <= set(rota.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        rota.nonsense  # noqa: B018


def test_star_import_gives_the_public_names() -> None:
    found = json.loads(python("import json\nfrom rota import *\nprint(json.dumps([n for n in dir() if n[0] != '_']))"))
    assert set(found) == {*rota.__all__, "json"}


def test_import_brings_no_heavy_module_and_no_thread() -> None:
    heavy = (
        "opentelemetry",
        "asyncio",
        "sqlite3",
        "dataclasses",
        "inspect",
        "socket",
        "subprocess",
        "argparse",
        "pytest",
    )
    code = (
        "import sys, threading\nbefore = set(sys.modules)\nimport rota\nimport json\n"
        "print(json.dumps([sorted(set(sys.modules) - before), threading.active_count()]))"
    )
    brought, threads = json.loads(python(code))
    assert [name for name in heavy if name in brought] == []
    assert [
        name for name in brought if name.startswith(("rota.aio", "rota.cli", "rota.testing", "rota.engines.s"))
    ] == []
    assert threads == 1


def test_pytest_is_needed_by_the_suite_only() -> None:
    code = "import sys\nsys.modules['pytest'] = None\nimport rota.testing, rota.cli.parser\n"
    assert python(code + "print(rota.testing.ManualClock())").startswith("ManualClock(")


def test_memory_engine_starts_no_thread() -> None:
    code = (
        "import threading, rota\n"
        "def refuse(self): raise RuntimeError('no threads here')\n"
        "threading.Thread.start = refuse\n"
        "with rota.open('memory://') as store:\n"
        "    queue = store.queue('q')\n"
        "    queue.enqueue(1)\n"
        "    job = queue.claim_one(wait=1)\n"
        "    print(job.ack(), queue.claim_one(wait=0.01), threading.active_count())\n"
    )
    assert python(code) == "True None 1\n"


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs os.wait4 to measure the processor time of a child")
def test_import_costs_less_than_60_ms() -> None:
    """Processor time of the child, and the least of several: other work on the machine must not decide."""

    def processor_time(code: str) -> float:
        process = subprocess.Popen([sys.executable, "-c", code])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_utime + usage.ru_stime

    processor_time("import rota")  # compiled files are written once
    pairs = [(processor_time("pass"), processor_time("import rota")) for _ in range(12)]
    bare, loaded = (min(times) for times in zip(*pairs, strict=True))
    assert loaded - bare < 0.060
