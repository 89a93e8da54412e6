"""Heartbeats for all that is held, running or waiting, on a thread of their own: no handler can silence them.

An item is renewed while it is in its source's ``live`` and nobody has given it up; handlers' ends take it out. So beats
end with the handler, and what cannot be recorded afterwards is not kept from others for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from rota.errors import EngineBusy, StoreClosed
from rota.worker import plan
from rota.worker.logs import WARNING, item_fields, tell
from rota.worker.plan import Why
from rota.worker.sources import Held, Source
from rota.worker.turns import Turn, turns

_monotonic = time.monotonic
_NEVER = float("inf")
# An event loop that is only busy ends a handler within so many seconds after its time was over.
_LATE = 1.0


class Beats:
    """The thread. ``end`` is told of an item that must not go on, and why."""

    def __init__(self, sources: Sequence[Source], end: Callable[[Held, Why], None]) -> None:
        self._sources = sources
        self._end = end
        self._next = _NEVER
        self._changed = threading.Condition()
        self._closed = False
        # Until when a source whose beat failed is left alone.
        self._failed: dict[Source, float] = {}
        # Until when one is left alone that somebody's open transaction has.
        self._pinned: dict[Held, float] = {}
        # Async handlers that run on although their time is over, told of already.
        self._overdue: set[Held] = set()
        # Where there is one writer: our turn at it, asked for or come.
        self._turns: dict[Source, Turn] = {}
        self._thread = threading.Thread(target=self._run, name="rota-beats", daemon=True)
        self.start = self._thread.start

    def watch(self, at: float) -> None:
        """Look at this instant at the latest. From any thread, cheap when nothing changes."""
        if at < self._next:
            with self._changed:
                if at < self._next:
                    self._next = at
                    self._changed.notify()

    def arrived(self, source: Source, since: float) -> None:
        """Items of this source were claimed at this instant."""
        self.watch(since + plan.beat_after(source.shortest))

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (pause := self._next - _monotonic()) > 0:
                    self._changed.wait(min(pause, threading.TIMEOUT_MAX))
                if self._closed:
                    break
                # What arrives from here on is noted anew.
                self._next = _NEVER
            soonest = _NEVER
            for source in self._sources:
                try:
                    soonest = min(soonest, self._look(source))
                except Exception as error:
                    # Whatever it is, the others' beats go on.
                    source.counters.beats_failed += 1
                    tell(WARNING, "beat_failed", source=source.label, error=f"{type(error).__name__}: {error}")
                    soonest = min(soonest, _monotonic() + plan.beat_again_after(source.shortest))
                finally:
                    self._pass_turn(source)
            self.watch(soonest)
        for source, turn in self._turns.items():
            row = turns(source.core.engine)
            if row is not None:
                row.leave(turn)

    def _look(self, source: Source) -> float:
        """Renew what is due, end what is over its time; when to look again."""
        now = _monotonic()
        live = list(source.live)
        for held in [held for held in self._pinned if held.source is source and held not in source.live]:
            del self._pinned[held]
        if self._overdue:
            self._overdue = {held for held in self._overdue if held.source is not source or held in source.live}
        if not live:
            return _NEVER
        timed = any(handler.timeout is not None and handler.runs != "loop" for handler in source.spec.handlers)
        soonest, due = _NEVER, list[Held]()
        # One that is due within a moment is taken along.
        soon = now + plan.beat_after(source.shortest) / 10
        for held in live:
            again = self._overdue_on_loop(held, now)
            if again is not None:
                soonest = min(soonest, again)
                continue
            if not is_renewed(held):
                continue
            at = max(held.since + plan.beat_after(source.visibility(held)), self._pinned.get(held, 0.0))
            if at <= soon:
                due.append(held)
            elif at < soonest:
                soonest = at
            if (
                timed
                and held.why is None
                and held.began
                and (timeout := held.handler.timeout if held.handler else None) is not None
            ):
                if held.began + timeout <= now:
                    self._end(held, "timeout")
                else:
                    soonest = min(soonest, held.began + timeout)
        if not due:
            return soonest
        paused = self._failed.get(source, 0.0)
        if paused > now:
            return min(soonest, paused)
        row = turns(source.core.engine)
        if row is None or row.at_once > 1:
            return min(soonest, self._beat(source, [one for one in due if is_renewed(one)]))
        if source not in self._turns:
            self._turns[source] = row.ask(lambda: self.watch(0.0), first=True)
        if not self._turns[source].mine:
            # Nobody can claim anything while a transaction has the writer.
            return soonest
        return min(soonest, self._beat(source, [one for one in due if is_renewed(one)]))

    def _overdue_on_loop(self, held: Held, now: float) -> float | None:
        """When to look again at an async handler whose time is over, None where it is not.

        Its loop cancels it and nobody renews it any more: a loop that is blocked must not keep its item for ever.
        """
        handler = held.handler
        if handler is None or handler.timeout is None or handler.runs != "loop" or not held.began:
            return None
        late = held.began + handler.timeout
        if late > now:
            return None
        if late + _LATE > now:
            return late + _LATE
        if held not in self._overdue:
            self._overdue.add(held)
            tell(WARNING, "handler_overdue", **item_fields(held.source, held.claim))
        return _NEVER

    def _pass_turn(self, source: Source) -> None:
        """Used or not: if it came, it is over."""
        turn = self._turns.get(source)
        if turn is not None and turn.mine:
            del self._turns[source]
            row = turns(source.core.engine)
            assert row is not None
            row.leave(turn)

    def _beat(self, source: Source, due: list[Held]) -> float:
        if not due:
            return _NEVER
        start = _monotonic()
        try:
            kept = source.renew(due)
        except StoreClosed:
            return _NEVER
        except EngineBusy as error:
            if not error.pinned:
                return self._beat_failed(source, due, error)
            # An open transaction has one of them, which must not cost the others their claims.
            if len(due) > 1:
                return min([self._beat(source, [one]) for one in due])
            # It keeps that one from being claimed, too.
            again = self._pinned[due[0]] = _monotonic() + plan.beat_after(source.visibility(due[0]))
            return again
        except Exception as error:
            return self._beat_failed(source, due, error)
        soonest = _NEVER
        for held, alive in zip(due, kept, strict=True):
            if alive:
                held.since = start
                soonest = min(soonest, start + plan.beat_after(source.visibility(held)))
            elif held in source.live and is_renewed(held):
                # One whose handler ended meanwhile was not lost, nor one it settled itself.
                with source.lock:
                    source.counters.lost += 1
                tell(
                    WARNING,
                    "claim_lost",
                    count=1,
                    outcome="running" if held.began else "waiting",
                    **item_fields(source, held.claim),
                )
                self._end(held, "lost")
        return soonest

    def _beat_failed(self, source: Source, due: list[Held], error: Exception) -> float:
        """One beat that failed is not the end: the claims hold for a while yet."""
        source.counters.beats_failed += 1
        tell(WARNING, "beat_failed", source=source.label, count=len(due), error=f"{type(error).__name__}: {error}")
        again = self._failed[source] = _monotonic() + plan.beat_again_after(source.shortest)
        return again


def is_renewed(held: Held) -> bool:
    """Whether nobody has given it up, nor settled it: one settled in an open transaction would be waited for."""
    if held.handle.settled:
        return False
    return held.why is None or plan.is_renewed(held.why, held.handler is not None and held.handler.ends_for_sure)
