"""``rota work``: what commands get, how their end decides, what drain waits for."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

import rota
from rota.cli import exits

from .conftest import Cli

# Prints its variables and its input as one JSON document into the file named first.
DUMP = (
    "import json, os, sys; "
    "json.dump({'env': {k: v for k, v in os.environ.items() if k.startswith('ROTA_')}, 'stdin': sys.stdin.read()}, "
    "open(sys.argv[1] + os.environ.get('ROTA_ID', os.environ.get('ROTA_SEQ')), 'w'))"
)


def dump(place: Path, number: int) -> dict[str, object]:
    import json

    document: dict[str, object] = json.loads((place / f"out{number}").read_text())
    return document


def test_a_job_and_what_its_command_gets(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    store.queue("q 1", max_attempts=7).enqueue(
        {"ä": [1, 9007199254740993]}, name="mail", priority=3, headers={"trace": "x=1\n"}
    )
    cli.ok("work", "queue:q 1", "--drain", "--worker", "me", "--", sys.executable, "-c", DUMP, str(tmp_path / "out"))
    got = dump(tmp_path, 1)
    assert got["stdin"] == '{"ä":[1,9007199254740993]}\n'
    env = got["env"]
    assert isinstance(env, dict)
    assert int(env.pop("ROTA_TOKEN")) >= 1
    assert env == {
        "ROTA_KIND": "job",
        "ROTA_QUEUE": "q 1",
        "ROTA_ID": "1",
        "ROTA_NAME": "mail",
        "ROTA_ATTEMPT": "1",
        "ROTA_MAX_ATTEMPTS": "7",
        "ROTA_WORKER": "me",
        "ROTA_PRIORITY": "3",
        "ROTA_HEADERS": '{"trace": "x=1\\n"}',
        "ROTA_URL": cli.url,
    }
    assert store.queue("q 1").stats().pending == 0


def test_a_message_and_what_its_command_gets(
    cli: Cli, store: rota.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if we were run by a worker ourselves: nothing of its item may show.
    monkeypatch.setenv("ROTA_ID", "77")
    monkeypatch.setenv("ROTA_QUEUE", "outer")
    seq = store.transport("t").publish("gruppe 🦜", "text", 5)
    cli.ok("work", "t", "--drain", "--raw", "--", sys.executable, "-c", DUMP, str(tmp_path / "out"))
    got = dump(tmp_path, seq)
    assert got["stdin"] == "text"
    env = got["env"]
    assert isinstance(env, dict)
    assert env["ROTA_KIND"] == "message"
    assert (env["ROTA_TRANSPORT"], env["ROTA_GROUP"], env["ROTA_SEQ"]) == ("t", "gruppe 🦜", str(seq))
    assert (env["ROTA_ATTEMPT"], env["ROTA_PRIORITY"], env["ROTA_HEADERS"]) == ("1", "5", "{}")
    assert "ROTA_ID" not in env
    assert "ROTA_QUEUE" not in env


def test_the_end_of_the_command_decides(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q", backoff_base=60)
    for status in (0, 100, 3):
        queue.enqueue(status)
    script = 'read n; echo "said $n" >&2; exit $n'
    result = cli.ok("work", "q", "--max", "3", "-v", "--", "sh", "-c", script)
    assert result.err.count("said ") == 3
    assert "acked 1, retried 1, dead-lettered 1" in result.err
    assert queue.get_job(1) is None
    dead, retried = queue.get_job(2), queue.get_job(3)
    assert dead is not None
    assert (dead.state, dead.last_error, dead.attempts) == ("dead", "said 100", 1)
    assert retried is not None
    assert (retried.state, retried.last_error, retried.attempts) == ("pending", "said 3", 1)
    assert retried.run_at > time.time() + 20


def test_errors_without_words(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q", max_attempts=1)
    queue.enqueue_many(["exit 4", "exit 100", "kill -9 $$"])
    cli.ok("work", "q", "--drain", "--raw", "--", "sh")
    errors = [letter.last_error for letter in queue.dead_letters()]
    assert errors == ["exit status 4", "exit status 100", "killed by SIGKILL"]


def test_only_the_end_of_a_flood_is_kept(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q", max_attempts=1)
    queue.enqueue(1)
    flood = "import sys; sys.stderr.write('x' * 3_000_000 + 'last words'); sys.exit(1)"
    result = cli.ok("work", "q", "--drain", "--", sys.executable, "-c", flood)
    assert len(result.err) > 3_000_000, "it is passed on in full"
    error = queue.dead_letters()[0].last_error
    assert error.endswith("xxlast words")
    assert len(error) == 8192


def test_input_that_nobody_reads_and_children_that_stay_hold_nothing_up(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q")
    queue.enqueue("x" * 1_000_000)
    begin = time.monotonic()
    cli.ok("work", "q", "--drain", "--", "sh", "-c", "sleep 20 & exit 0")
    assert time.monotonic() - begin < 10
    assert queue.stats().pending == 0


def test_headers_too_large_for_a_variable(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue(1, headers={"h": "x" * 300_000})
    assert "acked 1" in cli.ok("work", "q", "--drain", "--", "sh", "-c", 'test -z "$ROTA_HEADERS"').err


def test_parallel_commands_and_never_more(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    queue = store.queue("q")
    queue.enqueue_many(range(8))
    # Each command leaves a mark and looks how many marks are there: two must meet, three never.
    script = f"cd {tmp_path}; mkdir -p m; touch m/$$; sleep 0.4; ls m | wc -l >> seen; rm m/$$"
    cli.ok("work", "q", "--drain", "-j", "2", "--", "sh", "-c", script)
    seen = {int(line) for line in (tmp_path / "seen").read_text().split()}
    assert max(seen) == 2


def test_nothing_is_claimed_that_cannot_be_started_at_once(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    queue = store.queue("q")
    queue.enqueue_many(range(6))
    seen: list[int] = []

    def watch() -> None:
        while not (tmp_path / "over").exists():
            seen.append(len(queue.jobs("processing")))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    cli.ok("work", "q", "-j", "2", "--max", "4", "--", "sleep", "0.2")
    (tmp_path / "over").touch()
    watcher.join()
    assert max(seen) == 2
    assert [job.attempts for job in queue.jobs()] == [0, 0]


def test_a_claim_is_renewed_while_the_command_runs(cli: Cli, store: rota.Store) -> None:
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue(1)
    transport.publish("g", 1)
    stolen: list[object] = []
    over = threading.Event()

    def thief() -> None:
        while not over.is_set():
            stolen.extend(queue.claim_batch("thief", 1))
            stolen.extend(transport.claim_batch("thief", 1))
            time.sleep(0.05)

    greedy = threading.Timer(0.7, thief)
    greedy.start()
    result = cli.ok("work", "q", "t", "-j", "2", "--drain", "--visibility", "1", "--", "sleep", "3")
    over.set()
    greedy.join()
    assert stolen == []
    assert "acked 2" in result.err


def test_a_lost_claim_ends_the_command_and_its_result_does_not_count(
    cli: Cli, store: rota.Store, tmp_path: Path
) -> None:
    queue = store.queue("q")
    job_id = queue.enqueue(1)
    script = f"trap 'touch {tmp_path}/told; exit 0' TERM; touch {tmp_path}/began; sleep 30 & wait"

    def cancel() -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        queue.cancel(job_id)

    threading.Thread(target=cancel).start()
    begin = time.monotonic()
    result = cli.ok("work", "q", "--drain", "--visibility", "1", "--", "sh", "-c", script)
    assert time.monotonic() - begin < 10
    assert (tmp_path / "told").exists()
    assert "its claim was lost" in result.err
    assert "acked" not in result.err


def test_a_command_that_takes_too_long(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q", max_attempts=1)
    queue.enqueue(1)
    cli.ok("work", "q", "--drain", "--timeout", "0.5", "--", "sh", "-c", "echo working >&2; sleep 60")
    assert queue.dead_letters()[0].last_error == "timed out after 0.5 s: working"


def test_one_that_ignores_sigterm_is_killed(cli: Cli, store: rota.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.cli.work_child.KILL_AFTER", 0.5)
    queue = store.queue("q", max_attempts=1)
    queue.enqueue(1)
    begin = time.monotonic()
    cli.ok("work", "q", "--drain", "--timeout", "0.3", "--", "sh", "-c", "trap '' TERM; sleep 60; sleep 60")
    assert time.monotonic() - begin < 10
    assert queue.dead_letters()[0].last_error == "timed out after 0.3 s"


# -- Drain -----------------------------------------------------------------------------------------------------------


def test_drain_waits_for_what_is_delayed_and_for_what_others_hold(cli: Cli, store: rota.Store) -> None:
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue("held")
    held = queue.claim_one("other", visibility=1.5)
    queue.enqueue("delayed", delay=1)
    transport.publish("g", 1)
    lease = transport.claim("other", 1.2)
    assert held is not None
    assert lease is not None
    assert "acked 3" in cli.ok("work", "q", "t", "--drain", "--", "true").err
    assert held.ack() is False
    assert lease.ack() is False
    assert queue.stats().pending == 0


def test_drain_retries_until_it_works(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    store.queue("q", backoff_base=0.1, max_attempts=5).enqueue(1)
    store.transport("t", backoff_base=0.1).publish("g", 1)
    result = cli.ok("work", "q", "t", "--drain", "--", "sh", "-c", "test $ROTA_ATTEMPT = 3")
    assert "acked 2, retried 4" in result.err


def test_drain_buries_what_is_expired(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue(1, expires=0)
    cli.ok("work", "q", "--drain", "--", "true")
    assert store.queue("q").dead_letters()[0].reason == "expired"


def test_drain_leaves_what_is_suspended_and_says_so(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue(1)
    store.queue("q").suspend()
    result = cli("work", "q", "--drain", "--", "true")
    assert result.code == exits.FAILED
    assert "suspended" in result.err
    transport = store.transport("t")
    transport.publish_many([("a", 1), ("b", 2)])
    transport.suspend("a")
    assert cli("work", "t", "--drain", "--", "true").code == exits.FAILED
    assert [group.group_id for group in transport.groups()] == ["a"]


def test_drain_of_nothing_ends_at_once(cli: Cli) -> None:
    begin = time.monotonic()
    assert "nothing to do" in cli.ok("work", "queue:none", "transport:none", "--drain", "--", "true").err
    assert time.monotonic() - begin < 2


def test_a_floor_leaves_the_groups_below_it(cli: Cli, store: rota.Store) -> None:
    transport = store.transport("t")
    transport.publish_many([("low", 1, 0), ("high", 2, 5)])
    cli.ok("work", "t", "--drain", "--min-priority", "5", "--", "true")
    assert [group.group_id for group in transport.groups()] == ["low"]
    assert cli("work", "queue:q", "--min-priority", "5", "--", "true").code == exits.USAGE


# -- Wrong use -------------------------------------------------------------------------------------------------------


def test_a_command_that_cannot_be_run_claims_nothing(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    missing = cli("work", "q", "--drain", "--", "no-such-command-anywhere")
    assert missing.code == exits.USAGE
    assert "no-such-command-anywhere" in missing.err
    # Runnable by its mode, but not startable: found out with a job in hand, which is given back.
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    broken = cli("work", "q", "--drain", "--", str(script))
    assert broken.code == exits.FAILED
    assert "cannot start" in broken.err
    job = queue.get_job(1)
    assert job is not None
    assert (job.state, job.attempts, job.releases) == ("pending", 0, 1)


@pytest.mark.parametrize(
    "words",
    [
        ("work", "q"),
        ("work", "q", "--"),
        ("work", "--", "true"),
        ("work", "q", "-j", "0", "--", "true"),
        ("work", "q", "--timeout", "0", "--", "true"),
        ("work", "q", "--visibility", "0", "--", "true"),
        ("work", "q", "--worker", "", "--", "true"),
    ],
)
def test_wrong_use(cli: Cli, store: rota.Store, words: tuple[str, ...]) -> None:
    store.queue("q").enqueue(1)
    assert cli(*words).code == exits.USAGE
    assert store.queue("q").stats().pending == 1


def test_options_of_the_command_are_its_own(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    store.queue("q").enqueue(1)
    cli.ok("work", "q", "--drain", "--", "sh", "-c", f'echo "$@" > {tmp_path}/words', "sh", "--json", "--", "-j", "9")
    assert (tmp_path / "words").read_text() == "--json -- -j 9\n"
    assert os.path.exists(tmp_path / "words")
