"""The commands that change: ``purge``, ``cancel``, ``suspend``, ``resume``, ``sweep``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rota.cli.addresses import Address, existing, is_bare, resolve
from rota.cli.confirm import confirm
from rota.cli.dead import every_letter
from rota.cli.exits import NOT_FOUND, OK, USAGE, CommandError
from rota.cli.output import counted, escape, print_json
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota import JobRecord, Queue, Store, Transport

_PAGE = 1_000


def purge(arguments: argparse.Namespace, session: Session) -> int:
    """Delete the jobs of a queue in one state, or the messages of groups."""
    store = session.open(create=False)
    address = resolve(store, arguments.address)
    if address.kind == "queue":
        if arguments.state is None or arguments.group or arguments.all:
            raise CommandError(USAGE, f"{address} is a queue: purge needs --state, and takes neither --group nor --all")
        return _purge_queue(arguments, session, store.queue(address.name), address)
    if arguments.state is not None or bool(arguments.group) == arguments.all:
        raise CommandError(USAGE, f"{address} is a transport: purge needs --group GROUP or --all, and takes no --state")
    return _purge_transport(arguments, session, store.transport(address.name), address)


def _purge_queue(arguments: argparse.Namespace, session: Session, queue: Queue, address: Address) -> int:
    state = arguments.state
    if arguments.dry_run or not arguments.yes:
        count = _count_jobs(queue, state)
        if arguments.dry_run:
            return _tell(session, {"would_purge": count}, f"would delete {counted(count, f'{state} job')} of {address}")
        confirm(arguments, session, f"delete {counted(count, f'{state} job')} of {address}")
    deleted = queue.purge(state)
    return _tell(session, {"purged": deleted}, f"deleted {counted(deleted, f'{state} job')} of {address}")


def _purge_transport(arguments: argparse.Namespace, session: Session, transport: Transport, address: Address) -> int:
    sizes = _group_sizes(transport)
    chosen = sorted(sizes) if arguments.all else arguments.group
    count = sum(sizes.get(group, 0) for group in chosen)
    where = f"in {counted(len(chosen), 'group')} of {address}"
    if arguments.dry_run:
        document = {"would_purge": count, "groups": len(chosen)}
        return _tell(session, document, f"would delete {counted(count, 'message')} {where}")
    confirm(arguments, session, f"delete {counted(count, 'message')} {where}")
    deleted = sum(transport.purge(group) for group in chosen)
    document = {"purged": deleted, "groups": len(chosen)}
    _tell(session, document, f"deleted {counted(deleted, 'message')} {where}")
    return NOT_FOUND if arguments.group and not deleted else OK


def cancel(arguments: argparse.Namespace, session: Session) -> int:
    """Delete pending or processing jobs by id."""
    store = session.open(create=False)
    address = existing(store, arguments.address, "queue")
    queue = store.queue(address.name)
    ids = list(dict.fromkeys(arguments.id))
    if arguments.dry_run:
        live = [number for number in ids if _is_live(queue, number)]
        return _tell(session, {"would_cancel": live}, f"would cancel {len(live)} of {len(ids)} jobs of {address}")
    if len(ids) > 1:
        confirm(arguments, session, f"cancel {len(ids)} jobs of {address}")
    done = [number for number in ids if queue.cancel(number)]
    missed = [number for number in ids if number not in set(done)]
    text = f"canceled {len(done)} of {len(ids)} jobs of {address}"
    if missed:
        text += f"; not pending or processing: {', '.join(map(str, missed))}"
    _tell(session, {"canceled": done, "missed": missed}, text)
    return NOT_FOUND if missed else OK


def suspend(arguments: argparse.Namespace, session: Session) -> int:
    """Stop handing out. What is not there yet may be suspended before it comes (T9), so this may create the store."""
    return _switch(arguments, session, "suspend", "suspended", create=not is_bare(arguments.address))


def resume(arguments: argparse.Namespace, session: Session) -> int:
    """Lift a suspension."""
    return _switch(arguments, session, "resume", "resumed", create=False)


def _switch(arguments: argparse.Namespace, session: Session, verb: str, done: str, *, create: bool) -> int:
    store = session.open(create=create)
    address = resolve(store, arguments.address)
    what = str(address)
    if address.kind == "queue":
        if arguments.group is not None:
            raise CommandError(USAGE, f"{address} is a queue and has no groups")
        changed: bool = getattr(store.queue(address.name), verb)()
    else:
        changed = getattr(store.transport(address.name), verb)(arguments.group)
        if arguments.group is not None:
            what = f"group {arguments.group!r} of {address}"
    unchanged = "was suspended already" if verb == "suspend" else "was not suspended"
    return _tell(session, {"changed": changed}, f"{done} {what}" if changed else f"{what} {unchanged}")


def sweep(arguments: argparse.Namespace, session: Session) -> int:
    """Do what is due by the items' own options: bury expired jobs, delete what is past its retention."""
    store = session.open(create=False)
    if arguments.addresses:
        addresses = [resolve(store, text) for text in arguments.addresses]
    else:
        addresses = [Address("queue", name) for name in store.queues()]
        addresses += [Address("transport", name) for name in store.transports()]
    results: list[dict[str, Any]] = []
    for address in addresses:
        counts = _sweep_one(store, address, arguments.dry_run)
        results.append({"address": str(address), **counts})
        if not session.json:
            told = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in counts.items())
            print(f"{escape(str(address))}: {told}")
    if session.json:
        print_json({"dry_run": arguments.dry_run, "swept": results})
    elif not addresses:
        print("(nothing in this store)")
    return OK


