"""A progress bar on stderr when a terminal is there: rich's if installed, a plain line otherwise."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self

from rota.cli.output import has_rich

_REDRAW_SECONDS = 0.1
_BAR_WIDTH = 30


class Progress(Protocol):
    """Something that shows how far a long step has come."""

    def update(self, done: int, note: str = "") -> None:
        """So much is done by now."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the bar away."""


def progress(title: str, total: int | None, *, lines_every: float | None = None, quiet: bool = False) -> Progress:
    """A progress display. Without a terminal it is silent, or prints a line every ``lines_every`` seconds."""
    if quiet:
        return _Lines(title, total, None)
    if not sys.stderr.isatty():
        return _Lines(title, total, lines_every)
    return _Rich(title, total) if has_rich() else _Plain(title, total)


class _Lines:
    """No terminal: nothing, or now and then a line for a log."""

    def __init__(self, title: str, total: int | None, every: float | None) -> None:
        self._title, self._total, self._every = title, total, every
        self._next = time.monotonic() + (every or 0)

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if self._every is None or now < self._next:
            return
        self._next = now + self._every
        print(_line(self._title, done, self._total, note), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Plain:
    """A terminal without rich: one line that is drawn again."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title, self._total = title, total
        self._next = 0.0

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now < self._next and done != self._total:
            return
        self._next = now + _REDRAW_SECONDS
        print("\r\x1b[K" + _line(self._title, done, self._total, note), end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class _Rich:
    """A terminal with rich."""

    def __init__(self, title: str, total: int | None) -> None:
        console = import_module("rich.console").Console(stderr=True)
        module = import_module("rich.progress")
        self._bar: Any = module.Progress(
            module.TextColumn("{task.description}", markup=False),
            module.BarColumn(),
            module.MofNCompleteColumn(),
            module.TextColumn("{task.fields[note]}", markup=False),
            module.TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total, note="")

    def update(self, done: int, note: str = "") -> None:
        self._bar.update(self._task, completed=done, note=note)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _line(title: str, done: int, total: int | None, note: str) -> str:
    if not total:
        return f"{title} {done} {note}".rstrip()
    filled = min(done * _BAR_WIDTH // total, _BAR_WIDTH)
    bar = "#" * filled + "." * (_BAR_WIDTH - filled)
    return f"{title} [{bar}] {done}/{total} {note}".rstrip()
