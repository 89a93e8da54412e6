"""What a transaction's verbs say of where claims need to look: told to the frontiers after the commit, not before."""

from __future__ import annotations

from typing import Any


class JobNotes:
    """Stands in for a queue's frontier: what is to be told to that one after the commit."""

    def __init__(self, queue: Any, since: int) -> None:
        self._frontier = queue._frontier
        self._since = since
        self._stored = False
        self._anywhere = False

    def stored(self) -> None:
        self._stored = True

    def reset(self) -> None:
        self._anywhere = True

    def committed(self) -> None:
        if self._anywhere:
            self._frontier.reset()
        elif self._stored:
            self._frontier.late(self._since)


class GroupNotes:
    """Stands in for a transport's frontiers."""

    def __init__(self, transport: Any) -> None:
        self._frontiers = transport._frontiers
        self._seq: int | None = None
        self._turn: int | None = None

    def values(self) -> list[GroupNotes]:
        return [self]

    def published(self, seq: int) -> None:
        self._seq = seq if self._seq is None else min(self._seq, seq)

    def freed(self, turn: int) -> None:
        self._turn = turn if self._turn is None else min(self._turn, turn)

    def committed(self) -> None:
        for frontier in list(self._frontiers.values()):
            if self._seq is not None:
                frontier.published(self._seq)
            if self._turn is not None:
                frontier.freed(self._turn)
