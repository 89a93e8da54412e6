"""URLs for people: without a password (E)."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+")
_SECRET_OPTION = re.compile(r"(?i)([?&;][^=&;]*(?:password|passwd|pwd|secret|scram_)[^=&;]*=)[^&;]*")


def masked(url: str) -> str:
    """The URL for people: no password in the user part, none among the options.

    Rather hides too much than too little: a password may itself hold ``@``, ``/`` or ``?``.
    """
    scheme = _SCHEME.match(url)
    start = scheme.end() if scheme else 0
    if "@" in url[start:] and not url.startswith(("sqlite:", "memory:")):
        user, _, place = url[start:].rpartition("@")
        name, colon, _ = user.partition(":")
        url = url[:start] + name + (":***" if colon else "") + "@" + place
    return _SECRET_OPTION.sub(r"\1***", url)
