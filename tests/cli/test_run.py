"""``rota run``: finding the worker, which store it works on, how it ends."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.cli import exits

from .conftest import Cli, Result, Shell
from .test_processes import has_content, states, wait_for

TASKS = """
import time
from pathlib import Path
import rota

worker = rota.Worker({store})

@worker.queue("q")
def handle(job: rota.Job) -> None:
    if job.payload == "fail":
        raise rota.Fail("told to")
    if job.payload == "stop after two events":
        while not Path("events").exists() or len(Path("events").read_text().split()) < 2:
            time.sleep(0.01)
    if job.payload.startswith("stop"):
        worker.stop()

@worker.transport("t")
async def on_event(event) -> None:
    with open("events", "a") as file:
        print(event, file=file)

empty = rota.Worker()

def factory():
    return worker

class Nested:
    inner = worker
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a package of the application, forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "__init__.py").touch()
    (tmp_path / "myapp" / "tasks.py").write_text(TASKS.format(store=""))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("myapp"):
            del sys.modules[name]


def run(cli: Cli, *words: str) -> Result:
    """``rota run`` with no logging configuration, as in a new process; pytest's own handlers come back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        result = cli(*words)
        for handler in root.handlers:
            handler.close()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("rota").setLevel(logging.NOTSET)
    assert result.code == 0, result
    return result


@pytest.mark.parametrize("name", ["worker", "Nested.inner"])
def test_it_works_off_what_the_url_names_until_it_is_stopped(
    cli: Cli, store: rota.Store, place: Path, name: str
) -> None:
    queue = store.queue("q")
    queue.enqueue_many(["a", "fail", "b"])
    store.transport("t").publish_many([("g", 1), ("g", 2)])
    queue.enqueue("stop after two events", delay=0.5)
    result = run(cli, "run", f"myapp.tasks:{name}", "--worker", "me")
    assert queue.stats().pending == queue.stats().processing == 0
    (letter,) = queue.dead_letters()
    assert (letter.payload, letter.last_error, letter.worker_id) == ("fail", "told to", "me")
    assert (place / "events").read_text() == "1\n2\n"
    assert "worker_started" in result.err
    assert "worker_stopped" in result.err
    assert "handler_failed" in result.err
    assert ("lives in this process only" in result.err) == cli.url.startswith("memory:")
    assert result.out == ""


ASKS = """
from urllib.request import urlopen
import rota

worker = rota.Worker()

@worker.queue("q")
def handle(path) -> None:
    host, port = worker.health_address
    with urlopen(f"http://{host}:{port}{path}") as answer, open("answers", "a") as file:
        print(path, answer.status, answer.readline().decode().strip(), file=file)
    worker.stop()
"""


def test_health(cli: Cli, store: rota.Store, place: Path) -> None:
    (place / "myapp" / "tasks.py").write_text(ASKS)
    store.queue("q").enqueue("/readyz")
    result = run(cli, "run", "myapp.tasks:worker", "--health", "0")
    assert (place / "answers").read_text() == "/readyz 200 ready\n"
    assert "health_listening address=127.0.0.1:" in result.err


@pytest.mark.usefixtures("place")
def test_what_is_logged_cannot_act_on_the_terminal_and_quiet_is_quiet(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q")
    queue.enqueue("fail", name="\u202egnp")
    queue.enqueue("stop")
    result = run(cli, "-q", "run", "myapp.tasks:worker")
    assert "\u202e" not in result.err
    assert len(result.err.splitlines()) == 1
    assert "handler_failed" in result.err


def test_the_application_s_own_logging_stays(cli: Cli, store: rota.Store, place: Path) -> None:
    tasks = place / "myapp" / "tasks.py"
    tasks.write_text(f"import logging; logging.basicConfig(filename='log', level='INFO')\n{tasks.read_text()}")
    store.queue("q").enqueue("stop")
    result = run(cli, "-q", "run", "myapp.tasks:worker")
    assert result.err == ""
    assert "worker_started" in (place / "log").read_text()


# -- Wrong use -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("myapp.tasks", "MODULE:NAME"),
        ("myapp.tasks:", "MODULE:NAME"),
        ("myapp/tasks.py:worker", "myapp.tasks:worker"),
        ("nosuch.tasks:worker", "no module 'nosuch'"),
        ("myapp.nosuch:worker", "no module 'myapp.nosuch'"),
        ("myapp.tasks:nosuch", "its workers: worker, empty"),
        ("myapp.tasks:factory", "no rota.Worker but of type function"),
        ("myapp:worker", "no worker at its top level"),
        ("myapp.tasks:empty", "no handlers"),
        ("myapp.tasks:worker --grace -1s", "--grace"),
        ("myapp.tasks:worker --health 70000", "--health must be a port from 0 to 65535"),
        ("myapp.tasks:worker --url nonsense://x", "nonsense"),
    ],
)
def test_wrong_use(cli: Cli, target: str, told: str) -> None:
    result = cli("run", *target.split())
    assert result.code == exits.USAGE, result
    assert told in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("line", ["import nosuchthing", "1 / 0", "raise SystemExit(0)"])
def test_a_module_that_fails_shows_its_own_traceback(cli: Cli, place: Path, line: str) -> None:
    (place / "myapp" / "tasks.py").write_text(f"\n\n{line}\n")
    result = cli("run", "myapp.tasks:worker")
    assert result.code == exits.FAILED
    assert "tasks.py" in result.err
    assert f"    {line}" in result.err
    assert "importlib" not in result.err
    assert result.err.splitlines()[-1].startswith("rota: importing myapp.tasks failed: ")


# -- As a process ----------------------------------------------------------------------------------------------------

SLOW = """
import rota, time

