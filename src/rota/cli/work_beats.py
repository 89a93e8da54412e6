"""Heartbeats for what ``rota work`` holds, on a thread of their own: no command can silence them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rota.cli.work_items import Held, Source
from rota.errors import RotaError

# A beat comes at no more than a third of the visibility; a little less, so that lateness has room.
_SHARE = 0.3
# After a beat that failed the next try comes at the latest after this.
_RETRY = 1.0


class Beats:
    """Renews the claims it was given until they are taken back. ``lost`` is called once for a claim that is gone."""

    def __init__(self, lost: Callable[[Held], None], log: Callable[[str], None]) -> None:
        self._lost = lost
        self._log = log
        self._due: dict[int, tuple[float, Held]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def add(self, held: Held) -> None:
        """Begin to renew a claim."""
        with self._changed:
            self._due[id(held)] = (held.valid_until - held.visibility * (1 - _SHARE), held)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rota-heartbeats", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, held: Held) -> None:
        """Stop renewing a claim: before it is settled, so that a settlement that fails cannot keep it for ever."""
        with self._changed:
            self._due.pop(id(held), None)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._ended:
                    return
                now = time.monotonic()
                due = [held for at, held in self._due.values() if at <= now]
                if not due:
                    soonest = min((at for at, _ in self._due.values()), default=now + 60)
                    self._changed.wait(max(soonest - now, 0.001))
                    continue
            for source in {id(held.source): held.source for held in due}.values():
                self._beat(source, [held for held in due if held.source is source])

    def _beat(self, source: Source, held: list[Held]) -> None:
        start = time.monotonic()
        try:
            kept = source.extend(held)
        except RotaError as error:
            # One beat that failed is not the end: the claim holds for a while yet.
            self._log(f"{source.label}: a heartbeat failed, trying again: {error}")
            for one in held:
                self._set_next(one, time.monotonic() + min(_RETRY, one.visibility * _SHARE / 2))
            return
        for one, alive in zip(held, kept, strict=True):
            if alive:
                one.valid_until = start + one.visibility
                self._set_next(one, start + one.visibility * _SHARE)
            elif self._forget(one):
                self._lost(one)

    def _set_next(self, held: Held, at: float) -> None:
        with self._changed:
            if id(held) in self._due:
                self._due[id(held)] = (at, held)

    def _forget(self, held: Held) -> bool:
        """Whether it was still ours to renew: one that was settled meanwhile is not lost."""
        with self._changed:
            return self._due.pop(id(held), None) is not None
