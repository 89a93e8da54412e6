"""Channels (X6): what is notified is kept in the database for a while, for whoever looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.sql import channels

if TYPE_CHECKING:
    from rota.engines.sqlite.engine import SqliteEngine


class TableSubscription:
    """``rota.contract.Subscription`` on the notifications in the database."""

    def __init__(self, engine: SqliteEngine, channel: str) -> None:
        self._engine = engine
        self._channel = channel
        self._last = engine.read(channels.newest)

    def take(self) -> list[str | None]:
        """The payloads that arrived since the last call, oldest first."""
        taken: list[str | None] = []
        while rows := self._engine.read(channels.after, self._channel, self._last):
            self._last = rows[-1][0]
            taken += [payload for _, payload in rows]
        return taken

    def close(self) -> None:
        """Nothing is held."""
