"""What only processes can show: signals, kills, wake-ups from outside, and the lines of shell a newcomer types."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.cli import exits

from .conftest import Shell


def wait_for(condition: Callable[[], object], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def has_content(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# -- Lines of shell --------------------------------------------------------------------------------------------------


def test_two_lines_in_two_dead_letters_out_and_back(shell: Shell) -> None:
    filled = shell.line(
        """printf '{"n":1}\\n{"n":2}\\n' | rota enqueue q --jsonl - --backoff-base 0.05 """
        """&& rota work queue:q --drain -- sh -c 'cat >&2; exit 1'"""
    )
    assert filled.code == 0, filled
    letters = shell.run("dead", "queue:q")
    table = letters.out.splitlines()
    assert len(table) == 3
    for number, row in enumerate(sorted(table[1:], key=lambda row: row.split()[1]), 1):
        assert row.split("  ")[-1] == f'{{"n":{number}}}'
        assert row.count(f'{{"n":{number}}}') == 2, "as the error and as the payload"
        assert " 3/3 " in row
    assert "sqlite:///rota.db" in letters.err
    assert shell.line("rota redrive queue:q --all --yes && rota work queue:q --drain -- true").code == 0
    assert shell.run("stats", "queue:q", "--json").json["queues"][0] | {"name": "q"} == {
        "name": "q",
        "pending": 0,
        "processing": 0,
        "done": 0,
        "dead": 0,
        "capped": [],
        "oldest_ready_age": None,
        "next_due_at": None,
        "suspended": False,
    }
    assert (shell.place / "rota.db").stat().st_mode & 0o777 == 0o600


def test_a_waiting_worker_starts_within_50_ms_of_an_enqueue_elsewhere(shell: Shell) -> None:
    (shell.place / "mark").write_text("#!/bin/sh\ndate +%s%N >> times\n")
    (shell.place / "mark").chmod(0o755)
    worker = shell.start("work", "queue:q", "--", "./mark")
    times = shell.place / "times"
    delays: list[float] = []
    try:
        with shell.open() as store:
            queue = store.queue("q")
            for number in range(11):
                queue.enqueue(number)
                begun = time.time_ns()
                wait_for(lambda number=number: times.exists() and times.read_text().count("\n") > number)
                delays.append((int(times.read_text().split()[-1]) - begun) / 1e6)
                time.sleep(0.35)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=10)
        assert worker.returncode == 0
    # The first one includes the worker's own start.
    assert statistics.median(delays[1:]) < 50, delays


def test_a_killed_worker_s_job_goes_to_another_with_attempt_2(shell: Shell) -> None:
    shell.run("enqueue", "q", "1", "--visibility", "1")
    first = shell.start("work", "q", "--", "sh", "-c", "echo $$ > pid; exec sleep 60")
    pid_file = shell.place / "pid"
    wait_for(lambda: has_content(pid_file))
    time.sleep(1.5)
    with shell.open() as store:
        assert store.queue("q").claim_one("thief") is None, "it is renewed as long as the worker lives"
    first.kill()
    killed_at = time.monotonic()
    # Its command outlives it; nobody hears its result any more.
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    first.communicate()
    second = shell.run("work", "q", "--drain", "--", "sh", "-c", "echo $ROTA_ATTEMPT > attempt")
    assert second.code == 0
    assert (shell.place / "attempt").read_text() == "2\n"
    assert 0.3 < time.monotonic() - killed_at < 10


# -- Signals ---------------------------------------------------------------------------------------------------------


def running(shell: Shell, *options: str, script: str) -> tuple[subprocess.Popen[str], int]:
    """A worker in the middle of a job, and the pid of its command."""
    shell.run("enqueue", "q", "--jsonl", "-", stdin="1\n2\n3\n")
    worker = shell.start("work", "q", *options, "--", "sh", "-c", f"echo $$ > pid; {script}")
    wait_for(lambda: has_content(shell.place / "pid"))
    return worker, int((shell.place / "pid").read_text())


def states(shell: Shell) -> list[tuple[str, int, int]]:
    with shell.open() as store:
        return [(job.state, job.attempts, job.releases) for job in store.queue("q").jobs()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_what_runs_end(shell: Shell, number: signal.Signals) -> None:
    worker, _ = running(shell, script="sleep 1")
    worker.send_signal(number)
    _, err = worker.communicate(timeout=15)
    assert worker.returncode == 0
    assert "acked 1" in err
    assert "Traceback" not in err
    assert states(shell) == [("pending", 0, 0), ("pending", 0, 0)]


def test_after_the_grace_time_the_rest_is_ended_and_given_back(shell: Shell) -> None:
    worker, pid = running(shell, "--grace", "0.3", "-j", "2", script="sleep 60")
    wait_for(lambda: [state for state, *_ in states(shell)] == ["processing", "processing", "pending"])
    begin = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=15)
    assert worker.returncode == 0
    assert 0.2 < time.monotonic() - begin < 8
    assert "released 2" in err
    assert not is_alive(pid)
    assert states(shell) == [("pending", 0, 1), ("pending", 0, 1), ("pending", 0, 0)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_ends_now(shell: Shell, number: signal.Signals, code: int) -> None:
    worker, pid = running(shell, script="trap '' TERM; sleep 60; sleep 60")
    worker.send_signal(number)
    time.sleep(0.6)
    assert worker.poll() is None
    begin = time.monotonic()
    worker.send_signal(number)
    worker.communicate(timeout=15)
    assert worker.returncode == code
    assert time.monotonic() - begin < 4
    assert not is_alive(pid)
    assert states(shell)[0] == ("pending", 0, 1)


def test_an_idle_worker_stops_at_once(shell: Shell) -> None:
    worker = shell.start("work", "queue:q", "transport:t", "--", "true")
    wait_for(lambda: (shell.place / "rota.db").exists())
    time.sleep(1)
    begin = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=15)
    assert worker.returncode == 0
    assert time.monotonic() - begin < 2
    assert "Traceback" not in err


def test_ctrl_c_of_a_terminal_does_not_reach_the_command(shell: Shell) -> None:
    worker, pid = running(shell, script="sleep 1; touch finished")
    assert os.getpgid(pid) == pid
    assert os.getpgid(pid) != os.getpgid(worker.pid)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=15)
    assert (shell.place / "finished").exists()


# -- Any command -----------------------------------------------------------------------------------------------------


def test_ctrl_c_gives_130_and_no_traceback(shell: Shell) -> None:
    process = shell.start("enqueue", "q", "--jsonl", "-")
    wait_for(lambda: (shell.place / "rota.db").exists())
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=15)
    assert process.returncode == exits.INTERRUPTED
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_drama(shell: Shell) -> None:
    shell.run("enqueue", "q", "--jsonl", "-", stdin="".join(f'"{"x" * 200}{n}"\n' for n in range(5_000)))
    result = shell.line("{ rota -q jobs q --limit 5000; echo $? >&2; } | head -1")
    assert result.out.split()[0] == "ID"
    assert result.err == f"{exits.BROKEN_PIPE}\n"


def test_a_full_device_is_told_in_one_line(shell: Shell) -> None:
    assert shell.run("enqueue", "q", "1").code == 0
    for command in ("stats", "jobs q --json", "demo --limit 1"):
        result = shell.line(f"rota -q {command} > /dev/full")
        assert (result.code, result.err) == (exits.FAILED, "rota: [Errno 28] No space left on device\n"), command


def test_streams_that_the_parent_closed(shell: Shell) -> None:
    """They are empty and unheard, for the command as for what it runs."""
    assert shell.line("rota enqueue q 1 <&- >&- 2>&-").code == 0
    assert shell.line("rota -q enqueue q - <&-").code == exits.REFUSED
    assert shell.line("rota -q enqueue q --jsonl - <&-").out.startswith("stored 0")
    assert shell.line("rota -q purge queue:q --state pending <&-").code == exits.USAGE
    assert shell.line("rota stats nosuch 2>&-").code == exits.NOT_FOUND
    assert shell.line("rota work queue:q --drain -- sh -c 'echo told; echo told >&2; cat > got' <&- >&- 2>&-").code == 0
    assert (shell.place / "got").read_text() == "1\n"
    with shell.open() as store:
        assert store.queue("q").stats().pending == 0


def test_the_script_and_the_module_are_the_same(shell: Shell) -> None:
    assert shell.line("rota --version").out == shell.run("--version").out
    assert re.fullmatch(r"rota \d+\.\d+\.\d+\S*\n", shell.run("--version").out)


def test_the_demo_verifies_what_it_did(shell: Shell) -> None:
    result = shell.run("demo", "--limit", "150", "--url", "sqlite:///demo.db", timeout=120)
    assert result.code == 0, result
    assert "150 files" in result.out
    assert "with SIGKILL" in result.out
    assert re.search(r"\d+ jobs/s", result.out)
    assert re.search(r"150 files once each, \d+ groups in order, nothing lost", result.out)
    # What it printed for looking around works.
    for line in re.findall(r"^  (rota --url .*)$", result.out, re.MULTILINE):
        assert shell.line(line).code == 0, line
    assert len(re.findall(r"^  rota ", result.out, re.MULTILINE)) >= 4


def test_the_demo_as_one_document(shell: Shell) -> None:
    result = shell.run("demo", "--limit", "60", "--json", timeout=120)
    assert result.code == 0, result
    assert result.json["files"] == 60
    assert result.json["problems"] == []
    assert result.json["url"].startswith("sqlite:///")
    assert "nothing lost" in result.err


def test_the_demos_workers_end_with_it(shell: Shell) -> None:
    """Whoever ends the demo early, by a signal as by Ctrl-C, leaves no worker behind."""
    running = shell.start("demo", "--url", "sqlite:///demo.db")
    try:
        wait_for(lambda: len(_children(running.pid)) == 4)
        workers = _children(running.pid)
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 128 + signal.SIGTERM
        assert not any(map(is_alive, workers))
    finally:
        running.kill()
        running.communicate()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
