"""Settling what ended, on a thread of its own: while one batch is on its way to the store, the next one gathers.

What cannot be recorded is tried again with growing pauses while its claim surely holds, then given up: nobody renews
it any more, so it lapses and is delivered again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rota.errors import OutcomeUnknown, StoreClosed
from rota.worker import plan
from rota.worker.logs import DEBUG, ERROR, INFO, WARNING, item_fields, logger, tell
from rota.worker.sources import Held, Source

_monotonic = time.monotonic
_LARGEST_BATCH = 5_000
# After so many failures in a row the rest waits for its next turn: the store is what fails, not the items.
_IN_A_ROW = 2
# A batch that failed more often is tried in so many parts, and those again.
_WHOLE_TRIES, _PARTS = 2, 8


class Deed:
    """Items to settle in one call: a batch of plain acks or of plain releases, or one with anything else."""

    __slots__ = ("at", "helds", "source", "together", "tries", "unknown")

    def __init__(self, source: Source, helds: list[Held], together: bool) -> None:
        self.source = source
        self.helds = helds
        self.together = together
        self.tries = 0
        self.at = 0.0
        # A try ended in OutcomeUnknown: when a later one finds nothing to settle, that one had worked.
        self.unknown = False


class Settler:
    """The thread, and what waits for it."""

    def __init__(self) -> None:
        self._arrived: deque[Held] = deque()
        self._woken = threading.Event()
        self._asleep = False
        self._again: list[Deed] = []
        self._under_way = 0
        self._closing: float | None = None
        self.failing_since: float | None = None
        self.on_settled: Callable[[Sequence[Held], int], None] | None = None
        """Told of items that were settled together, and how many of them could be."""
        self.on_round: Callable[[], None] | None = None
        """Called when the backlog may have become shorter."""
        self._thread = threading.Thread(target=self._run, name="rota-settle", daemon=True)
        self.start = self._thread.start

    @property
    def backlog(self) -> int:
        """How many are not settled yet."""
        return len(self._arrived) + self._under_way

    def put(self, held: Held) -> None:
        """Settle this one soon. From any thread."""
        self._arrived.append(held)
        if self._asleep:
            self._asleep = False
            self._woken.set()

    def put_all(self, helds: Iterable[Held]) -> None:
        """Settle these soon."""
        for held in helds:
            self.put(held)

    def close(self, patience: float) -> None:
        """Settle what there is, for at most so many seconds, then end the thread."""
        self._closing = _monotonic() + patience
        self._woken.set()
        self._thread.join(patience + 5)

    def _run(self) -> None:
        while True:
            self._asleep = True
            if not self._arrived:
                if self._closing is not None and (not self._again or _monotonic() >= self._closing):
                    self._give_up_all()
                    return
                self._woken.wait(self._pause())
            self._asleep = False
            self._woken.clear()
            self._round()

    def _pause(self) -> float | None:
        if not self._again:
            return None
        return max(0.0, min(deed.at for deed in self._again) - _monotonic())

    def _round(self) -> None:
        now, failures = _monotonic(), 0
        due = [deed for deed in self._again if deed.at <= now]
        self._again = [deed for deed in self._again if deed.at > now]
        for deed in [*self._gather(), *due]:
            if failures >= _IN_A_ROW:
                self._postpone(deed)
            elif not self._do(deed):
                failures += 1
            else:
                failures = 0
        self._under_way = sum(len(deed.helds) for deed in self._again)
        if self.on_round is not None:
            self.on_round()

    def _gather(self) -> list[Deed]:
        """What arrived, as deeds: first the acks of each source together, then releases, then each other for itself."""
        arrived = self._arrived
        acks, releases = dict[Source, list[Held]](), dict[Source, list[Held]]()
        alone: list[Deed] = []
        self._under_way += min(len(arrived), _LARGEST_BATCH)
        for _ in range(min(len(arrived), _LARGEST_BATCH)):
            held = arrived.popleft()
            if held.settlement is plan.ACK:
                helds = acks.get(held.source)
                if helds is None:
                    helds = acks[held.source] = []
                helds.append(held)
            elif held.settlement is plan.RELEASE:
                releases.setdefault(held.source, []).append(held)
            else:
                alone.append(Deed(held.source, [held], False))
        together = [*acks.items(), *releases.items()]
        return [*(Deed(source, helds, True) for source, helds in together), *alone]

    def _do(self, deed: Deed) -> bool:
        """Whether it is done with, one way or the other."""
        try:
            count = self._settled(deed)
        except StoreClosed as error:
            self._give_up(deed, deed.helds, error)
            return True
        except Exception as error:
            self._failed(deed, error)
            return False
        if self.failing_since is not None:
            self.failing_since = None
            tell(INFO, "store_back")
        self._count(deed, count)
        if deed.source.hungry:
            deed.source.feed()
        return True

    def _settled(self, deed: Deed) -> int:
        source, helds = deed.source, deed.helds
        if not deed.together:
            return int(source.settle(helds[0]))
        return source.ack_many(helds) if helds[0].settlement is plan.ACK else source.release_many(helds)

    def _count(self, deed: Deed, count: int) -> None:
        counters, kind = deed.source.counters, deed.helds[0].settlement.kind
        if logger.isEnabledFor(DEBUG):
            for held in deed.helds:
                tell(DEBUG, "settled", outcome=kind, **item_fields(deed.source, held.claim))
        missing = len(deed.helds) - count
        if deed.unknown:
            count, missing = len(deed.helds), 0
        elif missing:
            missing -= sum(1 for held in deed.helds if held.handle.settled)
        # Acks are counted where transactions are committed, too.
        with deed.source.lock:
            if kind == "ack":
                counters.acked += count
            elif kind == "retry":
                counters.retried += count
            elif kind == "fail":
                counters.failed += count
            else:
                counters.released += count
        if self.on_settled is not None:
            self.on_settled(deed.helds, count)
        if missing > 0:
            self._count_lost(deed.source, missing)
            fields: dict[str, Any] = {"source": deed.source.label}
            if len(deed.helds) == 1:
                fields = item_fields(deed.source, deed.helds[0].claim)
            tell(WARNING, "claim_lost", count=missing, outcome=kind, **fields)

    # -- What fails --------------------------------------------------------------------------------------------------

    def _failed(self, deed: Deed, error: Exception) -> None:
        deed.tries += 1
        deed.unknown = deed.unknown or isinstance(error, OutcomeUnknown)
        if self.failing_since is None:
            self.failing_since = time.time()
            tell(WARNING, "store_failing", error=f"{type(error).__name__}: {error}", source=deed.source.label)
        pause = plan.settle_pause(deed.tries)
        surely_until = _monotonic() + pause
        kept = [held for held in deed.helds if held.since + deed.source.visibility(held) > surely_until]
        if len(kept) < len(deed.helds):
            still = set(kept)
            self._give_up(deed, [held for held in deed.helds if held not in still], error)
            deed.helds = kept
        if not kept:
            return
        deed.at = surely_until
        if deed.tries <= _WHOLE_TRIES or len(kept) == 1:
            self._again.append(deed)
            return
        # One of them may be what fails: it must not take the others along.
        size = -(-len(kept) // _PARTS)
        for begin in range(0, len(kept), size):
            part = Deed(deed.source, kept[begin : begin + size], True)
            part.tries, part.unknown = deed.tries, deed.unknown
            self._again.append(part)

    def _postpone(self, deed: Deed) -> None:
        deed.at = _monotonic() + plan.settle_pause(1)
        self._again.append(deed)

    def _give_up_all(self) -> None:
        for deed in self._again:
            self._give_up(deed, deed.helds, None)
        self._again = []

    def _give_up(self, deed: Deed, helds: list[Held], error: Exception | None) -> None:
        """The claim runs out, or we do: it is delivered again when it has lapsed."""
        first = item_fields(deed.source, helds[0].claim) if len(helds) == 1 else {"source": deed.source.label}
        tell(
            ERROR,
            "outcome_not_recorded",
            count=len(helds),
            outcome=helds[0].settlement.kind,
            error=None if error is None else f"{type(error).__name__}: {error}",
            **first,
        )
        self._count_lost(deed.source, len(helds))

    def _count_lost(self, source: Source, count: int) -> None:
        with source.lock:
            source.counters.lost += count
