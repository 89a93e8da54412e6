"""Keys (Q15): which item a key stands for; kept for jobs and messages alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rota import rules
from rota.sql.blocks import Blocks
from rota.sql.drive import Block, Op

STORE = Blocks("rota.sql", "statements/store.sql")

# How many keys one sweep looks at: else it would look at all those whose items live on, each time.
SWEPT_AT_ONCE = 1_000
_START = (-(2**63), "")


class Space(NamedTuple):
    """Where a key is unique: one queue or one transport. ``find`` and ``over`` know its live items."""

    kind: Literal["queue", "transport"]
    name: str
    find: Block
    over: Block


def of_queue(name: str) -> Space:
    """The keys of a queue."""
    return Space("queue", name, STORE.job_of_key, STORE.job_keys_over)


def of_transport(name: str) -> Space:
    """The keys of a transport."""
    return Space("transport", name, STORE.message_of_key, STORE.message_keys_over)


def holder(space: Space, key: str, now: int) -> Op[int | None]:
    """The item that has taken the key; None when it is free."""
    for item, until, live in (yield space.find, (space.kind, space.name, key)):
        if rules.key_taken(bool(live), until, now):
            taken: int = item
            return taken
    return None


def bind(space: Space, bindings: list[tuple[str, int, int]]) -> Op[None]:
    """Take free keys: (key, item, until)."""
    yield STORE.bind_key, [(space.kind, space.name, key, item, until) for key, item, until in bindings]


class Redriven(NamedTuple):
    """An item made live again: its key, its number before and now, and until when the key is taken at least."""

    key: str | None
    old: int
    new: int
    until: int


def rebind(space: Space, items: Sequence[Redriven], now: int) -> Op[list[str | None]]:
    """The keys of redriven items (D3), bound to them again; None where another item has taken it."""
    kept: list[str | None] = []
    bound: set[str] = set()
    for key, old, new, until in items:
        if key is not None:
            taken = yield from holder(space, key, now)
            if key in bound or (taken is not None and taken != old):
                kept.append(None)
                continue
            # Its item will be live before anybody else looks.
            bound.add(key)
            yield from bind(space, [(key, new, until)])
        kept.append(key)
    return kept


def sweep(space: Space, now: int, start: tuple[int, str] | None) -> Op[tuple[int, str] | None]:
    """Forget keys whose time is over and whose item is not live; where the next sweep goes on, None for the start."""
    rows = yield space.over, (space.kind, space.name, *(start or _START), now, SWEPT_AT_ONCE)
    yield (
        STORE.drop_key,
        [(space.kind, space.name, key) for key, until, live in rows if not rules.key_taken(bool(live), until, now)],
    )
    if len(rows) < SWEPT_AT_ONCE:
        return None
    key, until, _ = rows[-1]
    return until, key


def advance(counter: str, by: int) -> Op[int]:
    """Draw ``by`` numbers of a counter that never goes back; the last one."""
    ((value,),) = yield STORE.advance, (by, counter)
    last: int = value
    return last