worker = rota.Worker({store}{grace})

@worker.queue("q", concurrency=2)
def handle(job: rota.Job) -> None:
    with open("began", "a") as file:
        print(job.id, file=file)
    time.sleep({seconds})
"""


def slow(shell: Shell, seconds: float, *options: str, store: str = '"sqlite:///rota.db"', grace: str = "") -> Result:
    """Stop a worker while it handles two of three jobs."""
    (shell.place / "slow.py").write_text(SLOW.format(store=store, grace=grace, seconds=seconds))
    shell.run("enqueue", "q", "--jsonl", "-", stdin="1\n2\n3\n")
    process = shell.start("run", "slow:worker", *options)
    wait_for(lambda: has_content(shell.place / "began") and len((shell.place / "began").read_text().split()) == 2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    return Result(process.returncode, "", err)


def test_a_signal_lets_what_runs_end(shell: Shell) -> None:
    result = slow(shell, 1, "-v")
    assert result.code == 0, result
    assert "Traceback" not in result.err
    assert "DEBUG rota" in result.err
    assert [state for state, attempts, _ in states(shell)] == ["pending"]
    assert result.err.startswith("rota: sqlite:///rota.db\n")


def test_after_the_grace_the_rest_is_given_back(shell: Shell) -> None:
    result = slow(shell, 60, "--grace", "200ms", grace=", grace=100")
    assert result.code == 0, result
    assert [(state, attempts) for state, attempts, _ in states(shell)] == [("pending", 0)] * 3


@pytest.mark.parametrize("how", ["option", "environment", "neither"])
def test_where_the_store_comes_from(shell: Shell, how: str) -> None:
    if how == "option":
        # It wins over what the worker names itself.
        assert slow(shell, 0.2, "--url", shell.url, store='"sqlite:///other.db"').code == 0
        assert not (shell.place / "other.db").exists()
        return
    (shell.place / "slow.py").write_text(SLOW.format(store="", grace="", seconds=0))
    if how == "neither":
        result = shell.run("run", "slow:worker")
        assert result.code == exits.USAGE
        assert "has no store" in result.err
        assert not (shell.place / "rota.db").exists()
        return
    shell.env["ROTA_URL"] = shell.url
    assert slow(shell, 0.2, store="").code == 0


def test_told_twice_it_ends_now(shell: Shell) -> None:
    (shell.place / "slow.py").write_text(SLOW.format(store='"sqlite:///rota.db"', grace="", seconds=60))
    shell.run("enqueue", "q", "--jsonl", "-", stdin="1\n2\n3\n")
    process = shell.start("run", "slow:worker")
    wait_for(lambda: has_content(shell.place / "began"))
    process.send_signal(signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        process.communicate(timeout=0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == exits.INTERRUPTED
    assert [(state, attempts) for state, attempts, _ in states(shell)] == [("pending", 0)] * 3


def test_a_module_that_runs_its_worker_itself_is_not_run_again(shell: Shell) -> None:
    text = SLOW.format(store='"sqlite:///rota.db"', grace="", seconds=0)
    (shell.place / "slow.py").write_text(f"{text}\nworker.run()\n")
    shell.run("enqueue", "q", "1")
    process = shell.start("run", "slow:worker")
    wait_for(lambda: has_content(shell.place / "began"))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "slow ran this worker itself when it was imported, so it is not run again" in err
    assert '__name__ == "__main__"' in err


def test_a_process_that_cannot_start_is_told_without_a_traceback_of_ours(shell: Shell) -> None:
    (shell.place / "lacking.py").write_text(
        "import multiprocessing, rota\n"
        "if multiprocessing.current_process().name != 'MainProcess': raise ImportError('no such library')\n"
        "worker = rota.Worker('sqlite:///rota.db')\n"
        "@worker.queue('q', processes=True)\n"
        "def handle(payload): ...\n"
    )
    shell.run("enqueue", "q", "1")
    ended = shell.run("run", "lacking:worker")
    assert ended.code == exits.FAILED
    assert "ImportError: no such library" in ended.err
    last = ended.err.rstrip().splitlines()[-1]
    assert last.startswith("rota: a process of handle cannot start, it ended with exit status 1")
    assert [(state, attempts) for state, attempts, _ in states(shell)] == [("pending", 0)]
