"""The command of ``rota work`` as an executor of the worker runtime: what it gets, and what follows from its end."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

from rota.cli.work_child import KILL_AFTER, Child, TooLarge
from rota.worker.outcomes import Fail, OutsideError

if TYPE_CHECKING:
    from rota import Job, Lease
    from rota.worker.sources import Held

_DEAD_LETTER_STATUS = 100


class Command:
    """One command line, run for each item."""

    def __init__(self, words: list[str], url: str, *, raw: bool) -> None:
        self.label = words[0]
        self.last_words = KILL_AFTER + 1
        self._words = words
        self._url = url
        self._raw = raw

    def handle(self, held: Held) -> None:
        """Run it to its end. Returns for an ack, raises for anything else."""
        if held.why is not None:
            raise OutsideError(f"not started: {held.why}", "not started")
        handle = held.handle
        payload = handle.payload if held.source.kind == "queue" else handle.event
        try:
            child = Child(
                self._words,
                payload_bytes(payload, raw=self._raw),
                {"ROTA_URL": self._url, **variables(held)},
                lambda: held.why,
            )
        except TooLarge as error:
            raise OutsideError(str(error), "not started") from None
        held.runs_in = child
        ended = child.run()
        if ended.ended_by_us is None and held.why in ("timeout", "stopped"):
            # It ended by itself before our signal reached it: that counts.
            held.why = None
        child.how = how = self._described(held, ended.status, ended.ended_by_us)
        if ended.ended_by_us == "timeout":
            raise OutsideError(f"{how}: {ended.tail}" if ended.tail else how, how)
        if ended.ended_by_us is not None:
            raise OutsideError(how, how)
        if ended.status == _DEAD_LETTER_STATUS:
            raise Fail(ended.tail or how)
        if ended.status:
            raise OutsideError(ended.tail or how, how)

    def kill(self, held: Held) -> None:
        """End it now."""
        if isinstance(held.runs_in, Child):
            held.runs_in.kill()

    def _described(self, held: Held, status: int, ended_by_us: str | None) -> str:
        timeout = held.handler.timeout if held.handler is not None else None
        if ended_by_us == "timeout" and timeout is not None:
            return f"timed out after {timeout:g} s"
        if ended_by_us == "stopped":
            return "ended by us to stop"
        if status >= 0:
            return f"exit status {status}"
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"


def how_it_ended(held: Held) -> str:
    """For people: how the command for this item ended, or why there was none."""
    if isinstance(held.runs_in, Child) and held.runs_in.how:
        return held.runs_in.how
    return held.settlement.error or "not run"


# -- What it gets ----------------------------------------------------------------------------------------------------


def payload_bytes(payload: Any, *, raw: bool) -> bytes:
    """What the command reads on stdin: JSON and a line end, or with ``raw`` a string payload as it is."""
    if raw and isinstance(payload, str):
        return payload.encode()
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def variables(held: Held) -> dict[str, str]:
    """The variables of the command's environment that describe its item: some of ``ITEM_VARIABLES``."""
    return _of_job(held.handle) if held.source.kind == "queue" else _of_message(held.handle, held.source.name)


def _of_job(job: Job) -> dict[str, str]:
    return {
        "ROTA_KIND": "job",
        "ROTA_QUEUE": job.queue,
        "ROTA_ID": str(job.id),
        "ROTA_NAME": job.name or "",
        "ROTA_ATTEMPT": str(job.attempts),
        "ROTA_MAX_ATTEMPTS": str(job.max_attempts),
        **_of_both(job),
    }


def _of_message(lease: Lease, transport: str) -> dict[str, str]:
    return {
        "ROTA_KIND": "message",
        "ROTA_TRANSPORT": transport,
        "ROTA_GROUP": lease.group_id,
        "ROTA_SEQ": str(lease.seq),
        "ROTA_ATTEMPT": str(lease.deliveries),
        **_of_both(lease),
    }


def _of_both(handle: Job | Lease) -> dict[str, str]:
    return {
        "ROTA_TOKEN": str(handle.token),
        "ROTA_WORKER": handle.worker_id,
        "ROTA_PRIORITY": str(handle.priority),
        "ROTA_HEADERS": json.dumps(handle.headers),
    }
