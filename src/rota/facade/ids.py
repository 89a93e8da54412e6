"""Ids and page limits as callers give them (D2, Q11, Q14)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from rota import units
from rota.units import Duration

if TYPE_CHECKING:
    from rota.public import DeadLetter

# What a signed 64-bit column holds; ids beyond it exist nowhere.
_LARGEST = 2**63 - 1


def known(value: int, name: str = "id") -> int | None:
    """An id, or None for an int that no engine can have handed out. ``TypeError`` for other types."""
    number = units.integer(value, name)
    return number if 0 <= number <= _LARGEST else None


def known_or_none_such(value: int) -> int:
    """An id as the engines take it; -1, which no job has, for an int that no engine can have handed out."""
    number = known(value)
    return -1 if number is None else number


def letters(value: Iterable[int | DeadLetter] | Literal["all"]) -> list[int] | None:
    """Letter ids (or letters), or None for ``"all"``; unknown ones are passed over."""
    if isinstance(value, str):
        if value == "all":
            return None
        raise ValueError(f'ids must be letter ids or "all", got {value!r}')
    if isinstance(value, int) or hasattr(value, "letter_id"):
        raise TypeError(f"ids must be several letter ids, got {value!r}: write [{value!r}]")
    given: Iterable[Any] = value
    numbers = (known(getattr(one, "letter_id", one), "letter id") for one in given)
    return sorted({number for number in numbers if number is not None})


def purge(
    ids: Iterable[int | DeadLetter] | Literal["all"] | None, older_than: Duration | None
) -> tuple[list[int] | None, int | None]:
    """The arguments of ``purge_dead`` (D2): letter ids, or an age; exactly one of them."""
    if (ids is None) == (older_than is None):
        raise TypeError('purge_dead needs either ids (letter ids or "all") or older_than (an age in seconds)')
    if older_than is not None:
        return None, units.not_negative(older_than, "older_than")
    assert ids is not None
    return letters(ids), None


def after(value: int | None) -> int | None:
    """The last id of the page before, or None."""
    if value is None:
        return None
    return max(min(units.integer(value, "after"), _LARGEST), -1)


def limit(value: int | None) -> int:
    """How many of a listing; zero or less means nothing (C6), and more than an engine can count means all."""
    return 100 if value is None else count(value, "limit")


def shown(value: int | None) -> int:
    """The n of ``peek``."""
    return 10 if value is None else count(value)


def count(value: Any, name: str = "n") -> int:
    """The n of a batch (C6)."""
    return max(0, min(units.integer(value, name), _LARGEST))
