"""``rota top``: what it shows, and how it leaves the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.cli import exits
from rota.cli.top_figures import Gatherer

from .conftest import Cli, Shell
from .test_processes import wait_for


@pytest.fixture
def busy(store: rota.Store) -> rota.Store:
    """A store with some of everything."""
    queue, transport = store.queue("mail"), store.transport("orders")
    queue.enqueue_many(range(5))
    assert len(queue.claim_batch("w-1", 2)) == 2
    transport.publish_many([(f"g{number}", number) for number in range(4)])
    assert transport.claim("w-1") is not None
    assert transport.claim("w-\u202e2") is not None
    transport.suspend("g3")
    store.queue("idle").suspend()
    # As a worker's own transport.
    store.transport("rota.housekeeping").publish("queue:mail", None)
    return store


@pytest.mark.usefixtures("busy")
def test_a_document(cli: Cli) -> None:
    result = cli.ok("top", "--once", "--json")
    assert result.out.count("\n") == 1
    document = result.json
    assert {one["name"]: (one["pending"], one["processing"]) for one in document["queues"]} == {
        "idle": (0, 0),
        "mail": (3, 2),
    }
    assert [(one["name"], one["messages"], one["leased"]) for one in document["transports"]] == [("orders", 4, 2)]
    groups = {one["group_id"]: one for one in document["groups"]}
    assert sorted(groups) == ["g0", "g1", "g2", "g3"]
    assert groups["g0"]["worker_id"] == "w-1"
    assert groups["g3"]["reason"] != groups["g2"]["reason"]
    assert all(0 <= one["lag"] < 60 for one in document["groups"])
    workers = {one["worker_id"]: (one["jobs"], one["groups"], one["lapsed"]) for one in document["workers"]}
    assert workers == {"w-1": (2, 1, 0), "w-\u202e2": (0, 1, 0)}
    assert (document["more_sources"], document["workers_partial"]) == (0, False)


@pytest.mark.usefixtures("busy")
def test_for_people(cli: Cli) -> None:
    out = cli.ok("top", "--once").out
    lines = [line.split() for line in out.splitlines()]
    assert ["mail", "3", "2", "0", "0"] in [line[:5] for line in lines]
    assert [line[0] for line in lines if line and line[-1] == "yes"] == ["idle"]
    assert "\u202e" not in out
    assert "w-\\u202e2" in out
    assert "rota.housekeeping" not in out


@pytest.mark.usefixtures("busy")
def test_only_what_was_named(cli: Cli) -> None:
    document = cli.ok("top", "queue:mail", "transport:rota.housekeeping", "--once", "--json").json
    assert [one["name"] for one in document["queues"]] == ["mail"]
    assert [one["name"] for one in document["transports"]] == ["rota.housekeeping"]
    assert cli("top", "nosuch", "--once").code == exits.NOT_FOUND
    assert cli("top", "--interval", "0").code == exits.USAGE


def test_lapsed_claims_show(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue(1)
    store.queue("q").claim_one("w", visibility=0.05)
    time.sleep(0.1)
    (worker,) = cli.ok("top", "--once", "--json").json["workers"]
    assert (worker["jobs"], worker["lapsed"]) == (1, 1)
    assert worker["longest"] >= 0.1


def test_the_questions_are_bounded(store: rota.Store) -> None:
    for number in range(105):
        store.queue(f"q{number:03}").enqueue(1)
    store.transport("t").publish_many([(f"g{number:04}", number) for number in range(2_500)])
    store.queue("q000").enqueue_many(range(300))
    assert len(store.queue("q000").claim_batch("w", 300)) == 300
    figures = Gatherer(store, []).gather()
    assert len(figures.queues) == 100
    assert figures.more_sources == 6
    assert figures.partial
    assert figures.workers[0].jobs == 200


def test_a_store_that_is_not_there(tmp_path: Path, cli: Cli) -> None:
    result = cli("--url", f"sqlite:///{tmp_path / 'none.db'}", "top", "--once")
    assert result.code == exits.UNAVAILABLE
    assert not (tmp_path / "none.db").exists()


# -- As a process ----------------------------------------------------------------------------------------------------


def test_a_document_for_each_look_until_the_reader_goes(shell: Shell) -> None:
    shell.run("enqueue", "q", "1")
    result = shell.line("{ rota -q top --json --interval 100ms; echo $? >&2; } | head -3")
    documents = [json.loads(line) for line in result.out.splitlines()]
    assert [one["queues"][0]["pending"] for one in documents] == [1, 1, 1]
    assert documents[0]["at"] < documents[2]["at"]
    assert result.err == f"{exits.BROKEN_PIPE}\n"


def test_frames_where_there_is_no_terminal_until_ctrl_c(shell: Shell) -> None:
    shell.run("enqueue", "q", "1")
    process = shell.start("-q", "top", "--interval", "100ms")
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == exits.INTERRUPTED
    assert err == ""
    assert "\x1b" not in out
    assert out.count("PENDING") >= 2


class Terminal:
    """A pseudo-terminal with the command in it."""

    def __init__(self, shell: Shell, *words: str, rich: bool) -> None:
        import pty
        import termios

        self.own, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (20, 100))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.out = b""
        code = "import sys; from rota.cli import main; sys.exit(main())"
        if not rich:
            code = f"import sys; sys.modules['rich'] = None; {code}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=shell.place,
            # Not the size that whoever runs the tests has.
            env={name: value for name, value in shell.env.items() if name not in ("LINES", "COLUMNS")}
            | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=self._take,
        )
        os.set_blocking(self.own, False)

    def _take(self) -> None:
        import fcntl
        import termios

        fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)

    def shows(self, text: bytes, times: int = 1) -> Callable[[], bool]:
        def look() -> bool:
            try:
                self.out += os.read(self.own, 65536)
            except (BlockingIOError, OSError):
                pass
            return self.out.count(text) >= times

        return look

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.own)
        os.close(self.theirs)


@pytest.fixture
def terminal(shell: Shell) -> Any:
    """Opens one for ``rota top``."""
    opened: list[Terminal] = []

    def start(*words: str, rich: bool) -> Terminal:
        opened.append(Terminal(shell, *words, rich=rich))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.parametrize("rich", [True, False])
@pytest.mark.parametrize("end", ["q", "ctrl-c", "sigterm"])
def test_it_leaves_the_terminal_as_it_was(shell: Shell, terminal: Any, rich: bool, end: str) -> None:
    import termios

    shell.run("enqueue", "some-queue", "1")
    # It must not wait for its next look to end.
    shown = terminal("top", "--interval", "60" if end == "q" else "200ms", rich=rich)
    wait_for(shown.shows(b"some-queue", 1 if end == "q" else 2))
    assert not termios.tcgetattr(shown.theirs)[3] & termios.ICANON
    if end == "sigterm":
        shown.process.terminate()
    else:
        os.write(shown.own, b"q" if end == "q" else b"\x03")
    assert shown.process.wait(10) == {"q": 0, "ctrl-c": exits.INTERRUPTED, "sigterm": 143}[end]
    wait_for(shown.shows(b"\x1b[?1049l"))
    assert shown.out.index(b"\x1b[?1049h") < shown.out.index(b"some-queue") < shown.out.index(b"\x1b[?1049l")
    assert shown.out.rindex(b"\x1b[?25h") > shown.out.rindex(b"\x1b[?25l")
    assert termios.tcgetattr(shown.theirs) == shown.before
    assert b"Traceback" not in shown.out


def test_more_than_the_terminal_has_lines(shell: Shell, terminal: Any) -> None:
    with shell.open() as store:
        for number in range(60):
            store.queue(f"queue-{number:02}").enqueue(1)
        store.transport("t").publish_many([(f"group-{number:02}", 1) for number in range(60)])
    shown = terminal("-q", "top", "--interval", "60", rich=False)
    wait_for(shown.shows(b"queue-00"))
    wait_for(shown.shows(b"\x1b[J"))
    frame = shown.out[shown.out.index(b"\x1b[H") : shown.out.index(b"\x1b[J")]
    assert frame.count(b"\n") <= 19
