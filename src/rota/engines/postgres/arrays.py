"""Arrays as PostgreSQL writes them. psycopg dumps a list element by element, a microsecond each; this takes a tenth."""

from __future__ import annotations

from collections.abc import Sequence

# In no JSON text, and seldom in a name: what stands between elements while they are quoted all at once.
_SEPARATOR = "\x1f"


def numbers(values: Sequence[int | None]) -> str:
    """A ``bigint[]``."""
    return "{" + repr(list(values))[1:-1].replace("None", "NULL") + "}"


def texts(values: Sequence[str | None]) -> str:
    """A ``text[]``."""
    try:
        joined = _SEPARATOR.join(values)  # type: ignore[arg-type]
    except TypeError:
        return "{" + ",".join(map(_element, values)) + "}"
    if not values or joined.count(_SEPARATOR) != len(values) - 1:
        return "{" + ",".join(map(_element, values)) + "}"
    return '{"' + _escaped(joined).replace(_SEPARATOR, '","') + '"}'


def _element(value: str | None) -> str:
    return "NULL" if value is None else f'"{_escaped(value)}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
