"""The command line: every command with its options. Handlers are named, not imported, so that start-up stays quick."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rota import __version__
from rota.cli import arguments as values
from rota.cli import exits
from rota.cli.helptexts import ADDRESS_HELP, DESCRIPTION, RUN_EPILOG, WORK_EPILOG

_LIMIT = 50


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of one command line. What follows ``--`` after ``work`` is the command it runs."""
    command: list[str] | None = None
    if "--" in argv and _command_in(argv) == "work":
        cut = argv.index("--")
        argv, command = argv[:cut], argv[cut + 1 :]
    parser = build_parser()
    parsed = parser.parse_args(argv)
    if not parsed.handler:
        parser.print_help(sys.stderr)
        raise SystemExit(exits.USAGE)
    if parsed.command == "work":
        if not command:
            parser.error("work needs the command to run after `--`, for example: rota work queue:mail -- ./send-mail")
        parsed.child = command
    return parsed


def build_parser() -> argparse.ArgumentParser:
    """The parser, whole."""
    codes = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exits.MEANING.items())
    parser = argparse.ArgumentParser(
        prog="rota",
        description=DESCRIPTION,
        epilog=f"{ADDRESS_HELP}\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rota {__version__}")
    _add_store_options(parser, default=None)
    parser.set_defaults(handler=None, command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=_CommandParser)
    _add_intake(commands)
    _add_work(commands)
    _add_reading(commands)
    _add_control(commands)
    _add_demo(commands)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """Lets options stand between positionals: plain argparse gives up an optional positional at the first option."""

    _intermixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            parsed, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False
        if unknown:
            # Said here, with this command's usage; left over, it would be said with that of `rota`.
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown


def _command_in(argv: list[str]) -> str | None:
    """The command's name: the first word that is neither an option nor its value."""
    words = iter(argv)
    for word in words:
        if word == "--url":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


_URL_HELP = "the store; else ROTA_URL, else sqlite:///rota.db"


def _add_store_options(parser: argparse.ArgumentParser, default: Any, url_help: str = _URL_HELP) -> None:
    # The same options before and after the command: there they must not overwrite what was given before it.
    parser.add_argument("--url", metavar="URL", default=default, help=url_help)
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=False if default is None else default,
        help="no remarks on stderr (errors are still told)",
    )


def _add(
    commands: Any,
    name: str,
    handler: str,
    summary: str,
    *,
    json: bool = True,
    epilog: str | None = None,
    url_help: str = _URL_HELP,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_store_options(parser, argparse.SUPPRESS, url_help)
    if json:
        parser.add_argument("--json", action="store_true", help="one JSON document on stdout, times as POSIX seconds")
    parser.set_defaults(handler=f"rota.cli.{handler}")
    return parser


def _add_bulk_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only count, change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_page_options(parser: argparse.ArgumentParser, after: str, after_type: Any = int) -> None:
    parser.add_argument("--limit", type=values.count, default=_LIMIT, metavar="N", help=f"at most N (default {_LIMIT})")
    parser.add_argument("--after", type=after_type, metavar=after, help="go on after this one")


# -- Putting in ------------------------------------------------------------------------------------------------------


def _add_intake(commands: Any) -> None:
    enqueue = _add(commands, "enqueue", "intake:enqueue", "put one job, or with --jsonl many, into a queue")
    enqueue.add_argument("queue", metavar="QUEUE")
    enqueue.add_argument(
        "payload", metavar="PAYLOAD", nargs="?", help="JSON (or text with --text); - reads it from stdin"
    )
    _add_payload_options(enqueue)
    enqueue.add_argument(
        "--delay", type=values.duration, metavar="TIME", help="ready after this time (wins over --run-at)"
    )
    enqueue.add_argument("--run-at", type=values.instant, metavar="INSTANT", help="ready at this instant")
    enqueue.add_argument("--priority", type=int, default=0, metavar="N", help="higher goes first (default 0)")
    enqueue.add_argument(
        "--expires", type=values.duration, metavar="TIME", help="not handed out any more after this time"
    )
    enqueue.add_argument("--name", metavar="NAME", help="the job's name, for handlers")
    enqueue.add_argument("--key", metavar="KEY", help="store nothing while a job with this key is there")
    enqueue.add_argument("--key-by", metavar="FIELD", help="with --jsonl: the field that holds each job's key")
    enqueue.add_argument("--header", type=values.header, action="append", metavar="K=V", help="may be repeated")
    enqueue.add_argument("--max-attempts", type=int, metavar="N", help="deliveries before it is dead (default 3)")
    enqueue.add_argument(
        "--visibility", type=values.duration, metavar="TIME", help="how long a claim holds (default 300)"
    )
    enqueue.add_argument(
        "--backoff-base", type=values.duration, metavar="TIME", help="retries wait 1, 2, 4 … times this (default 5)"
    )
    enqueue.add_argument(
        "--keep-done", type=values.duration, metavar="TIME", help="keep a record of done jobs this long (default 0)"
    )
    enqueue.add_argument(
        "--dead-letter-retention",
        type=values.duration,
        metavar="TIME",
        help="keep dead ones this long (default: for ever)",
    )
    enqueue.add_argument(
        "--key-ttl", type=values.duration, metavar="TIME", help="a key is taken at least this long (default 300)"
    )

    publish = _add(
        commands, "publish", "intake:publish", "append one message, or with --jsonl many, to groups of a transport"
    )
    publish.add_argument("transport", metavar="TRANSPORT")
    publish.add_argument("group", metavar="GROUP", nargs="?", help="left out with --group-by")
    publish.add_argument(
        "payload", metavar="PAYLOAD", nargs="?", help="JSON (or text with --text); - reads it from stdin"
    )
    _add_payload_options(publish)
    publish.add_argument(
        "--group-by", metavar="FIELD", help="the field of the payload that names the group (dots go deeper)"
    )
    publish.add_argument("--priority", type=int, default=0, metavar="N", help="of groups made by this (default 0)")
    publish.add_argument("--key", metavar="KEY", help="store nothing while a message with this key is there")
    publish.add_argument("--header", type=values.header, action="append", metavar="K=V", help="may be repeated")
    publish.add_argument("--max-deliveries", type=int, metavar="N", help="the transport's own: then a message is dead")
    publish.add_argument(
        "--poison", choices=("dead-letter", "hold"), help="the transport's own: what a dead one does to its group"
    )
    publish.add_argument(
        "--backoff-base",
        type=values.duration,
        metavar="TIME",
        help="the transport's own: retries wait 1, 2, 4 … times this",
    )


def _add_payload_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jsonl", metavar="FILE", help="one JSON payload a line; - is stdin; all of them or none is stored"
    )
    parser.add_argument("--text", action="store_true", help="payloads are plain strings, not JSON")
    parser.add_argument("--skip-bad", action="store_true", help="with --jsonl: leave bad lines out, tell which")


