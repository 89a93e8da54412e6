"""The judge of a race: what a history shows that the contract forbids, in Jepsen's words.

It knows nothing of engines. Every fault it names is certain: an operation took effect somewhere between its two lines,
so it only counts what is wrong wherever in between that was. All instants are of one clock, the store's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from .history import NEVER, TERMINAL, Claim, History, Scope, Settlement, build
from .log import Record


@dataclass
class Verdict:
    """Faults by kind, each a sentence; and figures of the run."""

    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    inverted: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stranded: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    revived: list[str] = field(default_factory=list)
    regressed: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """How many of each kind there are."""
        return {one.name: len(getattr(self, one.name)) for one in fields(self) if one.name != "figures"}

    def faults(self) -> dict[str, list[str]]:
        """The kinds that occurred, at most five sentences each."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "figures"}
        return {kind: sentences[:5] for kind, sentences in found.items() if sentences}


def judge(records: Iterable[Record], *, rest: Iterable[str] = (), dead: Iterable[tuple[str, int]] = ()) -> Verdict:
    """Judge a history after the drain: ``rest`` are the values still stored, ``dead`` the letters with ``died_at``."""
    history = build(records)
    letters = list(dead)
    verdict = Verdict(stranded=[f"{value} is still stored after the drain" for value in rest])
    by_scope: dict[Scope, list[Claim]] = defaultdict(list)
    by_value: dict[str, list[Claim]] = defaultdict(list)
    # Tokens are drawn under the locks, so where instants are not exact they tell the order within a group or job.
    exact = all(one.since == one.latest for one in history.claims)
    for claim in sorted(history.claims, key=lambda one: (one.since if exact else 0, one.token)):
        by_scope[claim.scope].append(claim)
        by_value[claim.value].append(claim)
    verdict.unexpected += history.orphans
    _ends(history, by_value, set(rest), letters, verdict)
    for claims in by_scope.values():
        _overlaps(claims, history, verdict)
        _fences(claims, history, verdict)
    for claims in by_value.values():
        _deliveries(claims, history, verdict)
    _tokens(history, verdict)
    _order(history, by_value, dict(letters), verdict)
    verdict.figures |= {
        "puts": len(history.puts),
        "claims": len(history.claims),
        "settled": sum(bool(one.result) for claim in history.claims for one in claim.settlements),
        "unknown": history.unknown,
        "failed": history.failed,
        "dead": len(letters),
    }
    return verdict


# -- What became of each item ----------------------------------------------------------------------------------------


def _ends(
    history: History,
    by_value: Mapping[str, list[Claim]],
    rest: set[str],
    letters: list[tuple[str, int]],
    verdict: Verdict,
) -> None:
    known = {put.value: put for put in history.puts}
    dead = Counter(value for value, _ in letters)
    verdict.revived += [f"{value} has {count} dead letters" for value, count in dead.items() if count > 1]
    for value in {*by_value, *rest, *dead}:
        if value not in known:
            verdict.unexpected.append(f"{value} was never put")
        elif known[value].failed:
            verdict.unexpected.append(f"{value} is there although its put failed")
    for put in history.puts:
        # Seqs and job ids are counted apart, so a cancelled id says nothing of messages.
        job_id = put.id if put.kind == "job" else None
        certain, possible = _terminal(put.value, job_id, history, by_value)
        if put.done < NEVER and not put.failed and not possible and put.value not in rest and put.value not in dead:
            verdict.lost.append(f"{put.value} was stored at {put.done:.0f} and nobody ended it")
        buried = sum(one.verb == "fail" for one in certain)
        if len(certain) > 1:
            verdict.revived.append(f"{put.value} ended {len(certain)} times: {[one.verb for one in certain]}")
        if certain and not buried and (put.value in rest or put.value in dead):
            verdict.revived.append(f"{put.value} ended by {certain[0].verb} and is still there")
        if buried and put.value not in dead:
            verdict.lost.append(f"{put.value} was failed and has no dead letter")


