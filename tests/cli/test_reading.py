"""The commands that look."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

import rota
from rota.cli import exits, main
from rota.cli.output import seconds

from .conftest import Cli

BIG = 9007199254740993
READING = [
    ("stats",),
    ("stats", "queue:q"),
    ("groups", "transport:t"),
    ("jobs", "queue:q"),
    ("show", "queue:q", "1"),
    ("explain", "queue:q", "1"),
    ("dead", "queue:q"),
    ("doctor",),
]
CHANGING_WHAT_IS_THERE = [
    ("redrive", "queue:q", "--all", "--yes"),
    ("dead", "queue:q", "--purge", "--all", "--yes"),
    ("purge", "queue:q", "--state", "dead", "--yes"),
    ("cancel", "queue:q", "1"),
    ("resume", "queue:q"),
    ("suspend", "q"),
    ("sweep",),
    ("work", "q", "--", "true"),
]


@pytest.mark.parametrize("words", READING + CHANGING_WHAT_IS_THERE)
def test_no_database_is_made_by_looking(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", f"sqlite:///{tmp_path / 'none.db'}", *words]) == exits.UNAVAILABLE
    assert list(tmp_path.iterdir()) == []
    assert "none.db" in capsys.readouterr().err


def test_stats_of_everything_and_of_what_is_named(cli: Cli, store: rota.Store) -> None:
    assert "nothing in this store" in cli.ok("stats").out
    store.queue("q").enqueue(1)
    store.queue("q").enqueue(1, delay=60)
    store.transport("t").publish_many([("a", 1), ("a", 2), ("b", 3)])
    store.transport("t").claim("w")
    table = cli.ok("stats").out.splitlines()
    assert table[1].split()[:5] == ["q", "2", "0", "0", "0"]
    assert table[4].split()[:8] == ["t", "2", "3", "1", "1", "0", "0", "0"]
    document = cli.ok("stats", "--json").json
    assert document["queues"][0] | {"oldest_ready_age": 0, "next_due_at": 0} == {
        "name": "q",
        "pending": 2,
        "processing": 0,
        "done": 0,
        "dead": 0,
        "capped": [],
        "oldest_ready_age": 0,
        "next_due_at": 0,
        "suspended": False,
    }
    assert cli.ok("stats", "transport:t", "--json").json["queues"] == []
    assert cli.ok("stats", "queue:unknown", "--json").json["queues"][0]["pending"] == 0


def test_every_digit_is_kept(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue({"id": BIG, "huge": 10**40})
    store.transport("t").publish("g", {"id": BIG})
    assert cli.ok("jobs", "q", "--json").json["jobs"][0]["payload"] == {"id": BIG, "huge": 10**40}
    assert cli.ok("show", "q", "1", "--json").json["payload"]["id"] == BIG
    assert cli.ok("show", "t", "g", "--json").json["messages"][0]["event"] == {"id": BIG}
    assert str(BIG) in cli.ok("jobs", "q").out
    assert str(10**40) in cli.ok("show", "q", "1").out


def test_jobs_by_page_and_by_state(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q")
    queue.enqueue_many(range(7))
    first = cli.ok("jobs", "q", "--limit", "3", "--json").json
    assert ([job["id"] for job in first["jobs"]], first["more"]) == ([1, 2, 3], True)
    last = cli.ok("jobs", "q", "--limit", "3", "--after", "6", "--json").json
    assert ([job["id"] for job in last["jobs"]], last["more"]) == ([7], False)
    assert "--after 3" in cli.ok("jobs", "q", "--limit", "3").err
    queue.claim_batch("w", 2)
    assert [job["id"] for job in cli.ok("jobs", "q", "--state", "processing", "--json").json["jobs"]] == [1, 2]
    assert "(no jobs)" in cli.ok("jobs", "q", "--state", "done").out


@pytest.mark.parametrize(
    ("age", "told"), [(0.25, "250 ms"), (100, "100.0 s"), (600, "10.0 min"), (36_000, "10.0 h"), (864_000, "10.0 d")]
)
def test_ages_are_told_in_fitting_units(age: float, told: str) -> None:
    assert seconds(age) == told


def test_the_name_to_go_on_after_is_shown_not_sent(cli: Cli, store: rota.Store) -> None:
    store.transport("t").publish_many([("a\u202eb", 1), ("z", 1)])
    assert cli.ok("groups", "t", "--limit", "1").err.endswith("--after a\\u202eb\n")


def test_jobs_that_go_next(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q")
    queue.enqueue("low")
    queue.enqueue("high", priority=9)
    queue.enqueue("later", delay=60)
    assert [job["payload"] for job in cli.ok("jobs", "q", "--next", "--json").json["jobs"]] == ["high", "low"]
    assert cli("jobs", "q", "--next", "--state", "pending").code == exits.USAGE


def test_groups_by_page_and_by_state(cli: Cli, store: rota.Store) -> None:
    transport = store.transport("t")
    transport.publish_many([(name, 1) for name in "abcde"])
    transport.suspend("c")
    page = cli.ok("groups", "t", "--limit", "2", "--after", "a", "--json").json
    assert [group["group_id"] for group in page["groups"]] == ["b", "c"]
    assert page["more"] is True
    assert "--after c" in cli.ok("groups", "t", "--limit", "2", "--after", "a").err
    suspended = cli.ok("groups", "t", "--state", "suspended", "--json").json["groups"]
    assert [group["group_id"] for group in suspended] == ["c"]


def test_show_and_explain(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue({"n": 1}, delay=60)
    transport = store.transport("t")
    transport.publish("g", "first")
    shown = cli.ok("show", "queue:q", "1").out
    assert re.search(r"^payload +\{\"n\":1\}$", shown, re.MULTILINE)
    assert re.search(r"^enqueued_at +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$", shown, re.MULTILINE)
    assert cli.ok("explain", "q", "1", "--json").json["reason"] == "delayed"
    transport.claim("me")
    explained = cli.ok("explain", "t", "g").out
    assert re.search(r"^reason +leased$", explained, re.MULTILINE)
    assert re.search(r"^worker +me$", explained, re.MULTILINE)
    assert cli("show", "q", "99").code == exits.NOT_FOUND
    assert cli("show", "t", "nogroup").code == exits.NOT_FOUND
    assert cli("explain", "q", "99").code == exits.NOT_FOUND
    assert cli("show", "q", "one").code == exits.USAGE


def test_dead_letters_show_their_errors(cli: Cli, store: rota.Store) -> None:
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue({"n": 1})
    for job in queue.claim_batch("w", 1):
        job.fail("the reason\nof it")
    transport.publish_many([("a", 1), ("b", 2)])
    for lease in transport.claim_batch("w", 2):
        lease.fail(f"bad {lease.group_id}")
    assert "the reason\\nof it" in cli.ok("dead", "queue:q").out
    assert cli.ok("dead", "q", "--json").json["dead_letters"][0]["last_error"] == "the reason\nof it"
    assert "bad a" in cli.ok("dead", "t").out
    only = cli.ok("dead", "t", "--group", "b", "--json").json["dead_letters"]
    assert [letter["last_error"] for letter in only] == ["bad b"]
    assert cli.ok("dead", "t", "--limit", "1", "--json").json["more"] is True
    assert cli("dead", "q", "--group", "a").code == exits.USAGE
    assert cli("dead", "q", "--all").code == exits.USAGE


# -- Addresses -------------------------------------------------------------------------------------------------------


def test_a_bare_name_works_where_it_is_unambiguous(cli: Cli, store: rota.Store) -> None:
    store.queue("only").enqueue(1)
    store.queue("both").enqueue(1)
    store.transport("both").publish("g", 1)
    assert cli.ok("stats", "only", "--json").json["queues"][0]["name"] == "only"
    ambiguous = cli("dead", "both")
    assert ambiguous.code == exits.USAGE
    assert "queue:both" in ambiguous.err
    assert "transport:both" in ambiguous.err
    unknown = cli("dead", "neither")
    assert unknown.code == exits.NOT_FOUND
    assert "'neither'" in unknown.err
    # Here the command says which kind is meant.
    cli.ok("jobs", "both")
    cli.ok("groups", "both")
    assert cli("jobs", "neither").code == exits.NOT_FOUND
    assert cli("jobs", "transport:both").code == exits.USAGE


HOSTILE = [
    'it\'s "quoted"; DROP TABLE jobs; --',
    "/* comment",
    "MyQueue",
    "myqueue",
    "a b",
    "n" * 255,
    "n" * 254 + "m",
    "🦜",
    "100%s {0} %(x)s",
    "é",
    "e\u0301",
    "--json",
    "queue:nested",
    "[red]markup[/red]",
]


def test_hostile_names_are_data(cli: Cli, store: rota.Store) -> None:
    for number, name in enumerate(HOSTILE):
        assert cli.ok("enqueue", f"queue:{name}", str(number)).out == f"{number + 1}\n"
        cli.ok("publish", "t", "--", name, str(number))
    assert cli.ok("stats", "--json").json["queues"] != []
    names = {queue["name"] for queue in cli.ok("stats", "--json").json["queues"]}
    assert names == set(HOSTILE)
    groups = {group["group_id"] for group in cli.ok("groups", "t", "--json").json["groups"]}
    assert groups == set(HOSTILE)
    for number, name in enumerate(HOSTILE):
        jobs = cli.ok("jobs", f"queue:{name}", "--json").json["jobs"]
        assert [job["payload"] for job in jobs] == [number]
        cli.ok("jobs", f"queue:{name}")
    for name in ("", "n" * 256, "a\x1bb"):
        assert cli("enqueue", f"queue:{name}", "1").code == exits.USAGE


def test_nothing_stored_can_act_on_the_terminal(cli: Cli, store: rota.Store) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202eevil\u2028"
    queue = store.queue("q")
    queue.enqueue(nasty, headers={"h": nasty})
    for job in queue.claim_batch("w", 1):
        job.fail(nasty)
    store.transport("t").publish("g\u202e", nasty)
    runs = [("jobs", "q"), ("dead", "q"), ("show", "q", "1"), ("groups", "t"), ("show", "t", "g\u202e")]
    for words in [*runs, *((*words, "--json") for words in runs)]:
        text = cli.ok(*words).out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", text), words
    assert cli.ok("show", "q", "1", "--json").json["payload"] == nasty
    # Errors too: they repeat what was given.
    assert "\x1b" not in cli("dead", "no\x1b[2J").err


class Broken:
    """A codec that stores what is no JSON."""

    def encode(self, obj: object, /) -> str:
        return "{broken"

    def decode(self, text: str, /) -> object:
        return text


def test_a_payload_that_cannot_be_decoded_is_shown_as_such(cli: Cli, store: rota.Store) -> None:
    store.queue("q", codec=Broken()).enqueue(1)
    job = cli.ok("show", "q", "1", "--json").json
    assert job["payload"] is None
    assert "not JSON" in job["payload_error"]
    assert "not JSON" in cli.ok("jobs", "q").out
    # No command can do anything with it, so it becomes a dead letter, whole.
    cli.ok("work", "q", "--drain", "--", "true")
    letter = cli.ok("dead", "q", "--json").json["dead_letters"][0]
    assert "not JSON" in letter["last_error"]


def test_doctor(cli: Cli) -> None:
    facts = cli.ok("doctor", "--json").json
    assert facts["rota"] == rota.__version__
    assert isinstance(facts["warnings"], list)
    assert "rota" in cli.ok("doctor").out
    if cli.url.startswith("sqlite:"):
        assert facts["journal_mode"] == "wal"
        assert facts["durability"] == "full"
        assert facts["sqlite_version"].count(".") == 2
        assert facts["wal_reset_bug"] == any("WAL-reset" in text for text in facts["warnings"])


def raised(*, deep: bool = False, group: bool = False) -> str:
    """The traceback of one exception on top of another."""
    try:
        try:
            raise LookupError("the first one " * 40)
        except LookupError:
            if group:
                raise ExceptionGroup("several", [ValueError("a"), ValueError("b")]) from None
            raise ValueError("the last one\nin two lines\nstate  done") from None if deep else KeyError("cause")
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        if deep:
            cut = text.index("the_cut") if "the_cut" in text else len(text) // 2
            return f"{text[:60]}\n[… 9 characters left out …]\n{text[cut - 20 :]}"
        return text


def test_a_traceback_shows_its_last_line_in_tables_and_all_of_it_alone(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q", max_attempts=9, backoff_base=600)
    queue.enqueue_many(range(4))
    texts = [raised(), raised(group=True), "told so", raised(deep=True)]
    for job, text in zip(queue.claim_batch("w", 4), texts, strict=True):
        assert job.retry(text)
    rows = cli.ok("jobs", "queue:q").out.splitlines()[1:]
    expected = (r"ValueError: the last one\nin two lines\nstate  done", "ExceptionGroup: several", "told so")
    for row, told in zip(rows, expected, strict=False):
        assert told in row
        assert "Traceback" not in row
    assert r"ValueError: the last one\nin two" in rows[3]
    shown = cli.ok("show", "queue:q", "1").out.splitlines()
    first = next(number for number, line in enumerate(shown) if line.startswith("last_error"))
    column = shown[first].index("KeyError: 'cause'")
    lines = raised().rstrip("\n").split("\n")
    assert [line[column:] for line in shown[first : first + len(lines)]] == [line.rstrip() for line in lines]
    assert all(line[:column].isspace() for line in shown[first + 1 : first + len(lines)] if line)
    assert cli.ok("show", "queue:q", "1", "--json").json["last_error"].rstrip() == texts[0].rstrip()
    queue.enqueue("dies")
    (job,) = queue.claim_batch("w", 1)
    assert job.fail(texts[0])
    out = cli.ok("dead", "queue:q").out
    assert r"ValueError: the last one\nin two lines" in out
    assert "Traceback" not in out


def test_the_workers_own_transport_is_listed_only_when_it_is_named(cli: Cli, store: rota.Store) -> None:
    store.transport("rota.housekeeping").publish("queue:mail", None)
    assert "nothing in this store" in cli.ok("stats").out
    store.transport("mine").publish("g", 1)
    assert [one["name"] for one in cli.ok("stats", "--json").json["transports"]] == ["mine"]
    assert "rota.housekeeping" in cli.ok("stats", "transport:rota.housekeeping").out
    assert store.transports() == ["mine", "rota.housekeeping"]