# -- Working off -----------------------------------------------------------------------------------------------------


def _add_work(commands: Any) -> None:
    work = _add(commands, "work", "work:work", "run a command for each job or message", json=False, epilog=WORK_EPILOG)
    work.usage = "rota work ADDRESS [ADDRESS ...] [options] -- CMD [ARG ...]"
    work.add_argument("addresses", metavar="ADDRESS", nargs="+")
    work.add_argument("-j", "--parallel", type=values.count, default=1, metavar="N", help="so many at once (default 1)")
    work.add_argument("--drain", action="store_true", help="end when nothing is left, retries included")
    work.add_argument("--max", type=values.count, metavar="N", help="end after N jobs and messages")
    work.add_argument(
        "--timeout", type=values.duration, metavar="TIME", help="end a command that runs longer, and retry"
    )
    work.add_argument(
        "--visibility", type=values.duration, metavar="TIME", help="how long a claim holds between two heartbeats"
    )
    work.add_argument("--min-priority", type=int, metavar="N", help="transports: only groups of at least this priority")
    work.add_argument(
        "--grace",
        type=values.duration,
        default=25.0,
        metavar="TIME",
        help="wait so long for running commands when stopped (default 25)",
    )
    work.add_argument("--raw", action="store_true", help="give a payload that is a string as it is, not as JSON")
    work.add_argument("--worker", metavar="ID", help="worker id (default: host, process and a random part)")
    work.add_argument("-v", "--verbose", action="store_true", help="tell every outcome, not only failures")

    run = _add(
        commands,
        "run",
        "run:run",
        "run a worker that a Python module defines",
        json=False,
        epilog=RUN_EPILOG,
        url_help="the store; else the one the worker names, else ROTA_URL",
    )
    run.add_argument("target", metavar="MODULE:WORKER")
    run.add_argument(
        "--grace",
        type=values.duration,
        metavar="TIME",
        help="wait so long for running handlers (default: the worker's own)",
    )
    run.add_argument("--worker", metavar="ID", help="worker id (default: the worker's own)")
    run.add_argument(
        "--health",
        metavar="[HOST:]PORT",
        help="answer /healthz, /readyz and /metrics over HTTP (default host: 127.0.0.1; port 0: any free one)",
    )
    run.add_argument("-v", "--verbose", action="store_true", help="log what Rota does in detail")


# -- Looking ---------------------------------------------------------------------------------------------------------


