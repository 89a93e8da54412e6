"""The store a command works on: which URL, opened how, and shown without its password."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from rota.cli.output import escape
from rota.masking import masked

if TYPE_CHECKING:
    from rota import Store

DEFAULT_URL = "sqlite:///rota.db"


class Session:
    """One command's URL and store."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.explicit_url: str | None = arguments.url
        self.url: str = arguments.url or os.environ.get("ROTA_URL") or DEFAULT_URL
        self.json: bool = getattr(arguments, "json", False)
        self.quiet: bool = arguments.quiet
        self._store: Store | None = None

    @property
    def shown_url(self) -> str:
        """The URL without a password."""
        return masked(self.url)

    def open(self, *, create: bool, migrate: bool | None = None) -> Store:
        """Open the store, saying on stderr which one it is. Reading commands pass ``create=False``."""
        import rota

        self.tell(storing=create)
        self._store = rota.open(self.url, create=create, migrate=migrate)
        return self._store

    def tell(self, *, storing: bool) -> None:
        """Say which store it is, and what becomes of it if that is not what somebody who stores expects."""
        self.note(f"rota: {escape(self.shown_url)}")
        if storing and self.url.startswith("memory:"):
            self.note("rota: memory:// lives in this process only; nothing of it is left when the command ends")

    def note(self, text: str) -> None:
        """A line for people on stderr, not printed with ``--quiet``."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def without_password(self, text: str) -> str:
        """``text`` with this URL masked wherever it occurs."""
        shown = masked(self.url)
        return text if shown == self.url else text.replace(self.url, shown)

    def close(self) -> None:
        """Close the store if it was opened."""
        if self._store is not None:
            self._store.close()
            self._store = None
