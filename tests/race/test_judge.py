"""The judge itself: a clean history passes, and every kind of planted fault is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .judge import Verdict, judge
from .log import Log, read

LEASE = 100


class Script:
    """A history written by hand, on a clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000
        self.records: list[dict[str, Any]] = []
        self._numbers = 0

    def call(self, op: str, *, took: int = 2, answer: dict[str, Any] | None, by: str = "a", **facts: Any) -> None:
        self._numbers += 1
        mark = {"by": by, "n": self._numbers}
        self.records.append({"at": self.now, **mark, "phase": "invoke", "op": op, **facts})
        self.now += took
        if answer is not None:
            self.records.append({"at": self.now, **mark, "phase": answer.pop("phase", "ok"), **answer})
        self.now += 1

    def put(self, value: str, id: int, *, scope: str = "g", kind: str = "message", **more: Any) -> None:
        self.call("put", kind=kind, scope=scope, value=value, answer=more.pop("answer", {"id": id}), **more)

    def claim(
        self, value: str, id: int, token: int, *, scope: str = "g", kind: str = "message", count: int = 1, by: str = "a"
    ) -> None:
        got = {"kind": kind, "scope": scope, "id": id, "value": value, "token": token, "count": count}
        self.call("claim", answer={"got": [{**got, "since": self.now + 1, "until": self.now + 1 + LEASE}]}, by=by)

    def settle(
        self, verb: str, id: int, token: int, result: bool | None = True, *, kind: str = "message", by: str = "a"
    ) -> None:
        answer = None if result is None else {"result": result}
        self.call("settle", verb=verb, kind=kind, id=id, token=token, answer=answer, by=by)

    def judge(self, **end: Any) -> Verdict:
        return judge(self.records, **end)


@pytest.fixture
def script() -> Script:
    return Script()


def kinds(verdict: Verdict) -> set[str]:
    return set(verdict.faults())


def test_judge_passes_a_clean_history(script: Script) -> None:
    script.put("A", 1)
    script.put("B", 2)
    script.put("J", 3, kind="job", scope="q")
    script.put("K", 4, kind="job", scope="q")
    script.claim("A", 1, 10)
    script.settle("retry", 1, 10)
    script.claim("A", 1, 11, count=2, by="b")
    script.now += LEASE + 5
    script.claim("A", 1, 12, count=3, by="b")
    script.settle("ack", 1, 11, False)
    script.call("extend", kind="message", id=1, token=12, answer={"until": script.now + 2 * LEASE})
    script.settle("release", 1, 12)
    script.claim("A", 1, 13, count=3)
    script.settle("ack", 1, 13)
    script.claim("J", 3, 14, kind="job")
    script.settle("ack", 3, 14, kind="job")
    script.claim("B", 2, 15)
    script.settle("fail", 2, 15)
    script.call("cancel", id=4, answer={"result": True})
    verdict = script.judge(dead=[("B", script.now - 5)])
    assert verdict.faults() == {}
    assert verdict.figures["claims"] == 6
    assert verdict.figures["explained duplicates"] == 3


def test_judge_passes_what_a_kill_leaves_unknown(script: Script) -> None:
    script.put("A", 1, answer=None)
    script.put("B", 2)
    script.put("never stored", 3, answer=None)
    script.call("claim", answer=None, by="killed")
    script.now += LEASE
    script.claim("A", 1, 11, count=2)
    script.settle("ack", 1, 11, None)
    script.claim("B", 2, 12)
    script.settle("ack", 2, 12)
    verdict = script.judge()
    assert verdict.faults() == {}
    assert verdict.figures["unknown"] == 4


def test_judge_tells_job_ids_from_seqs(script: Script) -> None:
    script.put("A", 1)
    script.put("J", 1, kind="job", scope="q")
    script.claim("A", 1, 10)
    script.call("cancel", id=1, answer={"result": True})
    script.settle("ack", 1, 10)
    assert script.judge().faults() == {}


def test_judge_catches_a_lost_message(script: Script) -> None:
    script.put("A", 1)
    script.put("B", 2)
    script.claim("A", 1, 10)
    script.settle("ack", 1, 10)
    assert kinds(script.judge()) == {"lost"}


