"""``rota run``: run a worker that a module of the application defines."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from rota.cli.exits import FAILED, OK, USAGE, CommandError
from rota.cli.output import escape
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota import Worker


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Run the worker until it is told to stop; 128 and the signal's number when it was told twice."""
    worker = load(arguments.target)
    if worker.stopped_by:
        # Who sent that signal meant what was running, not the run that would come now.
        module = arguments.target.partition(":")[0]
        session.note(
            f"rota: {module} ran this worker itself when it was imported, so it is not run again; put that run() "
            'under if __name__ == "__main__":'
        )
        return _code(worker)
    if not worker.sources:
        raise CommandError(
            USAGE, f"{arguments.target} has no handlers: decorate some with worker.queue or worker.transport"
        )
    url = arguments.url or (os.environ.get("ROTA_URL") if worker.bound_to is None else None)
    if url:
        worker.bind(url)
    if worker.bound_to is None:
        raise CommandError(
            USAGE, f"{arguments.target} has no store: name one with --url or ROTA_URL, or in rota.Worker(…)"
        )
    if isinstance(worker.bound_to, str):
        session.url = worker.bound_to
        session.tell(storing=True)
    if arguments.grace is not None and arguments.grace < 0:
        raise CommandError(USAGE, f"--grace must be 0 seconds or more, got {arguments.grace:g}")
    grace = worker.grace if arguments.grace is None else arguments.grace
    worker.configure(grace=grace, worker_id=arguments.worker)
    _check_address(arguments.health)
    _set_up_logging(verbose=arguments.verbose, quiet=session.quiet)
    from rota.worker.outcomes import CannotRun

    try:
        worker.run(health=arguments.health)
    except CannotRun as error:
        raise CommandError(FAILED, f"{error}; what was claimed for it was given back") from None
    return _code(worker)


def _code(worker: Worker) -> int:
    return OK if len(worker.stopped_by) < 2 else 128 + worker.stopped_by[-1]


def _check_address(health: str | None) -> None:
    from rota.worker.endpoint import parse_address

    try:
        if health is not None:
            parse_address(health)
    except ValueError as error:
        raise CommandError(USAGE, f"--{error}") from None


# -- Finding it ------------------------------------------------------------------------------------------------------


def load(target: str) -> Worker:
    """The worker that ``module:name`` names. Raises ``CommandError`` with what is wrong about it."""
    from rota import Worker

    name, separator, path = target.partition(":")
    if not separator or not name or not path:
        raise CommandError(USAGE, f"{target!r} names no worker: give MODULE:NAME, for example myapp.tasks:worker")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise CommandError(USAGE, f"{name!r} is a file: give the module's name, {dotted}:{path}")
    module = _imported(name)
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CommandError(USAGE, f"{name} has no {path!r}{_others(module)}") from None
    if not isinstance(found, Worker):
        raise CommandError(USAGE, f"{target} is no rota.Worker but of type {type(found).__name__}{_others(module)}")
    return found


def _others(module: ModuleType) -> str:
    from rota import Worker

    names = [name for name, value in vars(module).items() if isinstance(value, Worker)]
    return f"; its workers: {', '.join(names)}" if names else "; it has no worker at its top level"


def _imported(name: str) -> ModuleType:
    """The module, looked for in the current directory first. What it raises is told with its own traceback."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise CommandError(
                USAGE, f"there is no module {error.name!r} in {here} or where else Python looks"
            ) from None
        traceback.print_exception(type(error), error, _from_module(error.__traceback__))
        raise CommandError(FAILED, f"importing {name} failed: {type(error).__name__}: {error}") from None


def _from_module(at: TracebackType | None) -> TracebackType | None:
    """A traceback without our frames and those of the import system before the module's own."""
    while at is not None and (
        at.tb_frame.f_code.co_filename in (__file__, importlib.__file__)
        or at.tb_frame.f_code.co_filename.startswith("<frozen importlib")
    ):
        at = at.tb_next
    return at


# -- Logging ---------------------------------------------------------------------------------------------------------


def _set_up_logging(*, verbose: bool, quiet: bool) -> None:
    """Readable lines on stderr, unless the application has its own logging; ``-v`` counts in either case."""
    import logging

    class Formatter(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:
            # A group's name must not act on the terminal. The traceback, if there is one, keeps its lines.
            record.message = escape(record.message)
            return super().formatMessage(record)

    if not logging.getLogger("rota.worker").hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, handlers=[handler])
    if verbose:
        logging.getLogger("rota").setLevel(logging.DEBUG)