def _terminal(
    value: str, job_id: int | None, history: History, by_value: Mapping[str, list[Claim]]
) -> tuple[list[Settlement], list[Settlement]]:
    """The settlements that ended this item for certain, and those that may have."""
    ends = [one for claim in by_value.get(value, ()) for one in claim.settlements if one.verb in TERMINAL]
    ids = {claim.id for claim in by_value.get(value, ()) if claim.scope[0] == "job"} | {job_id}
    ends += [one for number in ids if number is not None for one in history.cancels.get(number, ())]
    return [one for one in ends if one.result], [one for one in ends if one.may_have_worked]


# -- Leases ----------------------------------------------------------------------------------------------------------


def _overlaps(claims: list[Claim], history: History, verdict: Verdict) -> None:
    """Two leases of one group or job valid at one instant."""
    open_ones: list[Claim] = []
    for claim in claims:
        still: list[Claim] = []
        for earlier in open_ones:
            if claim.since > earlier.holds_until() or _ended(earlier, history) <= claim.latest:
                continue
            verdict.overlapping.append(f"{claim} was given out while {earlier} held it")
            still.append(earlier)
        # One is all there should be; where there are many more, a few of them tell as much.
        open_ones = [*still[-20:], claim]


def _ended(claim: Claim, history: History) -> float:
    """The first instant at which the claim may have ended by a settlement or cancel."""
    ends = [one.invoked for one in claim.settlements if one.may_have_worked]
    return min(ends + _cancelled(claim, history), default=NEVER)


def _cancelled(claim: Claim, history: History) -> list[float]:
    if claim.scope[0] != "job":
        return []
    return [one.invoked for one in history.cancels.get(claim.id, ()) if one.may_have_worked]


def _fences(claims: list[Claim], history: History, verdict: Verdict) -> None:
    """Settlements accepted from a lost claim, or refused to a valid one."""
    for claim, newer, newer_latest in _with_newer(claims):
        spent: float = NEVER
        for one in sorted(claim.settlements + claim.extensions, key=lambda each: each.invoked):
            extending = one in claim.extensions
            limit = claim.holds_until(before=one.invoked)
            if one.result:
                if newer_latest < one.invoked:
                    verdict.stale.append(
                        f"{one.verb} of {claim} was accepted although it was given out at {newer_latest}"
                    )
                if spent < one.invoked:
                    verdict.stale.append(f"{one.verb} of {claim} was accepted although it was settled before")
                if (extending or claim.scope[0] == "job") and limit < one.invoked:
                    verdict.stale.append(f"{one.verb} of {claim} was accepted at {one.invoked}, after its deadline")
                if any(cancel.result and cancel.done < one.invoked for cancel in _cancels(claim, history)):
                    verdict.stale.append(f"{one.verb} of {claim} was accepted although the job was cancelled")
            elif one.result is False and _was_valid(claim, one, limit, newer, spent, history):
                verdict.refused.append(f"{one.verb} of {claim} was refused although it was valid")
            if not extending and one.may_have_worked:
                spent = min(spent, one.done if one.result else one.invoked)


def _was_valid(claim: Claim, one: Settlement, limit: int, newer: float, spent: float, history: History) -> bool:
    """Whether the claim was valid for certain all the time this settlement took."""
    undisturbed = all(cancel > one.done for cancel in _cancelled(claim, history))
    return one.done <= limit and newer > one.done and spent == NEVER and undisturbed


def _with_newer(claims: list[Claim]) -> list[tuple[Claim, float, float]]:
    """Each claim with the instants between which its group or job was first given out under a higher token."""
    newer: float = NEVER
    newer_latest: float = NEVER
    found: list[tuple[Claim, float, float]] = []
    for claim in sorted(claims, key=lambda one: one.token, reverse=True):
        found.append((claim, newer, newer_latest))
        newer = min(newer, claim.since)
        newer_latest = min(newer_latest, claim.latest)
    return found


def _cancels(claim: Claim, history: History) -> list[Settlement]:
    return history.cancels.get(claim.id, []) if claim.scope[0] == "job" else []


