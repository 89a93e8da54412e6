"""The engines by URL scheme, imported on demand: the only list of engines.

``memory://`` (private), ``memory://name`` (shared in the process), ``sqlite:///relative.db``, ``sqlite:////absolute.db``,
``postgresql://user:password@host:port/database`` (also ``postgres://`` and ``postgresql+psycopg://``).
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

_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")
_SCHEMES = ("memory", "sqlite", *_POSTGRES)


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
            f"{masked(url)!r} is not the URL of an engine: use memory://, memory://name, sqlite:///relative.db, "
            "sqlite:////absolute.db or postgresql://user@host/database"
        )
    options = _options(url, match.group(3) or "", settings)
    if scheme == "memory":
        return _memory(url, match.group(2), options)
    return _sqlite(url, match.group(2), options) if scheme == "sqlite" else _postgres(url, match.group(2), options)


class NoMigrations(ValueError):
    """An engine whose schema is not migrated by people."""


def migration_sql(url: str, since: int | None) -> str:
    """The SQL that brings a PostgreSQL schema from a version up to date; None: from the one that is there.

    ``NoMigrations`` for the other engines, which look after themselves.
    """
    location, query, own = _postgres_parts(url)
    from rota.engines.postgres import address, migrating

    target = address.parse(location, query, address.schema_name(own.get("schema", address.SCHEMA)))
    return migrating.script(target.schema, migrating.version_at(target) if since is None else since)


def _postgres_parts(url: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _POSTGRES:
        raise NoMigrations(f"{masked(url)!r} is brought up to date when it is opened; --sql is for postgresql://")
    location, _, query = rest.partition("?")
    options = _options(url, query, {})
    return location, options, {name: options.pop(name) for name in _POSTGRES_OPTIONS if name in options}


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
            ours, theirs = masked(options[name]), masked(str(value))
            raise ValueError(f"{name} is {ours!r} in the URL {masked(url)!r} but {theirs!r} in the call")
        options[name] = value
    return options


def _known(url: str, options: dict[str, Any], accepted: tuple[str, ...]) -> None:
    for name in options:
        if name not in accepted:
            raise ValueError(f"{masked(url)!r} takes no option {name!r}, only: {', '.join(accepted)}")


def _always_migrated(options: dict[str, Any]) -> None:
    if "migrate" in options and not _switch(options, "migrate"):
        raise ValueError("migrate must be True here: only postgresql:// can leave an old schema alone")


def _memory(url: str, name: str, options: dict[str, Any]) -> Target:
    _known(url, options, ("codec", "max_items", "create", "migrate"))
    _always_migrated(options)
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
    _known(url, options, ("durability", "busy_timeout", "create", "migrate"))
    _always_migrated(options)
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


def _postgres(url: str, location: str, options: dict[str, Any]) -> Target:
    """What is not an option of Rota's is libpq's."""
    refused = {"durability", "max_items", "codec"} & options.keys()
    if refused:
        raise ValueError(f"{masked(url)!r} takes no option {', '.join(sorted(refused))}: the server decides that")
    own = {name: options.pop(name) for name in _POSTGRES_OPTIONS if name in options}
    given: dict[str, Any] = {name: _switch(own, name) for name in _SWITCHES if name in own}
    if "pool_size" in own:
        given["pool_size"] = units.integer(_number(own["pool_size"], "pool_size", int), "pool_size", 1)
    for name in ("connect_timeout", "busy_timeout"):
        if name in own:
            given[name] = units.seconds(units.positive(_number(own[name], name, float), name))
    if "listen_url" in own:
        given["listen_url"] = own["listen_url"]
    schema = own.get("schema", "rota")
    try:
        from rota.engines.postgres import address
    except ImportError:
        from rota.errors import EngineUnavailable

        raise EngineUnavailable(
            "postgresql:// needs the driver psycopg 3: pip install 'rota[postgres]'", lasting=True
        ) from None
    given["schema"] = address.schema_name(schema)
    # Understood here, so that a wrong URL is a ValueError before any I/O.
    address.parse(location, options, schema)

    def open_it(now: Callable[[], int], clock: Any) -> Opened:
        from rota.engines.postgres import open_postgres

        engine = open_postgres(location, options, now=None if clock is None else now, **given)
        return engine, engine.close

    return Target(url, "json", open_it)


_SWITCHES = ("migrate", "create", "notify", "prepare")
_POSTGRES_OPTIONS = (*_SWITCHES, "schema", "pool_size", "connect_timeout", "busy_timeout", "listen_url")


def _switch(options: dict[str, Any], name: str) -> bool:
    """A yes or no that may have come as text from a URL."""
    value = options[name]
    known = {"true": True, "false": False, "1": True, "0": False, "on": True, "off": False}
    text = str(value).lower()
    if not isinstance(value, (bool, str)) or text not in known:
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return known[text]


def _number(value: Any, name: str, kind: type[int] | type[float]) -> Any:
    """A number that may have come as text from a URL."""
    if not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {value!r}") from None
