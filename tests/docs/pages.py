"""The documentation's pages: which there are, and what is in their fenced blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
# What a block may be: examples that run (python, console with its output) and text that is none.
KINDS = ("python", "output", "console", "sh", "text", "sql", "toml", "json", "ini", "mermaid")

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w./-]+\.py)\n")


class Block(NamedTuple):
    """One fenced block; ``line`` is where its text begins."""

    info: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file a Python block stands for: its first line is a comment with nothing but the name."""
        found = _FILE.match(self.text)
        return found["name"] if found and self.info == "python" else None


class Command(NamedTuple):
    """One command of a console block and the output shown below it (None: none is shown)."""

    command: str
    shown: str | None
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["info"].strip(), found["text"], text.count("\n", 0, found.start("text")) + 1)
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> list[Command]:
    """The commands of a console block: lines after ``$``, what follows is their output."""
    found: list[Command] = []
    lines = block.text.splitlines()
    index = 0
    while index < len(lines):
        start = index
        if not lines[index].startswith("$ "):
            raise ValueError(f"line {block.line + index}: a console block begins with a command after '$ '")
        command = lines[index][2:]
        while command.endswith("\\"):
            index += 1
            command += "\n" + lines[index]
        index += 1
        shown: list[str] = []
        while index < len(lines) and not lines[index].startswith("$ "):
            shown.append(lines[index])
            index += 1
        text = "\n".join(shown).strip("\n")
        found.append(Command(command, text or None, block.line + start))
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether output is as shown: ``...`` stands for anything, white space at the ends of lines does not count."""
    shown, printed = (re.sub(r"[ \t]+$", "", text.strip("\n"), flags=re.MULTILINE) for text in (shown, printed))
    pattern = ".*?".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
