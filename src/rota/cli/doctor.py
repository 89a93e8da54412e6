"""``rota doctor``: facts about the engine, and known dangers."""

from __future__ import annotations

import argparse
import platform
from typing import Any

from rota import __version__
from rota.cli.exits import OK
from rota.cli.output import has_rich, print_fields, print_json
from rota.cli.session import Session


def doctor(arguments: argparse.Namespace, session: Session) -> int:
    """Print what the engine says of itself, and warnings with their remedy."""
    facts: dict[str, Any] = {
        "rota": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "rich": has_rich(),
    }
    store = session.open(create=False)
    facts["url"] = store.url
    facts.update(store.engine_facts())
    found = warnings(facts)
    if session.json:
        print_json({**facts, "warnings": found})
        return OK
    print_fields([(name.replace("_", " "), _shown(value)) for name, value in facts.items()])
    print()
    for text in found:
        print(f"warning: {text}")
    if not found:
        print("no known danger")
    return OK


def warnings(facts: dict[str, Any]) -> list[str]:
    """What of the facts is a danger, and what to do about it."""
    found: list[str] = []
    if facts.get("wal_reset_bug"):
        found.append(
            f"SQLite {facts.get('sqlite_version', '')} has the rare WAL-reset bug (3.7.0 to 3.51.2; fixed in 3.51.3, "
            "3.50.7 and 3.44.6). Rota's own processes checkpoint one at a time and avoid it; do not let other programs "
            "write to the file, or use a Python with a newer SQLite"
        )
    mode = facts.get("file_mode")
    if mode is not None and _mode(mode) & 0o077:
        found.append(f"others may read or write the database file (mode {_mode(mode):04o}): chmod 600 it")
    if facts.get("journal_mode") not in (None, "wal"):
        found.append(f"the journal mode is {facts['journal_mode']}, not wal: readers and writers block each other")
    if facts.get("synchronous_commit") in ("off", "local") or facts.get("fsync") == "off":
        found.append(
            "the server's synchronous_commit or fsync is off: a power cut may take the newest commits, or more"
        )
    if facts.get("standby"):
        found.append("the server is a standby: nothing can be stored there")
    if abs(facts.get("clock_ahead_seconds") or 0) > 5:
        found.append(
            f"the server's clock and this host's differ by {facts['clock_ahead_seconds']} s; the server's decides, but "
            "run_at computed here means another instant there"
        )
    if (facts.get("oldest_transaction_seconds") or 0) > 3600:
        found.append("a transaction has been open for over an hour: vacuum cannot remove what it might still see")
    if facts.get("durability") == "normal":
        found.append('durability is "normal": a power cut may take the newest commits (a process kill takes none)')
    return found


def _mode(value: int | str) -> int:
    return value if isinstance(value, int) else int(value, 8)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
