"""A history of operations put together from the lines of all actors, for the judge."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .log import Record

# For a group one message at a time, so leases are compared within the group; a job only with itself.
Scope = tuple[str, str | int]

TERMINAL = frozenset({"ack", "fail"})
NEVER = math.inf


@dataclass
class Put:
    """One publish or enqueue. ``failed``: it raised, so nothing may be stored."""

    scope: str
    value: str
    kind: str
    invoked: int
    done: float = NEVER
    id: int | None = None
    failed: bool = False


@dataclass
class Settlement:
    """A verb on a claim, or a cancel. ``result`` None: unknown, or the caller was killed meanwhile."""

    verb: str
    invoked: int
    done: float = NEVER
    result: bool | None = None
    until: int | None = None
    failed: bool = False

    @property
    def may_have_worked(self) -> bool:
        return self.result is not False and not self.failed


@dataclass
class Claim:
    """One lease that was handed out and what was done with it.

    ``since`` is what the claim took for now. Where it reads the clock at its start rather than under its locks (C7) it
    took effect somewhere between then and ``latest``, when its caller had it.
    """

    scope: Scope
    id: int
    value: str
    token: int
    since: int
    until: int
    count: int
    by: str
    latest: int
    settlements: list[Settlement] = field(default_factory=list)
    extensions: list[Settlement] = field(default_factory=list)

    def holds_until(self, before: float = NEVER) -> int:
        """Its deadline as last set by an extension known to have worked and called earlier than ``before``."""
        known = [one for one in self.extensions if one.until is not None and one.invoked < before]
        return max(known, key=lambda one: one.done).until or self.until if known else self.until

    def __str__(self) -> str:
        return f"{self.scope} item {self.id} token {self.token} by {self.by} [{self.since}, {self.holds_until()}]"


@dataclass
class History:
    """Everything that is known."""

    puts: list[Put] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    cancels: dict[int, list[Settlement]] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    unknown_claims: int = 0
    unknown: int = 0
    failed: int = 0


def build(records: Iterable[Record]) -> History:
    """Pair the lines of each operation and hang settlements on their claims."""
    answers: dict[tuple[str, int], Record] = {}
    invoked: list[Record] = []
    for record in records:
        if record["phase"] == "invoke":
            invoked.append(record)
        elif record["phase"] != "unknown":
            # One of unknown outcome is like one whose caller was killed: it may yet take effect.
            answers[record["by"], record["n"]] = record
    history = History()
    held: dict[tuple[str, int, int], Claim] = {}
    later: list[tuple[Record, Record | None]] = []
    for record in sorted(invoked, key=lambda one: one["at"]):
        answer = answers.get((record["by"], record["n"]))
        history.unknown += answer is None
        history.failed += answer is not None and answer["phase"] == "fail"
        if record["op"] == "put":
            history.puts.append(_put(record, answer))
        elif record["op"] == "claim":
            history.unknown_claims += answer is None
            for got in (answer or {}).get("got", ()):
                claim = _claim(record, got, (answer or record)["at"])
                history.claims.append(claim)
                held[got["kind"], claim.id, claim.token] = claim
        else:
            later.append((record, answer))
    for record, answer in later:
        settlement = _settlement(record, answer)
        if record["op"] == "cancel":
            history.cancels.setdefault(record["id"], []).append(settlement)
            continue
        owner = held.get((record["kind"], record["id"], record["token"]))
        if owner is None:
            history.orphans.append(f"{record['by']} settles {record['kind']} {record['id']}, which nobody claimed")
        else:
            (owner.extensions if record["op"] == "extend" else owner.settlements).append(settlement)
    return history


def _put(record: Record, answer: Record | None) -> Put:
    put = Put(record["scope"], record["value"], record["kind"], record["at"])
    if answer is not None:
        put.done = answer["at"]
        put.failed = answer["phase"] == "fail"
        put.id = answer.get("id")
    return put


def _claim(record: Record, got: dict[str, Any], answered: int) -> Claim:
    scope: Scope = ("group", got["scope"]) if got["kind"] == "message" else ("job", got["id"])
    since = got["since"]
    latest = since if got.get("exact", True) else max(since, answered)
    return Claim(scope, got["id"], got["value"], got["token"], since, got["until"], got["count"], record["by"], latest)


def _settlement(record: Record, answer: Record | None) -> Settlement:
    settlement = Settlement(record.get("verb", record["op"]), record["at"])
    if answer is not None:
        settlement.done = answer["at"]
        settlement.failed = answer["phase"] == "fail"
        settlement.result = answer.get("result")
        settlement.until = answer.get("until")
        if record["op"] == "extend" and not settlement.failed:
            settlement.result = settlement.until is not None
    return settlement