def test_judge_catches_a_failed_item_without_letter(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("fail", 1, 10)
    assert kinds(script.judge()) == {"lost"}


def test_judge_catches_something_nobody_put(script: Script) -> None:
    script.claim("ghost", 1, 10)
    assert kinds(script.judge()) == {"unexpected"}


def test_judge_catches_a_put_that_failed_and_is_there(script: Script) -> None:
    script.put("A", 1, answer={"phase": "fail", "error": "EngineBusy()"})
    assert kinds(script.judge(rest=["A"])) == {"unexpected", "stranded"}


@pytest.mark.parametrize("kind", ["message", "job"])
def test_judge_catches_two_valid_leases(script: Script, kind: str) -> None:
    script.put("A", 1, kind=kind)
    script.claim("A", 1, 10, kind=kind)
    script.claim("A", 1, 11, kind=kind, by="b", count=2)
    script.settle("ack", 1, 11, kind=kind)
    assert {"overlapping", "unexplained"} == kinds(script.judge())


def test_judge_catches_two_messages_of_one_group_at_once(script: Script) -> None:
    script.put("A", 1)
    script.put("B", 2)
    script.claim("A", 1, 10)
    script.claim("B", 2, 11, by="b")
    script.settle("ack", 1, 10)
    script.settle("ack", 2, 11)
    found = kinds(script.judge())
    assert {"overlapping", "inverted", "stale"} == found


def test_judge_allows_a_lease_right_after_the_settlement_began(script: Script) -> None:
    script.put("A", 1)
    script.put("B", 2)
    script.claim("A", 1, 10)
    script.settle("ack", 1, 10, None)
    script.now -= 2
    script.claim("B", 2, 11, by="b")
    script.settle("ack", 2, 11)
    assert kinds(script.judge()) == set()


def test_judge_catches_order_turned_round(script: Script) -> None:
    script.put("A", 1)
    script.put("B", 2)
    for value, seq, token in (("B", 2, 10), ("A", 1, 11)):
        script.claim(value, seq, token)
        script.settle("ack", seq, token)
    assert kinds(script.judge()) == {"inverted"}


def test_judge_catches_seqs_against_the_order_of_publishing(script: Script) -> None:
    script.put("A", 2)
    script.put("B", 1)
    for value, seq, token in (("B", 1, 10), ("A", 2, 11)):
        script.claim(value, seq, token)
        script.settle("ack", seq, token)
    assert kinds(script.judge()) == {"inverted"}


@pytest.mark.parametrize("verb", ["ack", "fail", "retry", "release"])
def test_judge_catches_a_stale_settlement(script: Script, verb: str) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.now += LEASE + 1
    script.claim("A", 1, 11, count=2, by="b")
    script.settle(verb, 1, 10)
    assert "stale" in kinds(script.judge(dead=[("A", script.now)] if verb == "fail" else [], rest=[]))


def test_judge_catches_a_settlement_after_the_first(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("retry", 1, 10)
    script.settle("ack", 1, 10)
    assert kinds(script.judge()) == {"stale"}


def test_judge_catches_a_job_settled_after_its_deadline_but_not_a_message(script: Script) -> None:
    script.put("A", 1)
    script.put("J", 2, kind="job")
    script.claim("A", 1, 10)
    script.claim("J", 2, 11, kind="job")
    script.now += LEASE + 1
    script.settle("ack", 1, 10)
    assert kinds(script.judge(rest=["J"])) == {"stranded"}
    script.settle("ack", 2, 11, kind="job")
    assert kinds(script.judge()) == {"stale"}


def test_judge_catches_a_late_renewal(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.now += LEASE + 1
    script.call("extend", kind="message", id=1, token=10, answer={"until": script.now + LEASE})
    script.settle("ack", 1, 10)
    assert kinds(script.judge()) == {"stale"}


def test_judge_catches_a_settlement_of_a_cancelled_job(script: Script) -> None:
    script.put("J", 1, kind="job")
    script.claim("J", 1, 10, kind="job")
    script.call("cancel", id=1, answer={"result": True})
    script.settle("retry", 1, 10, kind="job")
    assert kinds(script.judge()) == {"stale"}


def test_judge_catches_a_valid_holder_turned_away(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("ack", 1, 10, False)
    assert kinds(script.judge(rest=["A"])) == {"refused", "stranded"}


def test_judge_catches_two_ends(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("ack", 1, 10)
    assert kinds(script.judge(dead=[("A", script.now)])) == {"revived"}
    assert kinds(script.judge(rest=["A"])) == {"revived", "stranded"}


def test_judge_catches_two_letters_of_one_item(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("fail", 1, 10)
    assert kinds(script.judge(dead=[("A", script.now), ("A", script.now)])) == {"revived"}


def test_judge_catches_delivery_after_the_end(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("ack", 1, 10)
    script.now += LEASE
    script.claim("A", 1, 11, count=2)
    assert "unexplained" in kinds(script.judge())


def test_judge_catches_a_token_that_goes_back(script: Script) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("release", 1, 10)
    script.claim("A", 1, 9)
    script.settle("ack", 1, 9)
    assert "regressed" in kinds(script.judge())


def test_judge_catches_a_token_used_twice(script: Script) -> None:
    script.put("A", 1, scope="g")
    script.put("B", 2, scope="h")
    script.claim("A", 1, 10, scope="g")
    script.claim("B", 2, 10, scope="h")
    script.settle("ack", 1, 10)
    script.settle("ack", 2, 10)
    assert kinds(script.judge()) == {"regressed"}


@pytest.mark.parametrize("count", [1, 3])
def test_judge_catches_a_counter_that_drifts(script: Script, count: int) -> None:
    script.put("A", 1)
    script.claim("A", 1, 10)
    script.settle("retry", 1, 10)
    script.claim("A", 1, 11, count=count)
    script.settle("ack", 1, 11)
    assert kinds(script.judge()) == {"miscounted"}


def test_a_line_cut_by_a_kill_is_no_line(tmp_path: Path) -> None:
    log = Log("a", tmp_path / "a.log")
    number = log.invoke("put", value="A")
    log.ok(number, id=1)
    whole = (tmp_path / "a.log").read_bytes()
    (tmp_path / "a.log").write_bytes(whole + json.dumps({"at": 1}).encode())
    assert [record["phase"] for record in read([tmp_path / "a.log"])] == ["invoke", "ok"]
