"""``rota enqueue`` and ``rota publish``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import rota
from rota.cli import exits

from .conftest import Cli

BIG = 9007199254740993


def payloads(store: rota.Store, queue: str) -> list[object]:
    return [job.payload for job in store.queue(queue).jobs(limit=100_000)]


def test_one_job_is_stored_as_given_and_its_id_printed(cli: Cli, store: rota.Store) -> None:
    result = cli.ok("enqueue", "q", f'{{"id": {BIG}, "t": "a\\u0000b"}}')
    assert result.out == "1\n"
    assert payloads(store, "q") == [{"id": BIG, "t": "a\0b"}]
    assert cli.ok("enqueue", "queue:q", "5", "--json").json == {"id": 2}


def test_text_and_stdin(cli: Cli, store: rota.Store) -> None:
    cli.ok("enqueue", "q", "--text", "plain words")
    cli.ok("enqueue", "q", "-", stdin='{"from": "stdin"}')
    cli.ok("enqueue", "q", "--text", "-", stdin="two\nlines\n")
    cli.ok("enqueue", "q", "-5")
    assert payloads(store, "q") == ["plain words", {"from": "stdin"}, "two\nlines\n", -5]


def test_options_between_the_words_are_stamped_on_the_job(cli: Cli, store: rota.Store) -> None:
    before = time.time()
    words = ["--priority", "7", "1", "--delay", "2m", "--expires", "1h", "--name", "n", "--header", "a=b=c"]
    more = ["--max-attempts", "9", "--visibility", "90s", "--backoff-base", "250ms", "--keep-done", "1d", "--key", "k"]
    cli.ok("enqueue", "q", *words, *more, "--dead-letter-retention", "5")
    job = store.queue("q").get_job(1)
    assert job is not None
    assert (job.payload, job.priority, job.name, job.headers, job.key) == (1, 7, "n", {"a": "b=c"}, "k")
    assert (job.max_attempts, job.visibility, job.backoff_base) == (9, 90, 0.25)
    assert (job.keep_done, job.dead_letter_retention) == (86_400, 5)
    assert job.run_at == pytest.approx(before + 120, abs=5)
    assert job.expires_at == pytest.approx(before + 3600, abs=5)


def test_run_at_needs_a_zone(cli: Cli, store: rota.Store) -> None:
    cli.ok("enqueue", "q", "1", "--run-at", "2030-01-31T08:00:00+01:00")
    cli.ok("enqueue", "q", "1", "--run-at", "12.5")
    assert [job.run_at for job in store.queue("q").jobs()] == [1_896_073_200, 12.5]
    refused = cli("enqueue", "q", "1", "--run-at", "2030-01-31T08:00:00")
    assert refused.code == exits.USAGE
    assert "zone" in refused.err


def test_a_taken_key_stores_nothing(cli: Cli, store: rota.Store) -> None:
    assert cli.ok("enqueue", "q", "1", "--key", "k").out == cli.ok("enqueue", "q", "2", "--key", "k").out
    assert cli.ok("publish", "t", "g", "1", "--key", "k").out == cli.ok("publish", "t", "g", "2", "--key", "k").out
    assert payloads(store, "q") == [1]
    assert [message.event for message in store.transport("t").peek("g")] == [1]


@pytest.mark.parametrize("payload", ["nope", "NaN", "[1,", "1e999", '"\\ud800"', ""])
def test_what_is_not_strict_json_is_refused(cli: Cli, store: rota.Store, payload: str) -> None:
    result = cli("enqueue", "q", payload)
    assert result.code == exits.REFUSED
    *remarks, complaint = [line for line in result.err.splitlines() if "memory:// lives" not in line]
    assert remarks in ([], [f"rota: {cli.url}"])
    assert complaint.startswith("rota: ")
    assert payloads(store, "q") == []


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue", "q"),
        ("enqueue", "q", "1", "--jsonl", "-"),
        ("enqueue", "q", "1", "--skip-bad"),
        ("enqueue", "q", "1", "--key-by", "id"),
        ("enqueue", "q", "--jsonl", "-", "--key", "k"),
        ("enqueue", "transport:q", "1"),
        ("enqueue", "q", "1", "--priority", "4294967296"),
        ("enqueue", "q", "1", "--max-attempts", "0"),
        ("enqueue", "q", "1", "--visibility", "soon"),
        ("enqueue", "q", "1", "--header", "novalue"),
        ("enqueue", "queue:", "1"),
        ("publish", "t", "1"),
        ("publish", "t", "g", "--jsonl", "-", "--group-by", "g"),
        ("publish", "t", "--jsonl", "-"),
        ("publish", "t", "g", "1", "--group-by", "g"),
        ("publish", "queue:t", "g", "1"),
    ],
)
def test_wrong_use(cli: Cli, store: rota.Store, words: tuple[str, ...]) -> None:
    assert cli(*words, stdin="1\n").code == exits.USAGE
    assert store.queues() == []
    assert store.transports() == []


# -- Files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_stored_in_its_order(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\n   \n{"n": 2}\n"three"\nnull\n[5]')
    result = cli.ok("enqueue", "q", "--jsonl", str(path), "--priority", "3")
    assert result.out == "stored 5 in queue:q (ids 1 to 5)\n"
    assert payloads(store, "q") == [{"n": 1}, {"n": 2}, "three", None, [5]]
    assert {job.priority for job in store.queue("q").jobs()} == {3}
    assert cli.ok("enqueue", "q", "--jsonl", "-", "--json", stdin="1\n2\n").json == {"ids": [6, 7], "skipped": []}
    assert cli.ok("enqueue", "q", "--jsonl", "-", stdin="").out == "stored 0 in queue:q\n"


def test_lines_of_text(cli: Cli, store: rota.Store) -> None:
    cli.ok("enqueue", "q", "--jsonl", "-", "--text", stdin="./a b\n./c\r\n")
    assert payloads(store, "q") == ["./a b", "./c"]


BAD_LINES = b'{"g": "a"}\nnot json\n{"g": "b"}\n{"x": NaN}\n"\xff"\n{"h": 1}\n{"g": ""}\n{"g": "c"}\n'


def test_bad_lines_are_told_by_number_and_nothing_is_stored(cli: Cli, store: rota.Store) -> None:
    result = cli("publish", "t", "--group-by", "g", "--jsonl", "-", stdin=BAD_LINES)
    assert result.code == exits.REFUSED
    assert "5 bad lines in -: line 2: " in result.err
    for number in (4, 5, 6, 7):
        assert f"line {number}: " in result.err
    assert "nothing was stored" in result.err
    assert store.transport("t").groups() == []
    assert cli("enqueue", "q", "--jsonl", "-", stdin="1\nnope\n").code == exits.REFUSED
    assert payloads(store, "q") == []


def test_skip_bad_stores_the_rest_and_says_where(cli: Cli, store: rota.Store) -> None:
    result = cli.ok("publish", "t", "--group-by", "g", "--jsonl", "-", "--skip-bad", stdin=BAD_LINES)
    assert result.out.startswith("stored 3 in transport:t")
    assert "skipped 5 bad lines in -: line 2: " in result.err
    assert [group.group_id for group in store.transport("t").groups()] == ["a", "b", "c"]
    again = cli.ok("publish", "t", "--group-by", "g", "--jsonl", "-", "--skip-bad", "--json", stdin=BAD_LINES)
    assert [skipped["line"] for skipped in again.json["skipped"]] == [2, 4, 5, 6, 7]


def test_too_large_a_line_is_a_bad_line(cli: Cli, store: rota.Store) -> None:
    big = json.dumps("x" * (1 << 20))
    result = cli("enqueue", "q", "--jsonl", "-", stdin=f"1\n{big}\n3\n")
    assert result.code == exits.REFUSED
    assert "line 2: payload has 1048578 bytes" in result.err
    assert payloads(store, "q") == []


def test_all_or_nothing_holds_for_large_files(cli: Cli, store: rota.Store, tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    lines = [f'{{"n": {number}}}' for number in range(60_000)]
    path.write_text("\n".join([*lines, "{"]))
    result = cli("enqueue", "q", "--jsonl", str(path))
    assert result.code == exits.REFUSED
    assert "line 60001: " in result.err
    assert payloads(store, "q") == []
    path.write_text("\n".join(lines))
    cli.ok("enqueue", "q", "--jsonl", str(path))
    assert payloads(store, "q") == [{"n": number} for number in range(60_000)]


def test_group_by_takes_dotted_fields_and_keeps_the_order(cli: Cli, store: rota.Store) -> None:
    lines = "".join(f'{{"user": {{"id": {number % 3}}}, "n": {number}}}\n' for number in range(30))
    cli.ok("publish", "t", "--group-by", "user.id", "--jsonl", "-", stdin=lines)
    for group in ("0", "1", "2"):
        events = [message.event["n"] for message in store.transport("t").peek(group, 100)]
        assert events == list(range(int(group), 30, 3))
    cli.ok("publish", "t", "--group-by", "a.b", '{"a.b": "dotted"}')
    cli.ok("publish", "t", "fixed", "--jsonl", "-", "--priority", "4", stdin="1\n2\n")
    groups = {group.group_id: (group.messages, group.priority) for group in store.transport("t").groups()}
    assert groups["dotted"] == (1, 0)
    assert groups["fixed"] == (2, 4)


def test_key_by_makes_a_repeated_load_harmless(cli: Cli, store: rota.Store) -> None:
    lines = '{"id": 1}\n{"id": 2}\n'
    first = cli.ok("enqueue", "q", "--jsonl", "-", "--key-by", "id", "--json", stdin=lines).json
    again = cli.ok("enqueue", "q", "--jsonl", "-", "--key-by", "id", "--json", stdin=lines).json
    assert first["ids"] == again["ids"] == [1, 2]
    assert len(payloads(store, "q")) == 2


def test_a_file_that_is_not_there(cli: Cli) -> None:
    result = cli("enqueue", "q", "--jsonl", "/nowhere/at/all")
    assert result.code == exits.NOT_FOUND
    assert "/nowhere/at/all" in result.err


def test_options_of_a_transport_are_its_own(cli: Cli) -> None:
    cli.ok("publish", "t", "g", "1", "--max-deliveries", "2", "--poison", "hold", "--backoff-base", "1")
    conflict = cli("publish", "t", "g", "1", "--max-deliveries", "3")
    assert conflict.code == exits.USAGE
    assert "max_deliveries" in conflict.err
