"""OpenTelemetry, for applications that use it: spans, metrics, and the context that travels with an item.

Nothing of it is imported here: only when the application has imported OpenTelemetry itself is ``spans`` loaded, which
does everything. Until then the whole cost is to look whether it is there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.telemetry import spans

LOADED = sys.modules
API = "opentelemetry.trace"
"""In ``LOADED`` when the application uses OpenTelemetry; asked before ``active``, which costs a call."""

_refused = False


def active() -> spans.Spans | None:
    """What makes spans, or None: OpenTelemetry is not used, or is too old or broken (which is said once)."""
    global _refused
    if API not in LOADED or _refused:
        return None
    try:
        from rota.telemetry import spans
    except ImportError as error:
        import logging

        _refused = True
        logging.getLogger("rota.telemetry").warning("no OpenTelemetry: %s: %s", type(error).__name__, error)
        return None
    return spans.SPANS
