"""The engines by URL scheme, imported on demand: the only list of engines.

``memory://`` (private), ``memory://name`` (shared in the process), ``sqlite:///relative.db``, ``sqlite:////absolute.db``.
Options may stand behind a ``?`` or be given to ``rota.open``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rota import names, units
from rota.masking import masked

if TYPE_CHECKING:
    from rota.contract import Engine

    Opened = tuple[Engine, Callable[[], None]]

_SCHEMES = ("memory", "sqlite")


class Target(NamedTuple):
    """A URL that was understood: open it with the store's clock."""

    url: str
    codec: str | None
    open: Callable[[Callable[[], int], Any], Opened]


def parse(url: str, settings: dict[str, Any]) -> Target:
    """Understand a URL and its settings, without I/O. ``ValueError`` says what would be accepted."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str like 'sqlite:///rota.db', got {url!r}")
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://([^?]*)(?:\?(.*))?", url, re.DOTALL)
    scheme = match.group(1).lower() if match else ""
    if match is None or scheme not in _SCHEMES:
        raise ValueError(
            f"{masked(url)!r} is not the URL of an engine: use memory://, memory://name, sqlite:///relative.db "
            "or sqlite:////absolute.db"
        )
    options = _options(url, match.group(3) or "", settings)
    return _memory(url, match.group(2), options) if scheme == "memory" else _sqlite(url, match.group(2), options)


def _options(url: str, query: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings from the query and from the call; one named twice with two values is refused."""
    options: dict[str, Any] = {}
    if query:
        from urllib.parse import parse_qsl

        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
        except ValueError:
            raise ValueError(f"the options of {masked(url)!r} cannot be read: write ?name=value&name=value") from None
        for name, value in pairs:
            if options.setdefault(name, value) != value:
                raise ValueError(f"{masked(url)!r} names {name} twice: {options[name]!r} and {value!r}")
    for name, value in settings.items():
        if value is None:
            continue
        if name in options and options[name].lower() != str(value).lower():
            raise ValueError(f"{name} is {options[name]!r} in the URL {masked(url)!r} but {value!r} in the call")
        options[name] = value
    return options


def _known(url: str, options: dict[str, Any], accepted: tuple[str, ...]) -> None:
    for name in options:
        if name not in accepted:
            raise ValueError(f"{masked(url)!r} takes no option {name!r}, only: {', '.join(accepted)}")


def _memory(url: str, name: str, options: dict[str, Any]) -> Target:
    _known(url, options, ("codec", "max_items", "create"))
    codec = options.get("codec")
    if codec not in (None, "json"):
        raise ValueError(f"codec in a URL must be 'json', got {codec!r}")
    cap = options.get("max_items")
    if cap is not None:
        cap = units.integer(_number(cap, "max_items", int), "max_items", 1)
    shared = names.name(name, "name of a shared memory store") if name else None

    def open_it(now: Callable[[], int], clock: Any) -> Opened:
        from rota.memory import open_memory

        return open_memory(shared, url=url, now=now, clock=clock, max_items=cap)

    return Target(url, codec, open_it)


def _sqlite(url: str, location: str, options: dict[str, Any]) -> Target:
    _known(url, options, ("durability", "busy_timeout", "create"))
    path = location[1:]
    if not location.startswith("/") or not path or "\0" in path:
        raise ValueError(f"{url!r} names no file: use sqlite:///relative.db or sqlite:////absolute.db")
    if path == ":memory:":
        raise ValueError("SQLite in memory cannot be shared between connections: use memory:// instead")
    durability = options.get("durability", "full")
    if durability not in ("full", "normal"):
        raise ValueError(f"durability must be 'full' or 'normal', got {durability!r}")
    busy = units.not_negative(_number(options.get("busy_timeout", 5.0), "busy_timeout", float), "busy_timeout")
    create = {"true": True, "false": False}.get(str(options.get("create", True)).lower())
    if create is None:
        raise ValueError(f"create must be true or false, got {options['create']!r}")

    def open_it(now: Callable[[], int], clock: Any) -> Opened:
        from rota.engines.sqlite import open_sqlite

        engine = open_sqlite(
            path, url=url, now=now, durability=durability, busy_timeout=units.seconds(busy), create=create
        )
        return engine, engine.close

    return Target(url, "json", open_it)


def _number(value: Any, name: str, kind: type[int] | type[float]) -> Any:
    """A number that may have come as text from a URL."""
    if not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {value!r}") from None
