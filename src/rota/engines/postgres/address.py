"""What a URL says: where the server is, which schema, which of Rota's options. No I/O."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

SCHEMA = "rota"
SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_SCHEMA_PATTERN = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# Never printed. A passfile's name is no secret, but nobody needs it either.
_SECRET = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


class Address(NamedTuple):
    """A database and the schema in it."""

    options: dict[str, Any]
    """libpq's options."""
    schema: str
    shown: str
    """The URL for people."""
    place: str
    """Names the data: server, database and schema."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be printed."""
        return tuple(str(self.options[name]) for name in _SECRET if self.options.get(name))

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"


def schema_name(value: Any) -> str:
    """A schema's name that needs no quoting; ``ValueError`` otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"schema must be a str, got {value!r}")
    if not _SCHEMA_PATTERN.fullmatch(value) or value.startswith("pg_"):
        raise ValueError(
            f"schema must be 1 to 63 of the characters a-z, 0-9 and _, not begin with a digit or pg_, got {value!r}"
        )
    return value


def of_url(url: str, schema: str) -> Address:
    """The address in a whole URL that holds none of Rota's options."""
    from urllib.parse import parse_qsl

    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in SCHEMES:
        raise ValueError("listen_url must begin with postgresql://")
    location, _, query = rest.partition("?")
    return parse(location, dict(parse_qsl(query, keep_blank_values=True)), schema)


def parse(location: str, query: dict[str, str], schema: str) -> Address:
    """The address in ``user:password@host:port/database`` and libpq's options. Errors never quote the location."""
    if location.count("@") > 1 or "@" in location.partition("/")[2] or "#" in location:
        raise ValueError(
            "the URL is ambiguous: write @ # / ? and : in a user name or password as %40 %23 %2F %3F and %3A"
        )
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    for name in query:
        if name not in known and name != "ssl":
            raise ValueError(f"{name!r} is an option neither of Rota's nor of libpq's")
    try:
        options = conninfo_to_dict(
            f"postgresql://{location}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        )
    except psycopg.Error:
        # libpq's message quotes what it could not read, which may be the password.
        raise ValueError(
            "PostgreSQL's libpq does not understand the URL: postgresql://user:password@host:port/database?name=value, "
            "with special characters in names and passwords written as %XX"
        ) from None
    host = str(options.get("host") or options.get("hostaddr") or "")
    port = str(options.get("port") or "")
    database = str(options.get("dbname") or "")
    user = str(options.get("user") or "")
    shown_query = {name: value for name, value in query.items() if name not in _SECRET}
    if schema != SCHEMA:
        shown_query["schema"] = schema
    who = quote(user, safe="") + (":***" if options.get("password") else "")
    shown = (
        "postgresql://"
        + (f"{who}@" if who else "")
        + ("" if host.startswith("/") or "host" in query else host)
        + (f":{port}" if port and "port" not in query else "")
        + (f"/{quote(database, safe='')}" if database else "")
        + (f"?{urlencode(shown_query, safe='/')}" if shown_query else "")
    )
    return Address(options, schema, shown, f"postgresql:{host}:{port}/{database}:{schema}")
