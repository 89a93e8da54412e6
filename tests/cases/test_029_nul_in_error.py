"""NUL and broken Unicode in payloads, names and above all in error texts.

Seen in hatchet-dev/hatchet PR 4619 and osbuild/osbuild-composer PR 4779: a job whose error could not be stored could
not be failed either, and was delivered without end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.testing import ManualClock

BYTES = 64 * 1024


class Unspeakable(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS: dict[str, Any] = {
    "nul": "be\0fore",
    "only nul": "\0\0\0",
    "lone surrogate": "bad \ud83d end",
    "surrogate at the cut": "é" * (BYTES // 2 - 1) + "\udcff\U0001f600",
    "four bytes": "\U0001f600" * 3,
    "four bytes at the cut": "x" * (BYTES - 2) + "\U0001f600",
    "5 MB": "e" * 5_000_000,
    "5 MB of nul": "\0" * 5_000_000,
    "empty": "",
    "controls": "".join(map(chr, range(32))) + "\x7f\u2028",
    "exception": ValueError("be\0fore \ud800"),
    "exception without text": Unspeakable(),
    "exception of bytes": UnicodeDecodeError("utf-8", b"\xff\0", 0, 1, "bad"),
    "exit": SystemExit(3),
}
JOB_VERBS: dict[str, Callable[[Any, Any], bool]] = {
    "retry": lambda job, error: job.retry(error, 0),
    "fail": lambda job, error: job.fail(error),
}
LEASE_VERBS: dict[str, Callable[[Any, Any], bool]] = {
    "nack": lambda lease, error: lease.nack(error=error),
    "retry": lambda lease, error: lease.retry(error, 0),
    "fail": lambda lease, error: lease.fail(error),
}


def assert_clean(text: str) -> None:
    assert text
    assert "\0" not in text
    assert len(text.encode()) <= BYTES


@pytest.mark.parametrize("verb", JOB_VERBS)
def test_no_error_text_keeps_a_job_from_its_end(store: Any, verb: str) -> None:
    """Cleaned, cut, and the transition happens; jobs claimed with it are not affected."""
    for name in ERRORS:
        end_job(store.queue(name, max_attempts=2), verb, name)


def end_job(queue: Any, verb: str, name: str) -> None:
    queue.enqueue_many(["before", "bad", "after"])
    for last in (False, True) if verb == "retry" else (True,):
        before, bad, after = queue.claim_batch("w", 3)
        assert JOB_VERBS[verb](bad, ERRORS[name])
        assert before.ack() if last else before.release()
        assert after.ack() if last else after.release()
        record = queue.get_job(bad.id)
        assert record.state == ("dead" if last else "pending")
        if ERRORS[name] != "":
            assert_clean(record.last_error)
    (letter,) = queue.dead_letters()
    assert_clean(letter.last_error)
    assert queue.stats().processing == 0
    assert queue.redrive("all") == [letter.id]
    assert queue.claim_one("w").payload == "bad"


@pytest.mark.parametrize("verb", LEASE_VERBS)
def test_no_error_text_keeps_a_message_from_its_settlement(store: Any, verb: str) -> None:
    """The same in a transport."""
    for name in ERRORS:
        settle_message(store.transport(name), verb, name)


def settle_message(transport: Any, verb: str, name: str) -> None:
    transport.publish_many([("a", 1), ("g", "bad"), ("b", 2)])
    first, bad, second = transport.claim_batch("w", 3)
    assert LEASE_VERBS[verb](bad, ERRORS[name])
    assert first.ack()
    assert second.ack()
    if verb == "fail":
        assert_clean(transport.dead_letters()[0].last_error)
        assert transport.claim("w") is None
    else:
        (message,) = transport.peek("g", 1)
        if ERRORS[name] != "":
            assert_clean(message.last_error)
        assert transport.claim("w").event == "bad"


def test_text_before_and_after_the_bad_character_is_kept(store: Any) -> None:
    """An error is there to be read."""
    queue = store.queue("q")
    for error in ("disk\0full", "disk\ud800full", OSError("disk\0full")):
        job_id = queue.enqueue("work")
        assert queue.claim_one("w").fail(error)
        text = queue.get_job(job_id).last_error
        assert "disk" in text
        assert "full" in text
    queue.enqueue("work")
    job = queue.claim_one("w")
    with pytest.raises(TypeError):
        job.fail(b"bytes")


PAYLOADS = ["be\0fore", {"\0": "\0\0"}, ["\U0001f600", "\u2028"], "é\u0301", "\x7f\x80\ufffe\uffff"]


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_payloads_that_can_be_carried_round_trip(store: Any, payload: Any) -> None:
    """NUL inside strings and keys included, in payloads, results and events."""
    queue, transport = store.queue("q", keep_done=60), store.transport("t")
    job_id = queue.enqueue(payload)
    assert queue.get_job(job_id).payload == payload
    job = queue.claim_one("w")
    assert job.payload == payload
    assert job.ack(payload)
    assert queue.get_job(job_id).result == payload
    transport.publish("g", payload)
    assert transport.claim("w").event == payload


@pytest.mark.parametrize(
    "payload", ["\ud800", {"\udfff": 1}, [["ok", "\ud83d"]], {"a": {"b": ["\ude00\ud83d"]}}], ids=ascii
)
def test_lone_surrogates_in_payloads_are_refused(store: Any, payload: Any) -> None:
    """The same error on every engine; nothing of the batch is stored, nothing of a result either."""
    queue, transport = store.queue("q", keep_done=60), store.transport("t")
    for call in (
        lambda: queue.enqueue(payload),
        lambda: queue.enqueue_many(["fine", payload, "fine"]),
        lambda: transport.publish("g", payload),
        lambda: transport.publish_many([("g", "fine"), ("g", payload)]),
    ):
        with pytest.raises(rota.PayloadError, match="surrogate"):
            call()
    assert queue.jobs() == []
    assert transport.groups() == []
    queue.enqueue("work")
    job = queue.claim_one("w")
    with pytest.raises(rota.PayloadError, match="surrogate"):
        job.ack(payload)
    assert job.ack("fine")


BAD_NAMES = ["a\0b", "\0", "a\ud800", "\udfff", "tab\t", "line\n", "\x7f", "\x85"]


def test_names_with_such_characters_are_refused(store: Any) -> None:
    """Group ids, keys, worker ids, queue and transport names, header names: one rule everywhere."""
    queue, transport = store.queue("q"), store.transport("t")
    calls: list[Callable[[str], Any]] = [
        lambda name: store.queue(name),
        lambda name: store.transport(name),
        lambda name: queue.enqueue("work", key=name),
        lambda name: queue.enqueue("work", name=name),
        lambda name: queue.enqueue("work", headers={name: "x"}),
        lambda name: queue.claim_one(name),
        lambda name: transport.publish(name, 1),
        lambda name: transport.publish_many([("g", 1), (name, 1)]),
        lambda name: transport.claim(name),
        lambda name: transport.suspend(name),
        lambda name: transport.peek(name, 1),
    ]
    for call, name in itertools.product(calls, BAD_NAMES):
        with pytest.raises(ValueError, match="control characters or lone surrogates"):
            call(name)
    assert queue.jobs() == []
    assert transport.groups() == []


def test_four_byte_names_work(store: Any, clock: ManualClock) -> None:
    """Everything else is a name."""
    queue, transport = store.queue("\U0001f600"), store.transport("\U0001f680")
    job_id = queue.enqueue("work", key="\U0001f511", name="\U00010348", headers={"\U0001f600": "\U0001f600"})
    assert queue.enqueue("work", key="\U0001f511") == job_id
    job = queue.claim_one("\U0001f9d1")
    assert (job.worker_id, job.name, job.headers) == ("\U0001f9d1", "\U00010348", {"\U0001f600": "\U0001f600"})
    transport.publish("\U0001f468\u200d\U0001f469", 1)
    assert transport.claim("w").group_id == "\U0001f468\u200d\U0001f469"
