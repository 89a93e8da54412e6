"""The ``rota`` command. Each command calls methods of the public contract and prints; no rule lives here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from rota.cli import exits

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code (``rota.cli.exits``)."""
    _fill_in_streams()
    for stream in (sys.stdout, sys.stderr):
        # A name in another script must not end a listing on a terminal that cannot show it.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return exits.BROKEN_PIPE
    except OSError as error:
        # What the store does wrong comes as one of Rota's errors, so this is about our own files and streams.
        if os.environ.get("ROTA_DEBUG"):
            raise
        _forget_stdout()
        _say(f"rota: {error}")
        return exits.FAILED


def _fill_in_streams() -> None:
    """What the parent closed is empty or unheard, and no file of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor == number:
                os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", closefd=False))


def _run(argv: list[str]) -> int:
    from rota.cli.parser import parse
    from rota.cli.session import Session

    try:
        arguments = parse(argv)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else exits.USAGE
    session = Session(arguments)
    module, _, function = arguments.handler.partition(":")
    from rota import errors

    try:
        code: int = getattr(import_module(module), function)(arguments, session)
        return code
    except exits.CommandError as error:
        return _complain(session, error, error.code)
    except errors.RotaError as error:
        return _complain(session, error, _code_of(error))
    except ValueError as error:
        # The library refuses values outside their domain with ValueError (C6): here they came from the command line.
        if os.environ.get("ROTA_DEBUG"):
            raise
        return _complain(session, error, exits.USAGE)
    finally:
        session.close()


def _code_of(error: Exception) -> int:
    from rota import errors

    if isinstance(error, errors.PayloadError):
        return exits.REFUSED
    if isinstance(error, errors.OutcomeUnknown):
        return exits.UNKNOWN_OUTCOME
    if isinstance(error, errors.EngineUnavailable | errors.EngineBusy | errors.SchemaMismatch):
        return exits.UNAVAILABLE
    return exits.FAILED


def _complain(session: object, error: Exception, code: int) -> int:
    from rota.cli.output import escape
    from rota.cli.session import Session

    assert isinstance(session, Session)
    text = str(error) or type(error).__name__
    _say(f"rota: {escape(session.without_password(text))}")
    return code


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # Nobody hears it. The exit code still tells.
        pass


def _forget_stdout() -> None:
    """Keep the interpreter from complaining about the same broken pipe once more when it ends."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
