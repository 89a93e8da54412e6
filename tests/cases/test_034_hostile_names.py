"""Names are data (pgmq/pgmq 295 and PR 593, NikolayS/PgQue 109)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing.tck.base import Started

NAMES = [
    "MyQueue",
    "myqueue",
    "my queue",
    "my queue ",
    " my queue",
    "it's",
    'say "hi"',
    "`tick`",
    "[bracket]",
    "a;b",
    "x'; DROP TABLE jobs; --",
    'x"; DROP TABLE jobs; --',
    "/* comment */",
    "-- comment",
    "100%",
    "%s",
    "%(name)s",
    "{0}",
    "{name}",
    "?1",
    ":name",
    "$1",
    "@p",
    "a_b",
    "a%b",
    "a*b",
    "a?b",
    "\\",
    "\\x00",
    "a/b",
    "../../etc/passwd",
    "NULL",
    "null",
    "0",
    "00",
    "1e3",
    "x" * 63 + "one",
    "x" * 63 + "two",
    "x" * 254 + "y",
    "x" * 254 + "z",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "ß",
    "ss",
    "İ",
    "i",
    "\U0001f600",
    "\U0001f600\U0001f3fd",
    "\u200b",
    "\u00a0",
    "\ufffd",
    "\uffff",
    "q:a",
    "t:a",
    "queue:a",
    "",
]
GOOD = [name for name in NAMES if name]


def test_names_are_all_different() -> None:
    """What follows counts on it."""
    assert len(set(NAMES)) == len(NAMES)


def test_queues_of_different_names_share_nothing(plain: Any) -> None:
    """Jobs, keys, suspensions and letters stay in their own queue."""
    for number, name in enumerate(GOOD):
        assert plain.queue(name).enqueue(number, key="same key") == number + 1
    assert plain.queues() == sorted(GOOD)
    for number, name in enumerate(GOOD):
        queue = plain.queue(name)
        assert [job.payload for job in queue.claim_batch(name, 9)] == [number]
        assert queue.suspend()
        assert queue.stats().processing == 1
        assert queue.ack_batch([number + 1], name) == 1
        assert queue.resume()
    assert all(plain.queue(name).stats().processing == 0 for name in GOOD)


def test_groups_of_different_names_share_nothing(plain: Any) -> None:
    """One lease each, listed under their own names in code point order."""
    transport = plain.transport("t")
    transport.publish_many([(name, [number, part]) for part in (0, 1) for number, name in enumerate(GOOD)])
    leases = transport.claim_batch("w", 1_000)
    assert [lease.group_id for lease in leases] == GOOD
    assert [lease.event for lease in leases] == [[number, 0] for number in range(len(GOOD))]
    assert [group.group_id for group in transport.groups(limit=1_000)] == sorted(GOOD)
    paged = [page.group_id for page in _pages(transport)]
    assert paged == sorted(GOOD)
    assert transport.suspend(GOOD[0])
    assert transport.ack_batch(leases) == len(GOOD)
    assert len(transport.claim_batch("w", 1_000)) == len(GOOD) - 1


def _pages(transport: Any) -> Any:
    after = None
    while page := transport.groups(limit=3, after=after):
        yield from page
        after = page[-1].group_id


def test_transports_of_different_names_share_nothing(plain: Any) -> None:
    """Nor do their options."""
    for number, name in enumerate(GOOD):
        plain.transport(name, max_deliveries=number + 1).publish("g", number)
    assert plain.transports() == sorted(GOOD)
    for number, name in enumerate(GOOD):
        lease = plain.transport(name).claim(name)
        assert (lease.event, lease.worker_id) == (number, name)
        assert lease.ack()
        with pytest.raises(ValueError, match="max_deliveries"):
            plain.transport(name, max_deliveries=999)


def test_the_right_waiter_wakes(url: str) -> None:
    """A waiting claim is woken by a put under its own name, not by one under a similar one."""
    with rota.open(url) as store:
        for one, other in itertools.pairwise(GOOD[:12]):
            waiting = Started(store.queue(one).claim_one, "w", wait=20)
            store.queue(other).enqueue("other")
            store.queue(one).enqueue("mine")
            assert waiting.result().payload == "mine"
            assert store.queue(other).purge("pending") == 1


def test_channels_are_told_apart(plain: Any) -> None:
    """``notify`` reaches exactly the listeners of its channel."""
    listeners = [plain.listen(name, timeout=5) for name in GOOD]
    for number, name in enumerate(GOOD):
        plain.notify(name, str(number))
    for number, listener in enumerate(listeners):
        assert next(listener) == str(number)
        listener.close()


@pytest.mark.parametrize("name", ["", "x" * 256, "x" * 300, "\U0001f600" * 256, "a\nb", "a\0", "\x1b[31m"], ids=ascii)
def test_what_is_no_name_is_refused_everywhere(store: Any, name: str) -> None:
    """With one error, before anything is stored."""
    queue, transport = store.queue("q"), store.transport("t")
    for call in (
        lambda: store.queue(name),
        lambda: store.transport(name),
        lambda: transport.publish(name, 1),
        lambda: transport.claim(name),
        lambda: queue.claim_one(name),
        lambda: queue.enqueue(1, key=name),
        lambda: store.notify(name),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
    assert queue.jobs() == []
    assert transport.groups() == []
    for wrong in (None, 5, b"bytes", ["list"]):
        with pytest.raises(TypeError):
            store.queue(wrong)


@pytest.mark.parametrize(
    "file", ["it's.db", "100%.db", "a b.db", "é.db", "a;b.db", "a#b.db", "%20.db", "\U0001f600.db"]
)
def test_file_names_are_data_too(tmp_path: Path, file: str) -> None:
    """The very file that was named is used."""
    path = tmp_path / file
    with rota.open(f"sqlite:///{path}") as store:
        store.queue("q").enqueue("work")
    assert path.exists()
    with rota.open(f"sqlite:///{path}", create=False) as store:
        assert store.queue("q").claim_one("w").payload == "work"


@pytest.mark.parametrize("name", [name for name in GOOD if name.isprintable()][::9])
def test_command_line_takes_them_as_they_are(sqlite_file: Path, name: str) -> None:
    """Enqueue, list and cancel under a hostile name; a second queue of a similar name is not touched."""
    env = {**os.environ, "ROTA_URL": f"sqlite:///{sqlite_file}", "PYTHONUTF8": "1"}

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "rota", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with rota.open(env["ROTA_URL"]) as store:
        other = store.queue(name + "x" if len(name) < 255 else name[:-1]).enqueue("other")
        job_id = store.queue(name).enqueue("work")
    listed = run("jobs", f"queue:{name}", "--json")
    assert str(job_id) in json.dumps(listed)
    run("cancel", f"queue:{name}", str(job_id), "--json", "--yes")
    with rota.open(env["ROTA_URL"]) as store:
        assert store.queue(name).jobs() == []
        assert [job.id for job in store.queue(name + "x" if len(name) < 255 else name[:-1]).jobs()] == [other]
