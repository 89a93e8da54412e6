"""Named SQL blocks from .sql files.

A file holds blocks, each begun by a line ``-- name: <name>``. Its reply is rows if it selects or returns, else a count.
A line ``-- part: <name>`` begins a piece of text that later blocks of the same file quote as ``{name}``; only lists of
columns are parts, predicates stand verbatim where they are used.
"""

from __future__ import annotations

import re
from importlib.resources import files

from rota.sql.drive import Block

_HEAD = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)


class Blocks:
    """The blocks of one file, as attributes."""

    def __init__(self, package: str, file: str) -> None:
        text = (files(package) / file).read_text(encoding="utf-8")
        self.all: dict[str, Block] = _parse(text, file)

    def __getattr__(self, name: str) -> Block:
        try:
            block = self.all[name]
        except KeyError:
            raise AttributeError(f"no SQL block is named {name!r}") from None
        # Found directly from now on.
        setattr(self, name, block)
        return block


def repeated(block: Block, times: int) -> Block:
    """An INSERT with its one row of values several times; a row that begins with 0 is numbered."""
    head, row, tail = re.split(r"(?<=VALUES )(\([^()]*\))", block.text)
    rows = (row.replace("(0,", f"({number},") for number in range(times))
    return block._replace(name=f"{block.name}_{times}", text=head + ", ".join(rows) + tail)


def _parse(text: str, file: str) -> dict[str, Block]:
    heads = list(_HEAD.finditer(text))
    parts: dict[str, str] = {}
    blocks: dict[str, Block] = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        kind, name = head.groups()
        body = _bare(text[head.end() : following.start() if following else len(text)])
        for part, content in parts.items():
            body = body.replace("{" + part + "}", content)
        if name in parts or name in blocks:
            raise ValueError(f"{file} has two blocks named {name!r}")
        if kind == "part":
            parts[name] = body
        else:
            blocks[name] = _block(name, body.removesuffix(";"))
    return blocks


def _block(name: str, text: str) -> Block:
    """Numbered values (``?1``) become plain ones, all that some drivers take; ``order`` says which they are."""
    numbers = tuple(int(number) - 1 for number in re.findall(r"\?(\d+)", text))
    if numbers and "?" in re.sub(r"\?\d+", "", text):
        raise ValueError(f"{name} mixes numbered and plain values")
    return Block(name, re.sub(r"\?\d+", "?", text), _gives_rows(text), numbers)


def _bare(text: str) -> str:
    """The text without comment lines, on one line per clause."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("--"))


def _gives_rows(text: str) -> bool:
    return text.startswith(("SELECT", "WITH")) or re.search(r"\bRETURNING\b", text) is not None
