"""Where ``rota top`` draws: a whole terminal, drawn anew each time, or a stream that gets one frame after the other."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, NamedTuple, Protocol

from rota.cli.output import escape, has_rich, rich_table, table_lines

# The other screen of the terminal, without a cursor; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"


class Section(NamedTuple):
    """A line of text, a table, or both."""

    head: str | None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    foot: str | None = None


class Screen(Protocol):
    """Something that shows sections."""

    def draw(self, sections: Sequence[Section]) -> None:
        """Show these in place of what is shown."""

    def ended_within(self, seconds: float) -> bool:
        """Wait; whether the user wants no more."""


@contextmanager
def screen(*, live: bool) -> Iterator[Screen]:
    """The terminal as it is wanted, and as it was afterwards, whatever happens. Not ``live``: a plain stream."""
    if not live:
        yield _Stream()
        return
    with ExitStack() as after, _unwound_by_signals():
        keys = after.enter_context(_keys())
        if has_rich():
            yield after.enter_context(_rich_screen(keys))
        else:
            after.callback(_write, _LEAVE)
            _write(_ENTER)
            yield _Plain(keys)


class _Stream:
    """Frames one after the other."""

    def __init__(self) -> None:
        self._drawn = False

    def draw(self, sections: Sequence[Section]) -> None:
        lines = _lines(sections, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
        print("\n".join(["", *lines] if self._drawn else lines), flush=True)
        self._drawn = True

    def ended_within(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False


class _Plain:
    """A terminal without rich."""

    def __init__(self, keys: _Keys) -> None:
        self.ended_within = keys.ended_within

    def draw(self, sections: Sequence[Section]) -> None:
        size = shutil.get_terminal_size()
        lines = [_cut(line, size.columns) for line in _lines(sections, size.columns)[: size.lines - 1]]
        _write(_HOME + "".join(f"{line}{_REST_OF_LINE}\r\n" for line in lines) + _REST)


class _Rich:
    """A terminal with rich."""

    def __init__(self, live: Any, keys: _Keys) -> None:
        self._live = live
        self.ended_within = keys.ended_within

    def draw(self, sections: Sequence[Section]) -> None:
        group, text = import_module("rich.console").Group, import_module("rich.text").Text
        parts: list[Any] = []
        for section in sections:
            if section.head is not None:
                parts.append(text(escape(section.head), style="bold", no_wrap=True, overflow="ellipsis"))
            if section.rows:
                parts += [text(""), rich_table(section.columns, section.rows, shutil.get_terminal_size().columns)]
            if section.foot is not None:
                parts.append(text(f"({section.foot})", style="dim"))
        self._live.update(group(*parts), refresh=True)


@contextmanager
def _rich_screen(keys: _Keys) -> Iterator[_Rich]:
    console = import_module("rich.console").Console()
    live = import_module("rich.live").Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop")
    with live:
        yield _Rich(live, keys)


def _lines(sections: Sequence[Section], columns: int | None) -> list[str]:
    lines: list[str] = []
    for section in sections:
        if section.head is not None:
            lines.append(escape(section.head))
        if section.rows:
            lines += ["", *table_lines(section.columns, section.rows, columns)]
        if section.foot is not None:
            lines.append(f"({section.foot})")
    return lines


def _cut(line: str, columns: int) -> str:
    """Wide characters are few here; a line that is still too long is cut by the terminal, not wrapped into others."""
    return line if len(line) <= columns else line[: max(columns - 1, 0)] + "…"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


# -- Keys and signals ------------------------------------------------------------------------------------------------


class _Keys:
    """Waits for ``q`` where keys can be had one by one."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def ended_within(self, seconds: float) -> bool:
        """Whether q was pressed within this time."""
        until = time.monotonic() + seconds
        while (pause := until - time.monotonic()) > 0:
            if self._descriptor is None:
                time.sleep(pause)
            elif select.select([self._descriptor], [], [], pause)[0]:
                pressed = os.read(self._descriptor, 64)
                if b"q" in pressed.lower():
                    return True
                if not pressed:
                    # The terminal is gone as far as keys go.
                    self._descriptor = None
        return False


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Keys without a line end and without an echo; Ctrl-C still interrupts."""
    termios = _termios()
    if termios is None or not sys.stdin.isatty():
        yield _Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        import_module("tty").setcbreak(descriptor)
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _termios() -> ModuleType | None:
    try:
        return import_module("termios")
    except ImportError:
        return None


@contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """What would end the process ends it by an exception, so that the terminal is left as it was."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) == signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
