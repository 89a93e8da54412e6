"""What goes to the terminal: escaped text, times, tables and JSON documents."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib import import_module
from itertools import zip_longest
from typing import Any

# Control characters could move the cursor or rewrite what is on the screen, bidirectional marks and line separators
# could make a line read as another: all of them are shown, none is sent. Lone surrogates cannot be sent at all.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# A cell is never longer than this, terminal or not; `show` and `--json` give everything.
CELL_LIMIT = 400
_NARROWEST = 12
_GAP = 2


def escape(text: str) -> str:
    """``text`` safe for a terminal, on one line."""
    return _HIDDEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


# -- Values ----------------------------------------------------------------------------------------------------------


def when(instant: float | None) -> str:
    """A POSIX instant as local ISO time with its zone."""
    if instant is None:
        return "-"
    try:
        return datetime.fromtimestamp(instant).astimezone().isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        # Beyond what the calendar knows: the literal instant is still true.
        return f"{instant:.6f}"


def seconds(length: float | None) -> str:
    """A length of time, roughly."""
    if length is None:
        return "-"
    if length < 1:
        return f"{length * 1_000:.0f} ms"
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if length < limit:
            return f"{length / size:.1f} {unit}"
    return f"{length / 86_400:.1f} d"


def counted(number: int, what: str) -> str:
    """``1 dead letter``, ``2 dead letters``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def count_text(stats: Any, name: str) -> int | str:
    """One of the counts of ``stats``; with a plus where it stands for that many or more."""
    number: int = getattr(stats, name)
    return f"{number}+" if name in stats.capped else number


def payload_text(payload: Any) -> str:
    """A payload on one line: JSON, or the reason why it cannot be decoded."""
    if isinstance(payload, Exception):
        return f"<{payload}>"
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return repr(payload)


_TRACEBACK = re.compile(r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):\n", re.MULTILINE)
# Its line that says what was raised, of an exception group too; what follows belongs to the message.
_RAISED = re.compile(r"^(?:  \| )?(?=\S)", re.MULTILINE)
_LEFT_OUT = " characters left out …]\n"


def error_line(error: str | None) -> str | None:
    """An error for a table: of a traceback only what was raised in the end, its type and message."""
    if error is None:
        return None
    at = max((found.end() for found in _TRACEBACK.finditer(error)), default=None)
    if at is None:
        return error
    if _LEFT_OUT in error[at:]:
        # What follows may begin in the middle of a line.
        at = error.index("\n", error.rindex(_LEFT_OUT) + len(_LEFT_OUT)) + 1
    raised = _RAISED.search(error, at)
    return error if raised is None else error[raised.end() :]


def record(value: Any) -> dict[str, Any]:
    """A record as a JSON object: ids and payloads as they are, times as POSIX seconds.

    A payload that cannot be decoded becomes null, with the reason beside it under ``…_error``.
    """
    result: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Exception):
            result[field.name] = None
            result[field.name + "_error"] = str(item)
        else:
            result[field.name] = item
    return result


def print_json(document: Any) -> None:
    """One JSON document on stdout, in ASCII: no text in it can act on a terminal, every digit is kept."""
    print(json.dumps(document, indent=2, default=repr))


# -- Tables ----------------------------------------------------------------------------------------------------------


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing") -> None:
    """A table on stdout; columns of numbers are right-aligned. On a terminal long cells give way to its width."""
    raw = [list(row) for row in rows]
    if not raw:
        print(f"({empty})")
        return
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if terminal is not None and has_rich():
        table = _Table(columns, raw, terminal)
        # As wide as the table: rich would rather cut digits of ids than let the terminal wrap a line.
        import_module("rich.console").Console(width=table.width).print(_rich(table))
        return
    for line in table_lines(columns, raw, terminal):
        print(line)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None) -> list[str]:
    """The lines of a table, not longer than ``width`` if that can be."""
    table = _Table(columns, rows, width)
    return [
        (" " * _GAP).join(_fit(text, table.widths[i], table.numeric[i]) for i, text in enumerate(row)).rstrip()
        for row in [[name.upper() for name in columns], *table.cells]
    ]


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> Any:
    """The same as something rich can show."""
    return _rich(_Table(columns, rows, width))


class _Table:
    """Cells as text, and how wide their columns are."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None) -> None:
        self.columns = columns
        self.numeric = [all(isinstance(row[i], int) for row in rows) for i in range(len(columns))]
        self.cells = [[_cell(value) for value in row] for row in rows]
        self.widths = [max(_width(row[i]) for row in [list(columns), *self.cells]) for i in range(len(columns))]
        if width is not None:
            _narrow(self.widths, self.numeric, width)
        self.width = sum(self.widths) + _GAP * len(self.widths)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one to a line, values in full; a value that is a list has its lines one below the other."""
    pairs = [(name, value if isinstance(value, list) else ["-" if value is None else value]) for name, value in fields]
    width = max(len(name) for name, _ in pairs)
    for name, lines in pairs:
        # Further lines are set off, so that none reads as a field of its own.
        for head, line in zip_longest([name], lines, fillvalue=""):
            print(f"{head:<{width}}  {escape(str(line))}".rstrip())


def _cell(value: Any) -> str:
    text = escape("-" if value is None else str(value))
    return text if len(text) <= CELL_LIMIT else text[: CELL_LIMIT - 1] + "…"


def has_rich() -> bool:
    """Whether rich is installed."""
    try:
        import_module("rich")
    except ImportError:
        return False
    return True


def _rich(table: _Table) -> Any:
    shown = import_module("rich.table").Table(
        box=import_module("rich.box").SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, _GAP - 1, 0, 0)
    )
    text = import_module("rich.text").Text
    for name, width, right in zip(table.columns, table.widths, table.numeric, strict=True):
        shown.add_column(name, width=width, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    for row in table.cells:
        # Text, not str: a payload with [brackets] is no markup.
        shown.add_row(*[text(cell) for cell in row])
    return shown


def _narrow(widths: list[int], numeric: list[bool], columns: int) -> None:
    """Take from the widest column until the line fits; numbers keep their digits."""
    text = [index for index, number in enumerate(numeric) if not number]
    while text and sum(widths) + _GAP * len(widths) > columns:
        widest = max(text, key=widths.__getitem__)
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1


def _fit(text: str, width: int, right: bool) -> str:
    if _width(text) > width:
        while text and _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding


def _width(text: str) -> int:
    """Columns of a terminal that ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
