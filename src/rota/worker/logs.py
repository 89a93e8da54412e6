"""Log events of the worker: stable names, fields as ``extra=`` (``event`` and those named here); never a payload."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("rota.worker")

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


def tell(level: int, event: str, **fields: Any) -> None:
    """Log one event, as ``event field=value …`` for people."""
    if logger.isEnabledFor(level):
        shown = " ".join(f"{name}={_short(value)}" for name, value in fields.items())
        logger.log(level, "%s %s", event, shown, extra={"event": event, **fields})


def item_fields(source: Any, claim: Any) -> dict[str, Any]:
    """The fields that name a job or message."""
    if source.kind == "queue":
        return {"source": source.label, "job_id": claim.id, "job_name": claim.name, "attempts": claim.attempts}
    return {"source": source.label, "seq": claim.seq, "group_id": claim.group_id, "deliveries": claim.deliveries}


def reason(error: BaseException) -> str:
    """The type of what is wrong with a payload. Its text may show a piece of the payload: it stays with the item."""
    return type(error.__cause__ or error).__name__


def _short(value: Any) -> str:
    # Names and errors come from elsewhere: none of them may look like another line of the log.
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