def _sweep_one(store: Store, address: Address, dry_run: bool) -> dict[str, int]:
    if address.kind == "transport":
        transport = store.transport(address.name)
        # Retention is the transport's own option, which only the engine judges: no dry run can count it from outside.
        return {"letters_now": _count_letters(transport)} if dry_run else {"letters_deleted": transport.sweep()}
    queue = store.queue(address.name)
    if not dry_run:
        return {"expired": queue.sweep_expired()}
    now = store.now()
    return {"would_" + verb: count for verb, count in _due(queue, now).items()}


def _due(queue: Queue, now: float) -> dict[str, int]:
    """What a sweep would do now (Q12): for people, it may have changed when the sweep runs."""
    due = {"expire": 0, "delete_letters": 0, "delete_done": 0}
    for job in _every_job(queue, None):
        if job.state == "dead":
            kept = job.dead_letter_retention
            due["delete_letters"] += kept is not None and (job.died_at or 0) + kept <= now
        elif job.state == "done":
            due["delete_done"] += (job.done_at or 0) + job.keep_done <= now
        else:
            due["expire"] += job.expires_at is not None and job.expires_at <= now
    return due


# -- Counting for the question and the dry run -----------------------------------------------------------------------


def _count_jobs(queue: Queue, state: str) -> int:
    stats = queue.stats()
    if state not in stats.capped:
        count: int = getattr(stats, state)
        return count
    return sum(1 for _ in (every_letter(queue) if state == "dead" else _every_job(queue, state)))


def _every_job(queue: Queue, state: Any) -> Iterator[JobRecord]:
    after: int | None = None
    while True:
        page = queue.jobs(state, _PAGE, after)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _group_sizes(transport: Transport) -> dict[str, int]:
    sizes: dict[str, int] = {}
    after: str | None = None
    while True:
        page = transport.groups(None, _PAGE, after)
        sizes.update((group.group_id, group.messages) for group in page)
        if len(page) < _PAGE:
            return sizes
        after = page[-1].group_id


def _count_letters(transport: Transport) -> int:
    return sum(1 for _ in every_letter(transport))


def _is_live(queue: Queue, number: int) -> bool:
    job = queue.get_job(number)
    return job is not None and job.state in ("pending", "processing")


def _tell(session: Session, document: dict[str, Any], text: str) -> int:
    if session.json:
        print_json(document)
    else:
        print(escape(text))
    return OK
