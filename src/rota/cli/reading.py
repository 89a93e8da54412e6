"""The commands that look: ``stats``, ``groups``, ``jobs``, ``show``, ``explain``. None of them creates a store."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rota.cli.addresses import every, existing, resolve
from rota.cli.exits import NOT_FOUND, OK, USAGE, CommandError
from rota.cli.output import (
    count_text,
    error_line,
    escape,
    payload_text,
    print_fields,
    print_json,
    print_table,
    record,
    seconds,
    when,
)
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota import JobRecord

T = TypeVar("T")

_JOB_COLUMNS = ("id", "state", "name", "priority", "attempts", "ready", "worker", "error", "payload")


def stats(arguments: argparse.Namespace, session: Session) -> int:
    """Counts of the queues and transports named, or of all."""
    store = session.open(create=False)
    addresses = [resolve(store, text) for text in arguments.addresses] or every(store)
    queues = [(a.name, store.queue(a.name).stats()) for a in addresses if a.kind == "queue"]
    transports = [(a.name, store.transport(a.name).stats()) for a in addresses if a.kind == "transport"]
    if session.json:
        print_json(
            {
                "queues": [{"name": name, **record(one)} for name, one in queues],
                "transports": [{"name": name, **record(one)} for name, one in transports],
            }
        )
        return OK
    if queues or not transports:
        columns = ("queue", "pending", "processing", "done", "dead", "oldest ready", "next due", "suspended")
        rows: list[Sequence[Any]] = [
            (
                name,
                *(count_text(one, state) for state in ("pending", "processing", "done", "dead")),
                seconds(one.oldest_ready_age),
                when(one.next_due_at),
                _yes(one.suspended),
            )
            for name, one in queues
        ]
        print_table(columns, rows, empty="no queues" if transports or arguments.addresses else "nothing in this store")
    if queues and transports:
        print()
    if transports:
        kinds = ("groups", "messages", "ready", "leased", "parked", "suspended_groups", "dead")
        heads = ("groups", "messages", "ready", "leased", "parked", "held back", "dead")
        rows = [
            (
                name,
                *(count_text(one, kind) for kind in kinds),
                seconds(one.oldest_ready_age),
                when(one.next_due_at),
                _yes(one.suspended),
            )
            for name, one in transports
        ]
        print_table(("transport", *heads, "oldest ready", "next due", "suspended"), rows)
    return OK


def groups(arguments: argparse.Namespace, session: Session) -> int:
    """Groups of a transport that have messages."""
    store = session.open(create=False)
    address = existing(store, arguments.address, "transport")
    found = store.transport(address.name).groups(arguments.state, arguments.limit + 1, arguments.after)
    page, more = cut(found, arguments.limit)
    if session.json:
        print_json({"transport": address.name, "groups": [record(one) for one in page], "more": more})
        return OK
    columns = ("group", "state", "messages", "priority", "oldest", "last claimed", "until", "worker")
    print_table(
        columns,
        [
            (
                g.group_id,
                g.state,
                g.messages,
                g.priority,
                when(g.oldest_at),
                when(g.last_claimed_at),
                when(g.until),
                g.worker_id,
            )
            for g in page
        ],
        empty="no groups",
    )
    tell_more(session, more, page[-1].group_id if page else "")
    return OK


def jobs(arguments: argparse.Namespace, session: Session) -> int:
    """Jobs of a queue by id, or those that go next."""
    store = session.open(create=False)
    address = existing(store, arguments.address, "queue")
    queue = store.queue(address.name)
    if arguments.next:
        if arguments.state or arguments.after is not None:
            raise CommandError(USAGE, "--next takes neither --state nor --after")
        page, more = queue.peek(arguments.limit), False
    else:
        page, more = cut(queue.jobs(arguments.state, arguments.limit + 1, arguments.after), arguments.limit)
    if session.json:
        print_json({"queue": address.name, "jobs": [record(one) for one in page], "more": more})
        return OK
    print_table(_JOB_COLUMNS, [_job_row(job) for job in page], empty="no jobs")
    tell_more(session, more, page[-1].id if page else "")
    return OK


def show(arguments: argparse.Namespace, session: Session) -> int:
    """Everything about one job, or the messages of one group in order."""
    store = session.open(create=False)
    address = resolve(store, arguments.address)
    if address.kind == "queue":
        job = store.queue(address.name).get_job(job_id(arguments.item))
        if job is None:
            raise CommandError(NOT_FOUND, f"{address} has no job {arguments.item}")
        if session.json:
            print_json(record(job))
        else:
            print_fields(_job_fields(job))
        return OK
    transport = store.transport(address.name)
    page, more = cut(transport.peek(arguments.item, arguments.limit + 1), arguments.limit)
    if not page:
        raise CommandError(NOT_FOUND, f"{address} has no messages in group {arguments.item!r}")
    if session.json:
        found = [record(one) for one in page]
        print_json({"transport": address.name, "group_id": arguments.item, "messages": found, "more": more})
        return OK
    print_table(
        ("seq", "published", "deliveries", "error", "event"),
        [(m.seq, when(m.published_at), m.deliveries, error_line(m.last_error), payload_text(m.event)) for m in page],
    )
    tell_more(session, more, None)
    return OK


def explain(arguments: argparse.Namespace, session: Session) -> int:
    """Why a job or group is, or is not, claimable."""
    store = session.open(create=False)
    address = resolve(store, arguments.address)
    if address.kind == "queue":
        explanation = store.queue(address.name).explain(job_id(arguments.item))
    else:
        explanation = store.transport(address.name).explain(arguments.item)
    if session.json:
        print_json({"address": str(address), "item": arguments.item, **record(explanation)})
    else:
        print_fields(
            [
                ("claimable", _yes(explanation.claimable) or "no"),
                ("reason", explanation.reason),
                ("since", when(explanation.since)),
                ("until", when(explanation.until)),
                ("worker", explanation.worker_id),
            ]
        )
    return NOT_FOUND if explanation.reason == "unknown" else OK


# -- Shared with the commands about dead letters ---------------------------------------------------------------------


def cut(found: list[T], limit: int) -> tuple[list[T], bool]:
    """A page of one more than asked: the page, and whether more follow."""
    return found[:limit], len(found) > limit


def tell_more(session: Session, more: bool, last: object) -> None:
    """Say on stderr that the listing was cut, and how to go on."""
    if more:
        how = "a larger --limit" if last is None else f"--after {escape(str(last))}"
        print(f"rota: more follow, see them with {how}", file=sys.stderr)


def job_id(text: str) -> int:
    """A job's id from the command line."""
    try:
        return int(text)
    except ValueError:
        raise CommandError(USAGE, f"a job's id is a whole number, got {text!r}") from None


# -- Rows ------------------------------------------------------------------------------------------------------------


def _job_row(job: JobRecord) -> tuple[Any, ...]:
    return (
        job.id,
        job.state,
        job.name,
        job.priority,
        f"{job.attempts}/{job.max_attempts}",
        when(job.run_at),
        job.worker_id,
        error_line(job.last_error),
        payload_text(job.payload),
    )


_INSTANTS = ("run_at", "enqueued_at", "expires_at", "claimed_at", "claim_expires_at", "died_at", "done_at")
_ERRORS = ("last_error", "previous_error")
_LENGTHS = ("visibility", "backoff_base", "dead_letter_retention", "keep_done")


def _job_fields(job: JobRecord) -> list[tuple[str, Any]]:
    fields: list[tuple[str, Any]] = []
    for field in dataclasses.fields(job):
        name, value = field.name, getattr(job, field.name)
        if name in _INSTANTS:
            value = when(value)
        elif name in _LENGTHS:
            value = None if value is None else f"{value:g} s"
        elif name in _ERRORS:
            value = None if value is None else value.split("\n")
        elif name in ("payload", "result", "headers"):
            value = payload_text(value)
        fields.append((name, value))
    return fields


def _yes(flag: bool) -> str:
    return "yes" if flag else ""
