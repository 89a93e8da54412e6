"""Dead letters: ``rota dead`` lists or purges them, ``rota redrive`` makes them live again."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from rota.cli.addresses import handle, resolve
from rota.cli.confirm import confirm
from rota.cli.exits import NOT_FOUND, OK, USAGE, CommandError
from rota.cli.output import counted, error_line, escape, payload_text, print_json, print_table, record, when
from rota.cli.reading import cut, tell_more
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota import DeadJob, DeadMessage

_PAGE = 1_000
LETTER = "dead letter"

Letter: TypeAlias = "DeadJob | DeadMessage"


def dead(arguments: argparse.Namespace, session: Session) -> int:
    """List dead letters, or delete them with ``--purge``."""
    if arguments.purge:
        return _purge(arguments, session)
    for option in ("id", "older_than", "all", "yes", "dry_run"):
        if getattr(arguments, option):
            raise CommandError(USAGE, f"--{option.replace('_', '-')} goes with --purge only")
    store = session.open(create=False)
    address = resolve(store, arguments.address)
    if address.kind == "queue":
        if arguments.group is not None:
            raise CommandError(USAGE, f"{address} is a queue and has no groups")
        found: list[Any] = list(store.queue(address.name).dead_letters(arguments.limit + 1, arguments.after))
    else:
        transport = store.transport(address.name)
        found = list(transport.dead_letters(arguments.limit + 1, arguments.after, group_id=arguments.group))
    page, more = cut(found, arguments.limit)
    if session.json:
        print_json({address.kind: address.name, "dead_letters": [record(one) for one in page], "more": more})
        return OK
    if address.kind == "queue":
        columns: tuple[str, ...] = ("letter", "id", "died", "reason", "attempts", "error", "payload")
        rows: list[tuple[Any, ...]] = [
            (
                d.letter_id,
                d.id,
                when(d.died_at),
                d.reason,
                f"{d.attempts}/{d.max_attempts}",
                error_line(d.last_error),
                payload_text(d.payload),
            )
            for d in page
        ]
    else:
        columns = ("letter", "group", "seq", "died", "reason", "deliveries", "error", "event")
        rows = [
            (
                d.letter_id,
                d.group_id,
                d.seq,
                when(d.died_at),
                d.reason,
                d.deliveries,
                error_line(d.last_error),
                payload_text(d.event),
            )
            for d in page
        ]
    print_table(columns, rows, empty="no dead letters")
    tell_more(session, more, page[-1].letter_id if page else "")
    return OK


def _purge(arguments: argparse.Namespace, session: Session) -> int:
    chosen = [arguments.id is not None, arguments.older_than is not None, arguments.all]
    if sum(chosen) != 1:
        raise CommandError(USAGE, "dead --purge needs exactly one of --id, --older-than and --all")
    if arguments.group is not None:
        raise CommandError(USAGE, "--purge does not go with --group: list that group's letters and give their --id")
    store = session.open(create=False)
    address = resolve(store, arguments.address)
    letters = handle(store, address)
    if arguments.dry_run or not arguments.yes:
        horizon = None if arguments.older_than is None else store.now() - arguments.older_than
        count = _count(letters, arguments.id, lambda letter: horizon is None or letter.died_at <= horizon)
        if arguments.dry_run:
            return _told(session, "would_purge", count, f"would delete {counted(count, LETTER)} of {address}")
        confirm(arguments, session, f"delete {counted(count, LETTER)} of {address}")
    if arguments.older_than is not None:
        deleted = letters.purge_dead(older_than=arguments.older_than)
    else:
        deleted = letters.purge_dead("all" if arguments.all else arguments.id)
    _told(session, "purged", deleted, f"deleted {counted(deleted, LETTER)} of {address}")
    return NOT_FOUND if arguments.id and not deleted else OK


def redrive(arguments: argparse.Namespace, session: Session) -> int:
    """Make all dead letters, or those with these ids, live again."""
    if bool(arguments.id) == arguments.all:
        raise CommandError(USAGE, "redrive needs either letter ids (see `rota dead`) or --all")
    store = session.open(create=False)
    address = resolve(store, arguments.address)
    letters = handle(store, address)
    bulk = arguments.all or len(arguments.id) > 1
    if arguments.dry_run or (bulk and not arguments.yes):
        count = _count(letters, arguments.id or None, lambda letter: True)
        if arguments.dry_run:
            return _told(session, "would_redrive", count, f"would redrive {counted(count, LETTER)} of {address}")
        confirm(arguments, session, f"redrive {counted(count, LETTER)} of {address}")
    ids = letters.redrive("all" if arguments.all else arguments.id, position=arguments.position)
    _told(session, "redriven", ids, f"redriven {counted(len(ids), LETTER)} of {address}")
    return NOT_FOUND if arguments.id and not ids else OK


def _count(handle: Any, ids: list[int] | None, wanted: Callable[[Letter], bool]) -> int:
    """How many letters a bulk verb would touch: a count for people, it may have changed when the verb runs."""
    chosen = None if ids is None else set(ids)
    return sum(
        1 for letter in every_letter(handle) if wanted(letter) and (chosen is None or letter.letter_id in chosen)
    )


def every_letter(handle: Any) -> Iterator[Letter]:
    """All dead letters, page by page."""
    after: int | None = None
    while True:
        page: list[Letter] = handle.dead_letters(_PAGE, after)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].letter_id


def _told(session: Session, key: str, value: Any, text: str) -> int:
    if session.json:
        print_json({key: value})
    else:
        print(escape(text))
    return OK
