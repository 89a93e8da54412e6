"""Listening on a channel (X6): what both listeners do between pauses."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from rota import names, units
from rota.facade.core import Core
from rota.facade.waiting import POLL
from rota.units import Duration
from rota.wakeups import Waiter, channel_address

W = TypeVar("W", bound=Waiter)


class Ear(Generic[W]):
    """One listener's subscription, its waiter, and what arrived but was not handed out yet."""

    def __init__(self, core: Core, channel: str, timeout: Duration | None, make_waiter: Callable[[str], W]) -> None:
        self._core = core
        self._timeout = None if timeout is None else units.seconds(units.not_negative(timeout, "timeout"))
        self._silent_until = float("inf")
        self._arrived: deque[str | None] = deque()
        self._closed = False
        self.waiter = make_waiter(channel_address(names.name(channel, "channel")))
        # Registered before subscribed: from here on nothing is missed.
        core.wakeups.add(self.waiter)
        self._subscription = core.engine.subscribe(channel)

    def begin(self) -> None:
        """The caller asks for the next payload: silence is counted from here."""
        if self._timeout is not None:
            self._silent_until = time.monotonic() + self._timeout

    def next(self) -> tuple[bool, str | None, float]:
        """Whether a payload is there, the payload, and else how many seconds to wait (none: the listener ends)."""
        if self._closed:
            return False, None, 0.0
        if not self._arrived:
            self.waiter.clear()
            self._core.check_open()
            self._arrived.extend(self._subscription.take())
        if self._arrived:
            return True, self._arrived.popleft(), 0.0
        return False, None, min(POLL, self._silent_until - time.monotonic())

    def close(self) -> None:
        """Stop listening."""
        if not self._closed:
            self._closed = True
            self._core.wakeups.remove(self.waiter)
            self._subscription.close()
            self.waiter.wake()
