"""Exit codes of the command: one table, printed by ``rota --help`` and used everywhere."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
NOT_FOUND = 4
REFUSED = 5
UNKNOWN_OUTCOME = 6
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANING: dict[int, str] = {
    OK: "done; for `work` and `run`: drained, or stopped cleanly by a first Ctrl-C or SIGTERM",
    FAILED: "failed while running, not confirmed at the question, or `demo` found a difference",
    USAGE: "wrong use: unknown option or value, ambiguous name, confirmation needed but no terminal there",
    UNAVAILABLE: "the store is not there, cannot be reached, is busy, or has another schema; nothing happened",
    NOT_FOUND: "the queue, transport, job, group or letter that was named is not there",
    REFUSED: "the input was refused (not JSON, a field is missing, too large); nothing was stored",
    UNKNOWN_OUTCOME: "the connection broke while committing: it may or may not have happened",
    INTERRUPTED: "Ctrl-C (a second one for `work` and `run`; a second SIGTERM gives 143)",
    BROKEN_PIPE: "the reader of our output went away",
}


class CommandError(Exception):
    """Ends the command with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
