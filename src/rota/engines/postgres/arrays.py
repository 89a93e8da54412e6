"""Arrays as PostgreSQL writes them. psycopg dumps a list element by element, a microsecond each; this takes a tenth."""

from __future__ import annotations

from collections.abc import Sequence

# In no JSON text, and seldom in a name: what stands between elements while they are quoted all at once.
_SEPARATOR = "\x1f"


class Array(str):
    """An array as text; a driver that wants to know is told its type."""

    __slots__ = ()
    type: str


class Numbers(Array):
    """A ``bigint[]``."""

    __slots__ = ()
    type = "bigint[]"


class Texts(Array):
    """A ``text[]``."""

    __slots__ = ()
    type = "text[]"


def numbers(values: Sequence[int | None]) -> Numbers:
    """A ``bigint[]``."""
    return Numbers("{" + repr(list(values))[1:-1].replace("None", "NULL") + "}")


def texts(values: Sequence[str | None]) -> Texts:
    """A ``text[]``."""
    try:
        joined = _SEPARATOR.join(values)  # type: ignore[arg-type]
    except TypeError:
        return Texts("{" + ",".join(map(_element, values)) + "}")
    if not values or joined.count(_SEPARATOR) != len(values) - 1:
        return Texts("{" + ",".join(map(_element, values)) + "}")
    return Texts('{"' + _escaped(joined).replace(_SEPARATOR, '","') + '"}')


def _element(value: str | None) -> str:
    return "NULL" if value is None else f'"{_escaped(value)}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
