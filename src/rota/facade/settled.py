"""What a worker's handles remember: that their handler settled their item itself, by whatever verb of whichever handle.

Its handles have ``remembers`` set, and ``settled``; a lease that was renewed from one has it as its ``first``.
"""

from __future__ import annotations

from typing import Any


def remembering(held: Any) -> Any:
    """The handle of a worker that is to remember it, None where ``held`` is none of a worker's."""
    if not getattr(held, "remembers", False):
        return None
    return held if held.first is None else held.first


def noted(held: Any, done: bool) -> bool:
    """Outside of transactions, where what is done stays so; returns ``done``."""
    if done and held.remembers:
        remembering(held).settled = True
    return done


def noted_all(helds: list[Any], done: int) -> int:
    """Of several settled together, where it is certain that all of them were; returns ``done``."""
    if done == len(helds):
        for held in helds:
            one = remembering(held)
            if one is not None:
                one.settled = True
    return done
