"""The event under ``job.lost`` and ``lease.lost``, made when somebody first asks for it."""

from __future__ import annotations

import threading
from typing import Any

# A handler and the worker's heartbeats may ask at the same moment, and must get the same one.
_making = threading.Lock()


def lost_event(handle: Any) -> threading.Event:
    """The event of a sync handle."""
    try:
        event: threading.Event = handle._lost
    except AttributeError:
        with _making:
            event = getattr(handle, "_lost", None) or threading.Event()
            handle._lost = event
    return event
