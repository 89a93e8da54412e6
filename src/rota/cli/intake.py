"""``rota enqueue`` and ``rota publish``: one payload from the command line, or a file of them, all or none."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rota import names
from rota.cli.addresses import of_kind
from rota.cli.arguments import exact_json
from rota.cli.exits import OK, REFUSED, USAGE, CommandError
from rota.cli.lines import Lines
from rota.cli.output import escape, print_json
from rota.cli.session import Session
from rota.public import Item


def enqueue(arguments: argparse.Namespace, session: Session) -> int:
    """Put one job, or the jobs of a file, into a queue."""
    address = of_kind(arguments.queue, "queue")
    _check_source(arguments, arguments.payload, "PAYLOAD")
    _only_with_jsonl(arguments, "key_by")
    _not_with_jsonl(arguments, "key")
    options = {
        "name": arguments.name,
        "delay": arguments.delay,
        "run_at": arguments.run_at,
        "priority": arguments.priority,
        "expires": arguments.expires,
        "headers": dict(arguments.header) if arguments.header else None,
    }
    payload = None if arguments.jsonl else _payload(arguments)
    queue = session.open(create=True).queue(
        address.name,
        visibility=arguments.visibility,
        max_attempts=arguments.max_attempts,
        backoff_base=arguments.backoff_base,
        keep_done=arguments.keep_done,
        dead_letter_retention=arguments.dead_letter_retention,
        key_ttl=arguments.key_ttl,
    )
    if not arguments.jsonl:
        return _told_one(session, "id", queue.enqueue(payload, key=arguments.key, **options))

    key_by = arguments.key_by

    def item(line: Any) -> Item:
        return Item(line, key=None if key_by is None else names.name(_field(line, key_by), "key"), **options)

    lines = _lines(arguments, session)
    return _told_many(session, "ids", queue.enqueue_many(lines.items(item)), lines, str(address))


def publish(arguments: argparse.Namespace, session: Session) -> int:
    """Append one message, or the messages of a file, to groups of a transport."""
    address = of_kind(arguments.transport, "transport")
    group, field = arguments.group, arguments.group_by
    if field is not None and not arguments.jsonl and arguments.payload is None:
        # With --group-by the only word that is left is the payload.
        group, arguments.payload = None, group
    if (group is None) == (field is None):
        raise CommandError(USAGE, "publish needs either GROUP or --group-by FIELD")
    _check_source(arguments, arguments.payload, "PAYLOAD")
    _not_with_jsonl(arguments, "key")
    _not_with_jsonl(arguments, "header")
    payload = None if arguments.jsonl else _payload(arguments)
    if field is not None and not arguments.jsonl:
        try:
            group = _field(payload, field)
        except ValueError as error:
            raise CommandError(REFUSED, f"{error}; nothing was stored") from None
    transport = session.open(create=True).transport(
        address.name,
        max_deliveries=arguments.max_deliveries,
        poison=arguments.poison,
        backoff_base=arguments.backoff_base,
    )
    if not arguments.jsonl:
        headers = dict(arguments.header) if arguments.header else None
        seq = transport.publish(group, payload, arguments.priority, key=arguments.key, headers=headers)
        return _told_one(session, "seq", seq)

    def item(line: Any) -> tuple[str, Any, int]:
        return names.name(group if field is None else _field(line, field), "group"), line, arguments.priority

    lines = _lines(arguments, session)
    return _told_many(session, "seqs", transport.publish_many(lines.items(item)), lines, str(address))


# -- Options that belong together ------------------------------------------------------------------------------------


def _check_source(arguments: argparse.Namespace, payload: str | None, what: str) -> None:
    if (payload is None) == (arguments.jsonl is None):
        raise CommandError(USAGE, f"give either {what} (- reads it from stdin) or --jsonl FILE")
    _only_with_jsonl(arguments, "skip_bad")


def _only_with_jsonl(arguments: argparse.Namespace, option: str) -> None:
    if getattr(arguments, option) and not arguments.jsonl:
        raise CommandError(USAGE, f"--{option.replace('_', '-')} goes with --jsonl only")


def _not_with_jsonl(arguments: argparse.Namespace, option: str) -> None:
    if getattr(arguments, option) and arguments.jsonl:
        raise CommandError(USAGE, f"--{option.replace('_', '-')} is for a single payload, not for --jsonl")


def _lines(arguments: argparse.Namespace, session: Session) -> Lines:
    return Lines(arguments.jsonl, text=arguments.text, skip_bad=arguments.skip_bad, quiet=session.quiet or session.json)


# -- Payloads --------------------------------------------------------------------------------------------------------


def _payload(arguments: argparse.Namespace) -> Any:
    text: str = arguments.payload
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise CommandError(REFUSED, f"stdin is not UTF-8: {error}; nothing was stored") from None
    if arguments.text:
        return text
    try:
        return exact_json(text)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= 60 else text[:59] + "…"
        raise CommandError(
            REFUSED, f"the payload is not JSON: {error}: {shown!r} (add --text for a plain string); nothing was stored"
        ) from None


def _field(payload: Any, path: str) -> str:
    """The text at a dotted path of a payload; numbers are taken as they are written. ``ValueError`` if not there."""
    value = payload
    if isinstance(payload, dict) and path in payload:
        # A field may itself have a dot in its name.
        value = payload[path]
    else:
        for step in path.split("."):
            if not isinstance(value, dict) or step not in value:
                raise ValueError(f"field {path!r} is missing")
            value = value[step]
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"field {path!r} must be a string or a whole number, got {type(value).__name__}")


# -- Telling ---------------------------------------------------------------------------------------------------------


def _told_one(session: Session, what: str, number: int) -> int:
    if session.json:
        print_json({what: number})
    else:
        print(number)
    return OK


def _told_many(session: Session, what: str, numbers: list[int], lines: Lines, where: str) -> int:
    """Tell what was stored; skipped lines are told even with ``--quiet``."""
    if session.json:
        skipped = [{"line": number, "error": why} for number, why in lines.bad]
        print_json({what: numbers, "skipped": skipped})
    else:
        reach = f" ({what} {min(numbers)} to {max(numbers)})" if numbers else ""
        print(f"stored {len(numbers)} in {escape(where)}{reach}")
    skipped_text = lines.told_skipped()
    if skipped_text:
        print(f"rota: {skipped_text}", file=sys.stderr)
    return OK
