"""The question before a bulk verb (``--yes`` answers it, ``--dry-run`` only counts)."""

from __future__ import annotations

import argparse
import sys

from rota.cli.exits import FAILED, USAGE, CommandError
from rota.cli.output import escape
from rota.cli.session import Session


def confirm(arguments: argparse.Namespace, session: Session, action: str) -> None:
    """Return if the user agrees to ``action``; ``CommandError`` otherwise. Nobody to ask and no ``--yes``: refuse."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(USAGE, f"to {action} without a terminal to ask on, add --yes (or --dry-run to only count)")
    print(f"{escape(action)} at {escape(session.shown_url)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(FAILED, "not confirmed, nothing was changed")
