"""From where claims need to look: dead rows before a frontier are not walked again.

Without it claims decay until the next vacuum, and under another session's old snapshot vacuum cannot help: 300,000
processed jobs cost single claims nine tenths of their rate. Every ``LOOK_AT_ALL`` seconds a claim looks at all rows or
at all deadlines, so what appears behind the frontier (committed late, freed by another process) is passed over for
less than a second (T3, Q13). What this process itself puts there draws the frontier back at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from rota import rules

LOOK_AT_ALL = 0.4
# A claim that found nothing does so after this time already, if it takes no more than a tenth of it.
LOOK_AGAIN = 0.02
_START = -(2**63)

Look = Literal["nothing", "rows", "deadlines", "everything"]
# More priorities than these are looked for anew.
_MOST_LANES = 64
# A job committed this many µs after another one with a later ready time is still found.
_LATE = 20_000
# Likewise a new group, by its seq.
_LATE_SEQS = 200
# Enough for what other threads do during one claim.
_NOTES = 256


class _Frontier:
    def __init__(self) -> None:
        self._looked = float("-inf")
        # How long looking at everything took, at the utmost a tenth of the time goes into it.
        self._took = 0.0
        self._deadlines_next = False
        self.epoch = 0

    def _due(self, known: bool) -> Look:
        """What this claim has to look at in full; the two halves take turns, so that each costs less."""
        now = time.monotonic()
        if not known:
            self._looked = now
            return "everything"
        if now - self._looked < LOOK_AT_ALL:
            return "nothing"
        self._looked = now
        self._deadlines_next = not self._deadlines_next
        return "rows" if self._deadlines_next else "deadlines"

    def came_back_empty(self, places: tuple[Any, ...]) -> bool:
        """Whether a claim that found nothing from these places on shall look at everything now.

        Another thread may have freed something a moment ago whose place is not drawn back yet.
        """
        now = time.monotonic()
        if places[0] is None:
            self._took = now - self._looked
            return False
        if now - self._looked < max(LOOK_AGAIN, 10 * self._took):
            return False
        self.reset()
        return True

    def reset(self) -> None:
        """Forget every place: something may stand behind it."""
        self.epoch += 1
        self._looked = float("-inf")
        self._forget()

    def _forget(self) -> None:
        raise NotImplementedError


class JobFrontier(_Frontier):
    """Of one queue: for each priority the ready time and id claimed last, and until when deadlines were seen to."""

    EVERYTHING = (None, None, None, _START, _START)

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self._lanes: dict[int, tuple[int, int]] = {}
        self._until = _START

    def places(self) -> tuple[Any, ...]:
        """The last five arguments of ``claim_jobs``."""
        due = self._due(bool(self._lanes))
        if due == "everything":
            return self.EVERYTHING
        lanes = sorted(self._lanes.items(), reverse=True)
        until = _START if due == "deadlines" else self._until
        if due == "rows":
            # A known priority is walked once; an unknown one twice.
            return ([priority for priority, _ in lanes], *[[_START] * len(lanes)] * 2, until, until)
        return (
            [priority for priority, _ in lanes],
            [run_at for _, (run_at, _) in lanes],
            [job_id for _, (_, job_id) in lanes],
            until,
            until,
        )

    def claimed(self, epoch: int, claims: Sequence[Any]) -> None:
        """These jobs were claimed, in order; nothing if it was drawn back since ``epoch``."""
        if epoch != self.epoch or not claims:
            return
        lanes = dict(self._lanes) if len(self._lanes) < _MOST_LANES else {}
        for claim in claims:
            late = claim.claimed_at - _LATE
            lanes[claim.priority] = (claim.run_at, claim.id) if claim.run_at < late else (late, _START)
        self._lanes = lanes
        self._until = claims[-1].claimed_at

    def stored(self) -> None:
        """Jobs were stored whose ready time is now or later: no place lies behind them."""

    def late(self, since: int) -> None:
        """Jobs whose ready time is this or later were committed just now, some time after it."""
        self.epoch += 1
        self._lanes = {priority: min(place, (since, _START)) for priority, place in self._lanes.items()}


class GroupFrontier(_Frontier):
    """Of one transport and floor: the turns claimed last, those of groups never claimed apart from the others'."""

    EVERYTHING = (None, _START, 0, _START, True)

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self._lanes: tuple[int, ...] = ()
        self._fresh = _START
        self._turned = 0
        self._until = _START
        self._found_fresh = True
        # What was put somewhere of late, by epoch: a claim under way meanwhile did not see it.
        self._notes: deque[tuple[int, int]] = deque(maxlen=_NOTES)

    def places(self) -> tuple[Any, ...]:
        """The last five arguments of ``claim_groups``."""
        due = self._due(bool(self._lanes))
        if due == "everything":
            return self.EVERYTHING
        if due == "rows":
            return (list(self._lanes), _START, 0, self._until, True)
        until = _START if due == "deadlines" else self._until
        return (list(self._lanes), self._fresh, self._turned, until, self._found_fresh)

    def claimed(self, epoch: int, turns: Sequence[int], priorities: set[int], now: int) -> None:
        """Groups with these turns were claimed, by a claim that began in this epoch."""
        if not turns or self.epoch - epoch > len(self._notes):
            return
        behind = [turn for noted, turn in list(self._notes) if noted > epoch]
        lanes = priorities.union(self._lanes)
        self._lanes = tuple(sorted(lanes)) if len(lanes) <= _MOST_LANES else ()
        fresh = [turn for turn in turns if rules.is_fresh(turn)]
        self._found_fresh = bool(fresh)
        if fresh:
            self._fresh = min(max(fresh) - _LATE_SEQS, *behind, 0)
        if len(fresh) < len(turns):
            self._turned = min(max(turns), *[turn for turn in behind if not rules.is_fresh(turn)], max(turns))
        self._until = now

    def freed(self, turn: int) -> None:
        """A group with this turn may be free."""
        self._turned = min(self._turned, turn)
        self._note(turn)

    def published(self, seq: int) -> None:
        """A group may have been made with this seq."""
        turn = rules.fresh_turn(seq)
        self._fresh = min(self._fresh, turn)
        self._note(turn)

    def _note(self, turn: int) -> None:
        self.epoch += 1
        self._notes.append((self.epoch, turn))
