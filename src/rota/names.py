"""Names, keys, group ids, worker ids and headers (P4): checked once, where they enter."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MAX_NAME = 255
MAX_CHANNEL_PAYLOAD = 7_000
# The workers' own transport: never empty, of no interest to people, and nothing of the application's.
HOUSEKEEPING = "rota.housekeeping"

# C0 and C1 controls, DEL, and lone surrogates (which no database text can hold).
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def name(value: str, what: str) -> str:
    """Return ``value`` if it is a name: a non-empty string of at most 255 characters without control characters.

    Raises ``TypeError`` for another type and ``ValueError`` saying which rule it breaks (P4).
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, got {value!r}")
    if not value:
        raise ValueError(f"{what} must not be empty, got ''")
    if len(value) > MAX_NAME:
        raise ValueError(f"{what} must have at most {MAX_NAME} characters, got {len(value)}: {value[:40]!r}…")
    if not (value.isascii() and value.isprintable()):
        refused = _REFUSED.search(value)
        if refused:
            raise ValueError(
                f"{what} must not contain control characters or lone surrogates, got {value!r} "
                f"with {refused.group()!r} at position {refused.start()}"
            )
    return value if type(value) is str else str.__str__(value)


def optional_name(value: str | None, what: str) -> str | None:
    """``name`` that lets None through."""
    return None if value is None else name(value, what)


def headers(value: Mapping[str, str] | None) -> dict[str, str] | None:
    """A private copy of string headers, or None for none; keys are names, values any text that can be stored."""
    if not value:
        if value is None or isinstance(value, Mapping):
            return None
        raise TypeError(f"headers must be a dict of str to str, got {value!r}")
    if not isinstance(value, Mapping):
        raise TypeError(f"headers must be a dict of str to str, got {value!r}")
    copy: dict[str, str] = {}
    for key, text in value.items():
        if not isinstance(text, str):
            raise TypeError(f"headers[{key!r}] must be a str, got {text!r}")
        if "\0" in text or not _storable(text):
            raise ValueError(f"headers[{key!r}] must not contain NUL or lone surrogates, got {text!r}")
        copy[name(key, "header name")] = str(text)
    return copy


def channel_payload(value: str | None) -> str | None:
    """The payload of a notification (X6): text of at most 7,000 bytes in UTF-8 without NUL, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"payload must be a str or None, got {value!r}")
    if "\0" in value or not _storable(value):
        raise ValueError(f"payload must not contain NUL or lone surrogates, got {value[:80]!r}")
    size = len(value.encode())
    if size > MAX_CHANNEL_PAYLOAD:
        raise ValueError(f"payload must have at most {MAX_CHANNEL_PAYLOAD} bytes in UTF-8, got {size}")
    return value


def new_worker_id() -> str:
    """A worker id nobody else has: host, process id and eight random hex digits."""
    import socket  # not needed by everyone who imports Rota

    host = _REFUSED.sub("?", socket.gethostname())[:200] or "host"
    return f"{host}-{os.getpid()}-{os.urandom(4).hex()}"


def _storable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
