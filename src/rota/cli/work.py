"""``rota work``: options, signals and messages around ``rota.cli.work_loop``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
from types import FrameType

from rota import names
from rota.cli.addresses import Address, is_bare, resolve
from rota.cli.exits import FAILED, OK, USAGE, CommandError
from rota.cli.output import escape
from rota.cli.session import Session
from rota.cli.work_child import CannotStart
from rota.cli.work_items import Left, QueueSource, Source, TransportSource
from rota.cli.work_loop import Plan, Stop, Work


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

    def source(address: Address) -> Source:
        if address.kind == "queue":
            return QueueSource(store.queue(address.name), arguments.visibility)
        return TransportSource(store.transport(address.name), arguments.visibility, arguments.min_priority)

    plan = Plan(
        command=command,
        worker=names.new_worker_id() if arguments.worker is None else names.name(arguments.worker, "--worker"),
        parallel=arguments.parallel,
        drain=arguments.drain,
        at_most=arguments.max,
        timeout=arguments.timeout,
        grace=arguments.grace,
        raw=arguments.raw,
        url=session.url,
    )
    log = Log(verbose=arguments.verbose, quiet=session.quiet)
    stop = Stop()
    running = Work(plan, [source(address) for address in addresses], stop, log.say)
    try:
        with _Signals(stop):
            left = running.run()
    except CannotStart as error:
        raise CommandError(FAILED, f"{error}; what was claimed for it was given back") from None
    counts = running.counts
    log.say("result", ", ".join(f"{name} {counts[name]}" for name in counts if counts[name]) or "nothing to do")
    if stop.count > 1:
        return 128 + stop.number
    if left is Left.SUSPENDED:
        raise CommandError(FAILED, "what is left is suspended: see `rota stats`, then `rota resume`")
    return OK


def _executable(name: str) -> str:
    """The command's path; found out before anything is claimed for it."""
    found = shutil.which(name)
    if found is None:
        raise CommandError(USAGE, f"there is no command {name!r} that can be run")
    return found


class Log:
    """One line on stderr for each thing worth telling."""

    def __init__(self, *, verbose: bool, quiet: bool) -> None:
        self._verbose = verbose
        self._quiet = quiet
        self._lock = threading.Lock()

    def say(self, kind: str, text: str) -> None:
        """Tell a problem always, a remark unless quiet, a detail only when verbose."""
        if (kind == "detail" and not self._verbose) or (kind != "problem" and self._quiet):
            return
        with self._lock:
            try:
                print(f"rota work: {escape(text)}", file=sys.stderr, flush=True)
            except (OSError, ValueError):
                # Whoever read our messages is gone; the work goes on.
                pass


class _Signals:
    """While inside, SIGINT, SIGTERM and SIGHUP are counted instead of ending the process."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            # What the parent made us ignore (nohup) stays ignored; Ctrl-C of a shell's background job likewise.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before.setdefault(number, signal.signal(number, self._count))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _count(self, number: int, frame: FrameType | None) -> None:
        # Plain assignments only: a lock taken here could be held by the very code that was interrupted.
        self._stop.number = number
        self._stop.count += 1
