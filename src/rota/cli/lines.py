"""Files of one payload a line: read once, checked line by line, bad lines told by number.

``enqueue_many`` and ``publish_many`` take everything in before they store anything. So the lines are given to them by a
generator; when the file is over and a line was bad, the generator raises and nothing of the file is stored. Memory
holds the encoded payloads, not the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from rota import codecs
from rota.cli.arguments import exact_json
from rota.cli.exits import NOT_FOUND, REFUSED, CommandError
from rota.cli.output import escape
from rota.cli.progress import progress
from rota.errors import RotaError

T = TypeVar("T")
# So many bad lines are told one by one.
_TOLD = 10
# No payload of a line this long can be accepted, and a file without line ends must not fill the memory.
_LONGEST_LINE = 64 * 1024 * 1024


class Lines:
    """The payloads of one file, made into items by ``make``."""

    def __init__(self, name: str, *, text: bool, skip_bad: bool, quiet: bool) -> None:
        self._name = name
        self._text = text
        self._skip_bad = skip_bad
        self._quiet = quiet
        self.bad: list[tuple[int, str]] = []

    def items(self, make: Callable[[Any], T]) -> Iterator[T]:
        """An item for each good line. Raises ``CommandError`` at the end if a line was bad and none may be skipped."""
        codec = codecs.JsonCodec()
        for number, raw in enumerate(self._raw_lines(), 1):
            try:
                if len(raw) >= _LONGEST_LINE:
                    raise ValueError(f"longer than {_LONGEST_LINE} bytes")
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                if not line.strip():
                    continue
                payload = line.rstrip("\r\n") if self._text else exact_json(line)
                item = make(payload)
                # The same check as the store's, made here so that it can be told which line it was.
                codecs.to_text(codec, payload, codecs.MAX_PAYLOAD_BYTES)
            except (ValueError, RecursionError, RotaError) as error:
                self.bad.append((number, str(error) or type(error).__name__))
                continue
            if not self.bad or self._skip_bad:
                yield item
        if self.bad and not self._skip_bad:
            raise CommandError(REFUSED, f"{self._report()}; nothing was stored")

    def told_skipped(self) -> str | None:
        """What was skipped and where, for people."""
        return f"skipped {self._report()}" if self.bad else None

    def _report(self) -> str:
        told = "; ".join(f"line {number}: {escape(why)}" for number, why in self.bad[:_TOLD])
        more = len(self.bad) - _TOLD
        rest = ""
        if more > 0:
            numbers = ", ".join(str(number) for number, _ in self.bad[_TOLD : _TOLD + 100])
            rest = f"; and {more} more: lines {numbers}{', …' if more > 100 else ''}"
        lines = "line" if len(self.bad) == 1 else "lines"
        return f"{len(self.bad)} bad {lines} in {escape(self._name)}: {told}{rest}"

    def _raw_lines(self) -> Iterator[bytes]:
        if self._name == "-":
            yield from self._counted(sys.stdin.buffer, None)
            return
        try:
            with open(self._name, "rb") as file:
                yield from self._counted(file, os.fstat(file.fileno()).st_size or None)
        except OSError as error:
            raise CommandError(NOT_FOUND, f"cannot read {self._name!r}: {error.strerror}") from None

    def _counted(self, file: BinaryIO, size: int | None) -> Iterator[bytes]:
        """Lines, with progress by bytes where the size is known, else by lines."""
        done = 0
        with progress("reading", size, quiet=self._quiet) as bar:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                yield line
                done += len(line)
                if number % 256 == 0:
                    bar.update(done if size else number, f"bytes, {number} lines" if size else "lines")
