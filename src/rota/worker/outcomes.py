"""What a handler may raise to say how its item ends, and how an exception is told in an item's error text."""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
from typing import Any

from rota import rules, units
from rota.units import Duration

# Of a longer text the middle is left out: the first lines say where, the last ones say what.
_HEAD, _TAIL = 16_000, 40_000
# What calls a handler; it is left out of a traceback.
_CALLERS = tuple(os.path.dirname(file) + os.sep for file in (__file__, asyncio.__file__))


class Retry(Exception):
    """Raise it in a handler: try again, after ``delay`` seconds or else after the backoff (Q8).

    ``reason`` becomes the item's error. Without one the text of the exception it was raised from is taken, if any, else
    the item keeps the error it had. Raises ``TypeError`` or ``ValueError`` for a delay that is no number of seconds.
    """

    def __init__(self, delay: Duration | None = None, reason: str | BaseException | None = None) -> None:
        self.delay = None if delay is None else units.seconds(units.duration(delay, "delay"))
        self.reason = rules.clean_error(reason)
        super().__init__(self.reason or "retry")


class Fail(Exception):
    """Raise it in a handler: dead-letter the item now (Q7, T), with ``reason`` as its error."""

    def __init__(self, reason: str | BaseException | None = None) -> None:
        self.reason = rules.clean_error(reason)
        super().__init__(self.reason or "failed")


class Snooze(Exception):
    """Raise it in a handler: come back in ``delay`` seconds (0 or more); this attempt is not counted (release)."""

    def __init__(self, delay: Duration) -> None:
        self.delay = units.seconds(units.not_negative(delay, "delay"))
        super().__init__(f"snoozed for {self.delay:g} s")


class CannotRun(RuntimeError):
    """Raised by what runs handlers outside of this process: it cannot run any, so no other item would fare better.

    The item is given back, the worker stops, and this is what its run raises.
    """


class OutsideError(Exception):
    """A failure outside of this process; its text is the item's error. ``kind``: one word or two for the log, which
    never quotes that text."""

    def __init__(self, text: str, kind: str, qualified: str | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.qualified = qualified or type(self).__name__
        """The exception's type with its module, where one was raised there."""


def ran(label: str, result: Any) -> Any:
    """What a handler returned. Raises ``TypeError`` for what no handler means as its result, and an ack would lose the
    work: its own work, not begun, or an outcome that is to be raised."""
    if result is None:
        return None
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{label} returned a coroutine: write it with async def, and await what it calls")
    if isinstance(result, Retry | Fail | Snooze):
        raise TypeError(f"{label} returned {type(result).__name__}(…): raise it")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"{label} returned a generator: its body never ran; return instead of yielding")
    if inspect.isawaitable(result) and not asyncio.isfuture(result):
        kind = type(result).__name__
        raise TypeError(
            f"{label} returned a {kind}, which nobody awaits: write it with async def, and await what it calls"
        )
    return result


def error_text(error: BaseException) -> str:
    """The traceback as an item's error, without the worker's own frames; never a reason to fail (D4)."""
    try:
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_CALLERS):
            inner = inner.tb_next
        text = "".join(traceback.format_exception(type(error), error, inner)).rstrip()
    except Exception:
        text = rules.clean_error(error) or type(error).__name__
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n[… {len(text) - _HEAD - _TAIL} characters left out …]\n{text[-_TAIL:]}"
    return text


def qualified(kind: type[BaseException]) -> str:
    """An exception's type with its module, without that for Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
