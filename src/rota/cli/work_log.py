"""What ``rota work`` tells on stderr, from the runtime's log events and from what was settled; and its last line."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from rota.cli.output import escape
from rota.cli.work_command import how_it_ended
from rota.worker.logs import item_fields

if TYPE_CHECKING:
    from rota.worker.sources import Held

_NAMES = {"ack": "acked", "retry": "retried", "fail": "dead-lettered", "release": "released"}
Kind = Literal["problem", "remark", "detail"]


class WorkLog(logging.Handler):
    """While it is entered the runtime's events come here and go nowhere else."""

    def __init__(self, *, verbose: bool, quiet: bool) -> None:
        super().__init__(logging.INFO)
        self._verbose = verbose
        self._quiet = quiet
        self._counting = threading.Lock()
        self._failing = False
        self._logger = logging.getLogger("rota.worker")
        self._before = (logging.NOTSET, True)
        self.counts = {"acked": 0, "retried": 0, "dead-lettered": 0, "released": 0, "lost": 0}

    def __enter__(self) -> Self:
        self._before = self._logger.level, self._logger.propagate
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)

    def result(self) -> str:
        """The last line."""
        return ", ".join(f"{name} {count}" for name, count in self.counts.items() if count) or "nothing to do"

    def on_settled(self, helds: Sequence[Held], count: int) -> None:
        """Called by the runtime for items that were settled together."""
        name = _NAMES[helds[0].settlement.kind]
        if name == "retried" and _was_last_attempt(helds[0]):
            name = "dead-lettered"
        with self._counting:
            self.counts[name] += count
        if count == len(helds):
            for held in helds:
                kind: Kind = "detail" if name in ("acked", "released") else "remark"
                self.say(kind, f"{_item(item_fields(held.source, held.claim))}: {how_it_ended(held)}, {name}")

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the runtime for each of its events."""
        fields = vars(record)
        what = _item(fields)
        match fields.get("event"):
            case "claim_lost" | "outcome_not_recorded" as event:
                with self._counting:
                    self.counts["lost"] += fields["count"]
                if event == "outcome_not_recorded":
                    self.say("problem", f"{what}: its outcome could not be recorded: {fields['error']}")
                elif fields["outcome"] in ("running", "waiting"):
                    self.say("problem", f"{what}: its claim was lost, ending its command: it does not count")
                else:
                    self.say("problem", f"{what}: ended, but its claim was lost meanwhile: that does not count")
            case "beat_failed":
                self.say("problem", f"{what}: a heartbeat failed, trying again: {fields['error']}")
            case "store_failing" if not self._failing:
                self._failing = True
                self.say("problem", f"the store does not answer, trying again: {fields['error']}")
            case "store_back" if self._failing:
                self._failing = False
                self.say("remark", "the store answers again")
            case "worker_stopping" if fields["order"] != "finish" and fields["running"]:
                self.say("remark", f"stopping, {fields['running']} running get {fields['grace']:g} s")
            case "worker_stopping_now":
                self.say("remark", f"stopping now, {fields['running']} running")

    def say(self, kind: Kind, text: str) -> None:
        """Tell a problem always, a remark unless quiet, a detail only when verbose."""
        if (kind == "detail" and not self._verbose) or (kind != "problem" and self._quiet):
            return
        with self._counting:
            try:
                print(f"rota work: {escape(text)}", file=sys.stderr, flush=True)
            except (OSError, ValueError):
                # Whoever read our messages is gone; the work goes on.
                pass


def _was_last_attempt(held: Held) -> bool:
    """Whether a retry buried it: only a claim buries a message (T7)."""
    return held.source.kind == "queue" and held.claim.attempts >= held.claim.max_attempts


def _item(fields: dict[str, Any]) -> str:
    source = str(fields.get("source"))
    if "job_id" in fields:
        return f"{source} job {fields['job_id']}"
    if "seq" in fields:
        return f"{source} group {fields['group_id']!r} message {fields['seq']}"
    return source
