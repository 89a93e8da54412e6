"""What holds for every command: the URL, exit codes, help, quick start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli import exits, main, parser
from rota.cli.arguments import duration
from rota.cli.output import escape, has_rich, print_table, when
from rota.cli.progress import progress
from rota.masking import masked

Capture = pytest.CaptureFixture[str]


def test_help_tells_every_exit_code_and_every_command(capsys: Capture) -> None:
    assert main(["--help"]) == exits.OK
    text = capsys.readouterr().out
    for code, meaning in exits.MEANING.items():
        assert f"{code:>3}  {meaning}" in text
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert codes == set(exits.MEANING)


COMMANDS = [
    *("enqueue", "publish", "work", "run", "stats", "top", "groups", "jobs", "show", "explain", "dead"),
    *("redrive", "purge", "cancel", "suspend", "resume", "sweep", "doctor", "migrate", "demo"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: Capture) -> None:
    assert main([command, "--help"]) == exits.OK
    text = capsys.readouterr().out
    assert text.startswith(f"usage: rota {command}")
    assert "--url" in text
    if command not in ("work", "run", "demo"):
        assert "--json" in text


def test_no_command_and_an_unknown_one(capsys: Capture) -> None:
    assert main([]) == exits.USAGE
    assert main(["nonsense"]) == exits.USAGE
    assert main(["stats", "--nonsense"]) == exits.USAGE
    assert "Traceback" not in capsys.readouterr().err


def test_an_unknown_option_is_told_with_its_commands_usage(capsys: Capture) -> None:
    assert main(["run", "--concurrency", "4", "app:worker", "--verbos"]) == exits.USAGE
    said = capsys.readouterr().err
    assert said.startswith("usage: rota run")
    assert "rota run: error: unrecognized arguments: --concurrency" in said
    assert "--verbos" in said


def test_where_the_url_comes_from(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_URL", raising=False)
    for words, used in [
        (["--url", "sqlite:///a.db", "stats"], "sqlite:///a.db"),
        (["stats", "--url", "sqlite:///b.db"], "sqlite:///b.db"),
        (["--url", "sqlite:///a.db", "stats", "--url", "sqlite:///b.db"], "sqlite:///b.db"),
        (["stats"], "sqlite:///rota.db"),
    ]:
        assert main(words) == exits.UNAVAILABLE
        assert capsys.readouterr().err.startswith(f"rota: {used}\n")
    monkeypatch.setenv("ROTA_URL", "sqlite:///env.db")
    assert main(["stats"]) == exits.UNAVAILABLE
    assert capsys.readouterr().err.startswith("rota: sqlite:///env.db\n")
    for words in (["-q", "stats"], ["stats", "--quiet"]):
        assert main(words) == exits.UNAVAILABLE
        assert len(capsys.readouterr().err.splitlines()) == 1, "the error alone"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@host/db",
        "postgresql://user:hunter2/x@host/db",
        "postgresql://user:a@hunter2@host:5432/db?sslmode=require",
        "postgresql://user:hunter2?#@host/db",
        "postgresql:/user:hunter2@host/db",
        "postgresql://host/db?user=u&password=hunter2",
        "postgresql://host/db?sslpassword=hunter2&x=1",
        "nonsense://user:hunter2@host",
        "user:hunter2@host",
    ],
)
def test_a_password_is_never_shown(url: str, capsys: Capture) -> None:
    assert "hunter2" not in masked(url)
    # Not understood, or a host that nobody reaches.
    assert main(["--url", url, "stats"]) in (exits.USAGE, exits.UNAVAILABLE)
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert "***" in err


def test_urls_without_a_password_are_shown_as_they_are() -> None:
    for url in ("sqlite:////tmp/a@b:c.db", "memory://", "memory://name", "postgresql://user@host:5432/db?x=y"):
        assert masked(url) == url


def test_starting_up_imports_little() -> None:
    probe = (
        "import sys; from rota.cli import main; main(['--version']); main(['--url', 'memory://', 'stats']); "
        "print([name for name in ('asyncio', 'rich', 'subprocess', 'sqlite3', 'unittest') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_lengths_of_time() -> None:
    texts = {"5": 5.0, "0.25": 0.25, "250ms": 0.25, "90s": 90.0, "5m": 300.0, "2h": 7_200.0, "1d": 86_400.0, "-3": -3.0}
    assert {text: duration(text) for text in texts} == texts
    for text in ("", "5x", "nan", "inf", "five", "1h30m", "1 s"):
        with pytest.raises(Exception, match="no length of time"):
            duration(text)


def test_escaping() -> None:
    assert escape("a\nb\tc\r\x1b[0m\x9b\x7f\u202e\u2028\ud800\ufeff") == (
        "a\\nb\\tc\\r\\x1b[0m\\x9b\\x7f\\u202e\\u2028\\ud800\\ufeff"
    )
    assert escape("plain ünïcode 🦜") == "plain ünïcode 🦜"


def test_instants_beyond_the_calendar() -> None:
    assert when(None) == "-"
    assert when(4e12) == "4000000000000.000000"


def test_options_are_told_apart_from_the_command_of_work() -> None:
    arguments = parser.parse(["--url", "work", "work", "q", "-j", "3", "--", "cmd", "--url", "x", "--", "y"])
    assert (arguments.url, arguments.parallel) == ("work", 3)
    assert arguments.child == ["cmd", "--url", "x", "--", "y"]


@pytest.mark.parametrize("rich", [False, True] if has_rich() else [False])
def test_tables_on_a_narrow_terminal(rich: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("rota.cli.output.has_rich", lambda: rich)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    wide = "x" * 300
    print_table(("id", "state", "payload"), [(9007199254740993, "pending", wide), (1, "[red]dead[/red]", "\x1b[2J")])
    text = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    lines = [line for line in text.splitlines() if line and "─" not in line]
    assert len(lines) == 3
    assert lines[1].startswith("9007199254740993  pending")
    assert lines[1].rstrip().endswith("xxx…")
    assert max(map(len, lines)) <= 60
    assert "[red]dead[/red]" in lines[2]
    assert "\\x1b[2J" in lines[2]
    print_table(("id",), [], empty="nothing there")
    assert capsys.readouterr().out == "(nothing there)\n"


@pytest.mark.parametrize("rich", [False, True] if has_rich() else [False])
def test_progress_on_a_terminal(rich: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("rota.cli.progress.has_rich", lambda: rich)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("reading", 10) as bar:
        bar.update(4)
        bar.update(10, "lines")
    assert "reading" in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with progress("reading", 10) as bar:
        bar.update(10)
    assert capsys.readouterr().err == ""