def _tokens(history: History, verdict: Verdict) -> None:
    """A token that was used twice, or that is smaller than that of an earlier claim of its group or job."""
    for kind in ("group", "job"):
        for token, times in Counter(one.token for one in history.claims if one.scope[0] == kind).items():
            if times > 1:
                verdict.regressed.append(f"{kind}: token {token} was given out {times} times")
    latest: dict[Scope, Claim] = {}
    for claim in sorted(history.claims, key=lambda one: (one.since, one.token)):
        before = latest.get(claim.scope)
        if before is not None and before.latest < claim.since and before.token >= claim.token:
            verdict.regressed.append(f"{claim} has no higher token than {before}")
        latest[claim.scope] = claim


# -- Deliveries and order --------------------------------------------------------------------------------------------


def _deliveries(claims: list[Claim], history: History, verdict: Verdict) -> None:
    """Deliveries again without a reason, and counters that do not tell how many there were."""
    counted = slack = 0
    for index, claim in enumerate(claims):
        counted += 1
        if index:
            _explain(claims[index - 1], claim, verdict)
        # A claimer killed before it wrote down what it got has used up a delivery that nobody knows of.
        if not counted - slack <= claim.count <= counted + history.unknown_claims:
            verdict.miscounted.append(f"{claim} is delivery {claim.count}, expected {counted}")
        for one in claim.settlements:
            if one.verb == "release" and one.may_have_worked:
                counted, slack = (counted - 1, slack) if one.result else (counted, slack + 1)


def _explain(before: Claim, claim: Claim, verdict: Verdict) -> None:
    for one in before.settlements:
        if one.verb in TERMINAL and one.result and one.done <= claim.since:
            verdict.unexplained.append(f"{claim} was delivered after its end by {one.verb} of {before}")
            return
    given_back = any(
        one.may_have_worked and one.verb not in TERMINAL and one.invoked <= claim.latest for one in before.settlements
    )
    if not given_back and claim.since <= before.holds_until():
        verdict.unexplained.append(f"{claim} was delivered again although {before} neither lapsed nor gave it back")
    verdict.figures["explained duplicates"] = verdict.figures.get("explained duplicates", 0) + 1


def _order(history: History, by_value: Mapping[str, list[Claim]], died: Mapping[str, int], verdict: Verdict) -> None:
    """Messages given out before earlier ones of their group were over, and seqs against the order of publishing."""
    groups: dict[str, dict[int, str]] = defaultdict(dict)
    for put in history.puts:
        if put.kind == "message":
            if put.id is None and put.value in by_value:
                put.id = by_value[put.value][0].id
            if put.id is not None:
                groups[put.scope][put.id] = put.value
    for group, messages in groups.items():
        seqs = sorted(messages)
        # Up to each place: when the last of the messages so far may have been over.
        over: list[float] = []
        for seq in seqs:
            value = messages[seq]
            _, possible = _terminal(value, None, history, by_value)
            ends = [one.invoked for one in possible] + ([died[value]] if value in died else [])
            over.append(max(min(ends, default=NEVER), over[-1] if over else 0))
        for claim in (one for value in messages.values() for one in by_value.get(value, ())):
            place = bisect_left(seqs, claim.id)
            if place and over[place - 1] > claim.latest:
                verdict.inverted.append(f"{claim} was given out before an earlier message of {group} was over")
    _published_in_order(history, verdict)


def _published_in_order(history: History, verdict: Verdict) -> None:
    """A publish that began after another one had returned must have the higher seq."""
    stored = [put for put in history.puts if put.kind == "message" and put.id is not None]
    by_end = sorted((put for put in stored if put.done < NEVER), key=lambda put: put.done)
    highest: dict[str, int] = {}
    place = 0
    for put in sorted(stored, key=lambda one: one.invoked):
        while place < len(by_end) and by_end[place].done < put.invoked:
            earlier = by_end[place]
            highest[earlier.scope] = max(highest.get(earlier.scope, -1), earlier.id or 0)
            place += 1
        if put.id is not None and put.id < highest.get(put.scope, -1):
            verdict.inverted.append(f"{put.value} has seq {put.id} but was published after {highest[put.scope]}")
