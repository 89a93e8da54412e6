"""``rota work``: a command for each job and message, on the worker runtime."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from rota import names
from rota.cli.addresses import Address, is_bare, resolve
from rota.cli.exits import FAILED, OK, USAGE, CommandError
from rota.cli.session import Session
from rota.cli.work_command import Command
from rota.cli.work_drain import Drain, Left, left_in_queue, left_in_transport
from rota.cli.work_log import WorkLog
from rota.worker.commands import CommandWorker
from rota.worker.outcomes import CannotRun

if TYPE_CHECKING:
    from rota import Store


def work(arguments: argparse.Namespace, session: Session) -> int:
    """Run a command for each job or message of the addresses."""
    command = [_executable(arguments.child[0]), *arguments.child[1:]]
    for option in ("timeout", "visibility", "grace"):
        value = getattr(arguments, option)
        if value is not None and (value < 0 or (value == 0 and option != "grace")):
            least = "0 seconds or more" if option == "grace" else "more than 0 seconds"
            raise CommandError(USAGE, f"--{option} must be {least}, got {value:g}")
    # A bare name must exist; to find that out no store is created.
    store = session.open(create=not any(is_bare(text) for text in arguments.addresses))
    addresses = list(dict.fromkeys(resolve(store, text) for text in arguments.addresses))
    if arguments.min_priority is not None and any(address.kind == "queue" for address in addresses):
        raise CommandError(USAGE, "--min-priority is a floor for transports, a queue hands out by priority anyway")

    log = WorkLog(verbose=arguments.verbose, quiet=session.quiet)
    worker = CommandWorker(
        store,
        grace=arguments.grace,
        worker_id=names.new_worker_id() if arguments.worker is None else names.name(arguments.worker, "--worker"),
        # What ends by itself soon leaves sweeping to those that stay.
        housekeeping=not arguments.drain and arguments.max is None,
        at_once=arguments.parallel,
        at_most=arguments.max,
        on_settled=log.on_settled,
    )
    executor = Command(command, session.url, raw=arguments.raw)
    for address in addresses:
        worker.execute(
            *address,
            executor,
            timeout=arguments.timeout,
            visibility=arguments.visibility,
            min_priority=arguments.min_priority,
        )
    drain = Drain(worker, [_look(store, address, arguments.min_priority) for address in addresses])
    try:
        with log, drain if arguments.drain else nullcontext():
            worker.run()
    except CannotRun as error:
        raise CommandError(FAILED, f"{error}; what was claimed for it was given back") from None
    log.say("remark", log.result())
    if len(worker.stopped_by) > 1:
        return 128 + worker.stopped_by[-1]
    if drain.error is not None:
        raise drain.error
    if drain.left is Left.SUSPENDED:
        raise CommandError(FAILED, "what is left is suspended: see `rota stats`, then `rota resume`")
    return OK


def _look(store: Store, address: Address, floor: int | None) -> Callable[[], Left]:
    if address.kind == "queue":
        return partial(left_in_queue, store.queue(address.name))
    return partial(left_in_transport, store.transport(address.name), floor)


def _executable(name: str) -> str:
    """The command's path; found out before anything is claimed for it."""
    found = shutil.which(name)
    if found is None:
        raise CommandError(USAGE, f"there is no command {name!r} that can be run")
    return found
