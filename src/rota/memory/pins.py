"""Pins (X2): an item settled in an open transaction is out of every place where a claim or a sweep looks for it."""

from __future__ import annotations

from typing import Any

from rota.errors import EngineBusy


class Pin:
    """One job or group that an open transaction has settled or renewed."""

    __slots__ = ("deadline", "owner", "settled", "token")

    def __init__(self, owner: object, token: int, deadline: int) -> None:
        self.owner = owner
        # The item's own token is spent meanwhile, so that no other settlement is valid.
        self.token = token
        self.deadline = deadline
        self.settled = False


class Pins(dict[Any, Pin]):
    """The pins of one queue or transport, by job id or group id; nearly always empty."""

    def check(self, key: Any) -> None:
        """``EngineBusy`` for an item that is pinned."""
        if key in self:
            raise busy()

    def owned(self, key: Any, owner: object) -> Pin | None:
        """The pin of this transaction, None if there is none; ``EngineBusy`` for another's."""
        pin = self.get(key)
        if pin is not None and pin.owner is not owner:
            raise busy()
        return pin


def busy() -> EngineBusy:
    """An open transaction has it; on memory nobody waits for that."""
    return EngineBusy(
        "an open transaction holds what this is about, nothing was changed: try again when it is over", pinned=True
    )