def _add_reading(commands: Any) -> None:
    stats = _add(commands, "stats", "reading:stats", "counts of queues and transports")
    stats.add_argument("addresses", metavar="ADDRESS", nargs="*", help="default: all")

    top = _add(commands, "top", "top:top", "a live view: queues, transports, groups that lag, workers", json=False)
    top.add_argument("addresses", metavar="ADDRESS", nargs="*", help="default: all")
    top.add_argument("--interval", type=values.duration, default=2.0, metavar="TIME", help="between looks (default 2)")
    top.add_argument("--once", action="store_true", help="look once, then end; else q or Ctrl-C ends it")
    top.add_argument("--json", action="store_true", help="one JSON document on a line for each look")

    groups = _add(commands, "groups", "reading:groups", "groups of a transport that have messages")
    groups.add_argument("address", metavar="TRANSPORT")
    groups.add_argument("--state", choices=("ready", "leased", "parked", "suspended"))
    _add_page_options(groups, "GROUP", str)

    jobs = _add(commands, "jobs", "reading:jobs", "jobs of a queue, by id")
    jobs.add_argument("address", metavar="QUEUE")
    jobs.add_argument("--state", choices=("pending", "processing", "done", "dead"))
    jobs.add_argument("--next", action="store_true", help="those a claim would hand out now, in its order")
    _add_page_options(jobs, "ID")

    show = _add(commands, "show", "reading:show", "everything about one job, or the messages of one group")
    show.add_argument("address", metavar="ADDRESS")
    show.add_argument("item", metavar="ID|GROUP")
    show.add_argument("--limit", type=values.count, default=_LIMIT, metavar="N", help="messages (default 50)")

    explain = _add(commands, "explain", "reading:explain", "why a job or group is not claimable now, and since when")
    explain.add_argument("address", metavar="ADDRESS")
    explain.add_argument("item", metavar="ID|GROUP")

    dead = _add(commands, "dead", "dead:dead", "dead letters with their errors; --purge deletes them")
    dead.add_argument("address", metavar="ADDRESS")
    dead.add_argument("--group", metavar="GROUP", help="transports: of this group only")
    dead.add_argument("--purge", action="store_true", help="delete letters: with --id, --older-than or --all")
    dead.add_argument(
        "--id", type=values.letter, action="append", metavar="LETTER", help="a letter's id, may be repeated"
    )
    dead.add_argument(
        "--older-than", type=values.duration, metavar="TIME", help="with --purge: those dead for this long"
    )
    dead.add_argument("--all", action="store_true", help="with --purge: all of them")
    _add_bulk_options(dead)
    _add_page_options(dead, "LETTER")

    _add(commands, "doctor", "doctor:doctor", "facts about the engine and known dangers")

    migrate = _add(
        commands, "migrate", "migrate:migrate", "bring the store's schema up to date; any number may do so at once"
    )
    migrate.add_argument(
        "--sql", action="store_true", help="print the SQL that would do it, change nothing (PostgreSQL)"
    )
    migrate.add_argument(
        "--since",
        type=int,
        metavar="VERSION",
        help="with --sql: from this schema version, 0 for none, without connecting",
    )


# -- Steering --------------------------------------------------------------------------------------------------------


def _add_control(commands: Any) -> None:
    redrive = _add(commands, "redrive", "dead:redrive", "make dead letters live again")
    redrive.add_argument("address", metavar="ADDRESS")
    redrive.add_argument(
        "id", type=values.letter, nargs="*", metavar="LETTER", help="ids of letters, as `rota dead` shows them"
    )
    redrive.add_argument("--all", action="store_true", help="all of them")
    redrive.add_argument(
        "--position", choices=("tail", "original"), default="tail", help="transports: where in the group"
    )
    _add_bulk_options(redrive)

    purge = _add(
        commands, "purge", "control:purge", "delete the jobs of a queue in one state, or groups of a transport"
    )
    purge.add_argument("address", metavar="ADDRESS")
    purge.add_argument("--state", choices=("pending", "processing", "done", "dead"), help="queues: which jobs")
    purge.add_argument("--group", action="append", metavar="GROUP", help="transports: which group, may be repeated")
    purge.add_argument("--all", action="store_true", help="transports: every group")
    _add_bulk_options(purge)

    cancel = _add(
        commands, "cancel", "control:cancel", "delete pending or processing jobs by id; several are asked for"
    )
    cancel.add_argument("address", metavar="QUEUE")
    cancel.add_argument("id", type=int, nargs="+", metavar="ID")
    _add_bulk_options(cancel)

    for name, summary in (("suspend", "stop handing out"), ("resume", "hand out again")):
        switch = _add(commands, name, f"control:{name}", f"{summary}: a queue, a transport, or one group of it")
        switch.add_argument("address", metavar="ADDRESS")
        switch.add_argument("--group", metavar="GROUP", help="transports: this group only")

    sweep = _add(
        commands, "sweep", "control:sweep", "bury expired jobs, delete what is past its retention (never asks)"
    )
    sweep.add_argument("addresses", metavar="ADDRESS", nargs="*", help="default: all")
    _add_bulk_options(sweep)


def _add_demo(commands: Any) -> None:
    demo = _add(commands, "demo", "demo:demo", "work off the standard library's source files, kill a worker, verify")
    demo.add_argument("--limit", type=values.count, metavar="N", help="only the first N files")
    demo.add_argument("--workers", type=values.count, default=4, metavar="N", help="worker processes (default 4)")
