"""Log events: those in the code are those in the documentation, and none of them shows a payload."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.worker.logs import tell

from .running import Running, until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "worker-operations.md"
ITEM = {"source", "job_id", "job_name", "attempts", "seq", "group_id", "deliveries"}
_ROW = re.compile(
    r"^\| `(?P<event>\w+)` \| (?P<levels>[A-Z, ]+) \| (?P<fields>[^|]+) \|[^|]*\|$",
    re.MULTILINE,
)

Event = dict[str, Any]
Start = Callable[..., Running]


def in_the_code() -> dict[str, Event]:
    """Per event its levels, the fields always there, those sometimes there, and whether it names an item."""
    calls: dict[str, list[tuple[str, set[str], bool]]] = defaultdict(list)
    for path in (ROOT / "src" / "rota").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tell":
                level, event = node.args
                assert isinstance(level, ast.Name), f"{path.name}:{node.lineno}: name the level"
                assert isinstance(event, ast.Constant), f"{path.name}:{node.lineno}: write the event's name out"
                fields = {keyword.arg for keyword in node.keywords if keyword.arg}
                calls[event.value].append((level.id, fields, any(keyword.arg is None for keyword in node.keywords)))
    found: dict[str, Event] = {}
    for event, told in calls.items():
        always = set.intersection(*(fields for _, fields, _ in told))
        found[event] = {
            "levels": {level for level, _, _ in told},
            "always": always,
            "sometimes": set.union(*(fields for _, fields, _ in told)) - always,
            "item": any(item for _, _, item in told),
        }
    return found


def in_the_documentation() -> dict[str, Event]:
    found: dict[str, Event] = {}
    for row in _ROW.finditer(PAGE.read_text(encoding="utf-8")):
        assert row["event"] not in found
        fields = row["fields"].strip().split(", ")
        found[row["event"]] = {
            "levels": set(row["levels"].split(", ")),
            "always": {field.strip("`") for field in fields if field.startswith("`")},
            "sometimes": {field.strip("`()") for field in fields if field.startswith("(")},
            "item": "*item*" in fields,
        }
    return found


def test_the_documentation_has_them_all_and_no_others() -> None:
    code = in_the_code()
    assert len(code) > 20
    assert in_the_documentation() == code


def test_no_field_hides_an_attribute_of_the_record() -> None:
    taken = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event"}
    for event, what in in_the_code().items():
        assert not taken & (what["always"] | what["sometimes"] | ITEM), event


def test_an_event_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    tell(logging.WARNING, "beat_failed", source="queue:q", error="first\nsecond\x1b[2J", long="x" * 10_000)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.isprintable()
    assert len(text) < 500
    assert text.startswith("beat_failed source=queue:q error='first\\nsecond")
    assert (record.__dict__["event"], record.__dict__["error"]) == ("beat_failed", "first\nsecond\x1b[2J")


SECRET = "hunter2-hunter2"


class Refuses:
    """A codec whose errors quote what they refuse."""

    def encode(self, payload: Any) -> str:
        return json.dumps(payload)

    def decode(self, text: str) -> Any:
        value = json.loads(text)
        if isinstance(value, dict) and "bad" in value:
            raise ValueError(f"cannot read {text}")
        return value


def texts(record: logging.LogRecord) -> str:
    trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
    return record.getMessage() + repr(vars(record)) + trace


def test_payloads_are_never_logged(store: rota.Store, running: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Through every outcome a payload, result, header or key may have, at the most talkative level."""
    caplog.set_level(logging.DEBUG)
    worker = rota.Worker(store, grace=0.05)

    @worker.task("q", name="go", codec=Refuses(), timeout=0.2, concurrency=50)
    async def handle(payload: Any) -> Any:
        what = payload["do"]
        if what == "raise":
            raise ValueError(f"cannot do {payload}")
        if what == "fail":
            raise rota.Fail(f"not {payload}")
        if what == "retry":
            raise rota.Retry(delay=1000, reason=f"later {payload}")
        if what == "snooze":
            raise rota.Snooze(1000)
        if what == "result":
            return {1, payload["secret"]}
        if what == "cancel":
            raise asyncio.CancelledError(payload["secret"])
        if what == "sleep":
            await asyncio.sleep(20)
        return payload

    @worker.task("q", name="thread", codec=Refuses())
    def in_thread(payload: Any) -> None:
        raise SystemExit(payload["secret"])

    @worker.transport("t", codec=rota.TypedCodec(int))
    def on_message(event: Any) -> None:
        raise ValueError(f"cannot do {event}")

    queue = store.queue("q", keep_done=60, backoff_base=1000)
    headers = {"secret": SECRET}
    for what in ("raise", "fail", "retry", "snooze", "result", "cancel", "sleep", "ok"):
        queue.enqueue({"do": what, "secret": SECRET}, name="go", headers=headers, key=f"{SECRET}-{what}")
    queue.enqueue({"bad": SECRET}, name="go")
    queue.enqueue({"secret": SECRET}, name="thread")
    queue.enqueue({"secret": SECRET}, name="nobody knows")
    store.transport("t", codec=rota.JsonCodec()).publish("g", SECRET, headers=headers)
    run = running(worker)
    health = worker.health
    until(lambda: health().sources[0].handled == 9 and sum(_settled(health().sources[0])) == 11)
    until(lambda: sum(_settled(health().sources[1])) == 1)
    run.stop()
    told = {record.__dict__["event"] for record in caplog.records if record.name == "rota.worker"}
    assert told >= {
        "handler_failed",
        "handler_released",
        "handler_timed_out",
        "result_dropped",
        "undecodable",
        "unknown_name",
        "worker_started",
        "worker_stopped",
    }
    assert [record.getMessage() for record in caplog.records if SECRET in texts(record)] == []


def _settled(source: rota.SourceHealth) -> tuple[int, int, int, int]:
    return source.acked, source.retried, source.failed, source.released
