"""Run the examples of one page in order, in this process and the current directory: ``python run_page.py PAGE``.

Python blocks share one module. A block whose first line is a file's name in a comment is written to that file instead,
for a later block to use. An ``output`` block is what the Python block before it prints. Console blocks run in a shell.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import types
from pathlib import Path

from pages import Block, blocks, commands, matches


class Wrong(Exception):
    """An example does not do what the page says."""


def run(page: Path) -> int:
    """Run every example; how many ran. ``Wrong`` for the first that differs."""
    module = types.ModuleType("page")
    sys.modules["page"] = module
    sys.path.insert(0, "")
    found = blocks(page)
    ran = 0
    for index, block in enumerate(found):
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
            if not any(Path(block.file).stem in later.text for later in found[index + 1 :]):
                raise Wrong(f"{page}:{block.line}: no later example uses {block.file}")
        elif block.info == "python":
            after = found[index + 1] if index + 1 < len(found) else None
            run_python(page, block, module, after.text if after and after.info == "output" else None)
            ran += 1
        elif block.info == "console":
            ran += run_console(page, block)
    return ran


def run_python(page: Path, block: Block, module: types.ModuleType, shown: str | None) -> None:
    """Execute one block; line numbers in tracebacks are the page's."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, module.__dict__)
    if shown is not None and not matches(shown, printed.getvalue()):
        raise Wrong(f"{page}:{block.line}: the page shows\n{shown}\nbut the example printed\n{printed.getvalue()}")


def run_console(page: Path, block: Block) -> int:
    """Run the commands of one block; stdout and stderr are one, as on a terminal."""
    asked = commands(block)
    for command, shown, line in asked:
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise Wrong(f"{page}:{line}: $ {command}\nended with {done.returncode}:\n{done.stdout}")
        if shown is not None and not matches(shown, done.stdout):
            raise Wrong(f"{page}:{line}: $ {command}\nthe page shows\n{shown}\nbut it printed\n{done.stdout}")
    return len(asked)


if __name__ == "__main__":
    try:
        print(f"{run(Path(sys.argv[1]))} examples ran")
    except Wrong as wrong:
        sys.exit(str(wrong))
