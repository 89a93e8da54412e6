"""The commands that change: what they do, and that bulk ones ask."""

from __future__ import annotations

import sys

import pytest

import rota
from rota.cli import exits

from .conftest import Cli


def bury(store: rota.Store, count: int) -> None:
    queue = store.queue("q")
    queue.enqueue_many(range(count))
    for job in queue.claim_batch("w", count):
        job.fail("no")


BULK = [
    ("redrive", "q", "--all"),
    ("redrive", "q", "1", "2"),
    ("dead", "q", "--purge", "--all"),
    ("dead", "q", "--purge", "--older-than", "0"),
    ("purge", "q", "--state", "dead"),
    ("purge", "q", "--state", "pending"),
    ("cancel", "q", "4", "5"),
    ("purge", "t", "--all"),
    ("purge", "t", "--group", "g"),
]


@pytest.mark.parametrize("words", BULK)
def test_bulk_verbs_refuse_without_a_terminal_and_count_when_dry(
    cli: Cli, store: rota.Store, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(store, 3)
    store.queue("q").enqueue_many([1, 2, 3])
    store.transport("t").publish("g", 1)
    before = cli.ok("stats", "--json").json
    refused = cli(*words)
    assert refused.code == exits.USAGE
    assert "--yes" in refused.err
    dry = cli.ok(*words, "--dry-run")
    assert dry.out.startswith("would ")
    assert [value for key, value in cli.ok(*words, "--dry-run", "--json").json.items() if key.startswith("would_")]
    after = cli.ok("stats", "--json").json
    for kind in ("queues", "transports"):
        for one, other in zip(before[kind], after[kind], strict=True):
            assert one | {"oldest_ready_age": 0} == other | {"oldest_ready_age": 0}
    cli.ok(*words, "--yes")
    assert cli.ok("stats", "--json").json != before


@pytest.mark.parametrize(("answer", "code"), [("y\n", exits.OK), ("YES\n", exits.OK), ("n\n", exits.FAILED), ("", 1)])
def test_at_a_terminal_they_ask(
    cli: Cli, store: rota.Store, answer: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(store, 3)
    import io

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    result = cli("redrive", "q", "--all", stdin=answer)
    assert "redrive 3 dead letters of queue:q" in result.err
    assert result.err.rstrip().endswith("[y/N]") or "not confirmed" in result.err
    assert result.code == code
    assert store.queue("q").stats().pending == (3 if code == exits.OK else 0)
    assert sys.stdin.isatty()


def test_redrive_and_purge_of_letters(cli: Cli, store: rota.Store) -> None:
    bury(store, 5)
    queue = store.queue("q")
    assert cli.ok("redrive", "q", "2").out == "redriven 1 dead letter of queue:q\n"
    assert cli.ok("redrive", "q", "3", "4", "99", "--yes", "--json").json == {"redriven": [3, 4]}
    assert cli("redrive", "q", "99").code == exits.NOT_FOUND
    assert cli("redrive", "q").code == exits.USAGE
    assert cli("redrive", "q", "1", "--all").code == exits.USAGE
    assert "'all' is no letter's id, which is a whole number (--all: all)" in cli("redrive", "q", "all").err
    assert [letter.letter_id for letter in queue.dead_letters()] == [1, 5]
    assert cli.ok("dead", "q", "--purge", "--older-than", "1h", "--yes", "--json").json == {"purged": 0}
    assert cli.ok("dead", "q", "--purge", "--id", "5", "--yes").out == "deleted 1 dead letter of queue:q\n"
    assert cli("dead", "q", "--purge", "--id", "5", "--yes").code == exits.NOT_FOUND
    assert cli("dead", "q", "--purge").code == exits.USAGE
    assert cli.ok("dead", "q", "--purge", "--older-than", "0", "--yes", "--json").json == {"purged": 1}
    assert cli.ok("redrive", "q", "--all", "--yes").out == "redriven 0 dead letters of queue:q\n"


def test_redrive_to_the_original_place(cli: Cli, store: rota.Store) -> None:
    transport = store.transport("t")
    seqs = transport.publish_many([("g", 1), ("g", 2)])
    lease = transport.claim("w")
    assert lease is not None
    lease.fail("no")
    cli.ok("redrive", "t", "--all", "--position", "original", "--yes")
    assert [message.seq for message in transport.peek("g")] == seqs


def test_purge(cli: Cli, store: rota.Store) -> None:
    queue, transport = store.queue("q"), store.transport("t")
    queue.enqueue_many(range(4))
    held = queue.claim_one("w")
    assert held is not None
    assert cli.ok("purge", "q", "--state", "pending", "--yes").out == "deleted 3 pending jobs of queue:q\n"
    assert cli.ok("purge", "q", "--state", "processing", "--yes", "--json").json == {"purged": 1}
    assert held.ack() is False
    transport.publish_many([("a", 1), ("a", 2), ("b", 3), ("c", 4)])
    result = cli.ok("purge", "t", "--group", "a", "--group", "b", "--yes").out
    assert result == "deleted 3 messages in 2 groups of transport:t\n"
    assert cli("purge", "t", "--group", "a", "--yes").code == exits.NOT_FOUND
    assert cli.ok("purge", "t", "--all", "--yes", "--json").json == {"purged": 1, "groups": 1}
    for words in (("q",), ("q", "--group", "a"), ("transport:t", "--state", "dead"), ("transport:t",)):
        assert cli("purge", *words, "--yes").code in (exits.USAGE, exits.NOT_FOUND)


def test_cancel(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q")
    queue.enqueue_many(range(4))
    assert cli.ok("cancel", "q", "1").out == "canceled 1 of 1 jobs of queue:q\n"
    missed = cli("cancel", "q", "1", "2", "--yes", "--json")
    assert missed.code == exits.NOT_FOUND
    assert missed.json == {"canceled": [2], "missed": [1]}
    assert cli.ok("cancel", "queue:q", "3", "3").out == "canceled 1 of 1 jobs of queue:q\n"
    assert [job.id for job in queue.jobs()] == [4]


def test_suspend_and_resume(cli: Cli, store: rota.Store) -> None:
    store.queue("q").enqueue(1)
    store.transport("t").publish_many([("a", 1), ("b", 2)])
    assert cli.ok("suspend", "q").out == "suspended queue:q\n"
    assert cli.ok("suspend", "q", "--json").json == {"changed": False}
    assert store.queue("q").claim_one("w") is None
    assert cli.ok("resume", "q").out == "resumed queue:q\n"
    assert cli.ok("resume", "q").out == "queue:q was not suspended\n"
    assert store.queue("q").claim_one("w") is not None
    assert cli.ok("suspend", "t", "--group", "a").out == "suspended group 'a' of transport:t\n"
    lease = store.transport("t").claim("w")
    assert lease is not None
    assert lease.group_id == "b"
    assert cli("suspend", "q", "--group", "a").code == exits.USAGE
    # Before anything is there, by its full address.
    cli.ok("suspend", "queue:future")
    store.queue("future").enqueue(1)
    assert store.queue("future").claim_one("w") is None


def test_sweep(cli: Cli, store: rota.Store) -> None:
    queue = store.queue("q", dead_letter_retention=0)
    queue.enqueue(1, expires=0)
    queue.enqueue(2)
    store.transport("t").publish("g", 1)
    assert cli.ok("sweep", "q", "--dry-run", "--json").json["swept"] == [
        {"address": "queue:q", "would_expire": 1, "would_delete_letters": 0, "would_delete_done": 0}
    ]
    assert queue.stats().pending == 2
    swept = cli.ok("sweep", "--json").json["swept"]
    assert swept[0] == {"address": "queue:q", "expired": 1}
    assert swept[1] == {"address": "transport:t", "letters_deleted": 0}
    assert queue.stats().pending == 1
