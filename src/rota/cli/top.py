"""``rota top``: a live view of queues, transports, the groups that lag most and who holds what."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rota.cli.addresses import resolve
from rota.cli.exits import OK, USAGE, CommandError
from rota.cli.output import count_text, counted, escape, seconds, when
from rota.cli.session import Session
from rota.cli.top_figures import Figures, Gatherer
from rota.cli.top_screen import Screen, Section, screen
from rota.errors import EngineBusy, EngineUnavailable, OutcomeUnknown

_SHORTEST = 0.1
_ROWS = 10


def top(arguments: argparse.Namespace, session: Session) -> int:
    """Show it again and again until told to end."""
    if arguments.interval < _SHORTEST:
        raise CommandError(USAGE, f"--interval must be {_SHORTEST:g} seconds or more, got {arguments.interval:g}")
    store = session.open(create=False)
    gatherer = Gatherer(store, list(dict.fromkeys(resolve(store, text) for text in arguments.addresses)))
    if arguments.once:
        figures = gatherer.gather()
        if session.json:
            print(json.dumps(figures.document()), flush=True)
        else:
            with screen(live=False) as paper:
                paper.draw(_sections(figures, session))
        return OK
    with screen(live=not session.json and sys.stdout.isatty()) as shown:
        while True:
            _refresh(gatherer, session, shown)
            if shown.ended_within(arguments.interval):
                return OK


def _refresh(gatherer: Gatherer, session: Session, shown: Screen) -> None:
    """A store that does not answer may do so at the next look."""
    try:
        figures = gatherer.gather()
    except (EngineBusy, EngineUnavailable, OutcomeUnknown) as error:
        text = session.without_password(str(error))
        if session.json:
            print(json.dumps({"error": text}), flush=True)
        else:
            shown.draw([Section(f"the store does not answer: {text}")])
        return
    if session.json:
        print(json.dumps(figures.document()), flush=True)
    else:
        shown.draw(_sections(figures, session))


# -- Sections --------------------------------------------------------------------------------------------------------


def _sections(figures: Figures, session: Session) -> list[Section]:
    head = f"{escape(session.shown_url)}  {when(figures.at)}"
    if figures.more_sources:
        head += f"  ({counted(figures.more_sources, 'queue or transport')} not shown: name those to see)"
    found = [Section(head), _queues(figures), _transports(figures), _groups(figures), _workers(figures)]
    return [section for section in found if section is not None]


def _queues(figures: Figures) -> Section | None:
    if not figures.queues:
        return None
    columns = ("queue", "pending", "processing", "done", "dead", "oldest ready", "suspended")
    rows = [
        (
            name,
            *(count_text(stats, state) for state in columns[1:5]),
            seconds(stats.oldest_ready_age),
            "yes" if stats.suspended else "",
        )
        for name, stats in _fullest(figures.queues, lambda stats: stats.pending + stats.processing)
    ]
    return Section(None, columns, rows)


def _transports(figures: Figures) -> Section | None:
    if not figures.transports:
        return None
    kinds = ("groups", "messages", "ready", "leased", "parked", "dead")
    rows = [
        (
            name,
            *(count_text(stats, kind) for kind in kinds),
            seconds(stats.oldest_ready_age),
            "yes" if stats.suspended else counted(stats.suspended_groups, "group") if stats.suspended_groups else "",
        )
        for name, stats in _fullest(figures.transports, lambda stats: stats.messages)
    ]
    return Section(None, ("transport", *kinds, "oldest ready", "suspended"), rows)


def _fullest(sources: list[tuple[str, Any]], size: Any) -> list[tuple[str, Any]]:
    """Those with most in them, by name."""
    chosen = sorted(sources, key=lambda one: (-size(one[1]), one[0]))[:_ROWS]
    return sorted(chosen, key=lambda one: one[0])


def _groups(figures: Figures) -> Section | None:
    if not figures.groups:
        return None
    rows = [(row.transport, row.group_id, seconds(row.lag), row.reason, row.worker_id or "") for row in figures.groups]
    return Section(None, ("worst groups of", "group", "lag", "why", "worker"), rows)


def _workers(figures: Figures) -> Section | None:
    if not figures.workers:
        return None
    rows = [
        (row.worker_id, row.jobs, row.groups, row.lapsed or "", seconds(row.longest)) for row in figures.workers[:_ROWS]
    ]
    note = len(figures.workers) - len(rows)
    more = f"{note} more workers" if note else None
    if figures.partial:
        more = "there are more claims than were looked at"
    return Section(None, ("worker", "jobs", "groups", "lapsed", "longest"), rows, more)
