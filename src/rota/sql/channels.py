"""Channels (X6) in a table: what is notified stays for a minute, for listeners to read."""

from __future__ import annotations

from rota.sql.drive import Op
from rota.sql.keys import STORE
from rota.units import MICROSECONDS

KEPT = 60 * MICROSECONDS
_PAGE = 1_000


def notify(at: int, channel: str, payload: str | None) -> Op[None]:
    """Store a notification, forget the oldest."""
    yield STORE.forget_notifications, (at - KEPT,)
    yield STORE.notify, (channel, at, payload)


def newest(now: int) -> Op[int]:
    """The id after which a new listener reads."""
    ((number,),) = yield STORE.newest_notification, ()
    return number or 0


def after(now: int, channel: str, start: int) -> Op[list[tuple[int, str | None]]]:
    """A page of the notifications of a channel after an id."""
    rows: list[tuple[int, str | None]] = yield STORE.notifications_after, (channel, start, _PAGE)
    return rows
