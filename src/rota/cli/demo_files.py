"""The demo's input and work: source files of the running Python's standard library, and what is found in each."""

from __future__ import annotations

import ast
import hashlib
import os
import sysconfig
import warnings
from pathlib import Path
from typing import Any

# Installed packages are not the standard library.
_NOT_OURS = {"site-packages", "dist-packages", "__pycache__"}


def standard_library() -> Path:
    """Where the running Python keeps its own modules."""
    return Path(sysconfig.get_paths()["stdlib"])


def source_files(root: Path, limit: int | None) -> list[str]:
    """Its source files by path relative to ``root``, in a fixed order."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _NOT_OURS)
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():
                found.append(path.relative_to(root).as_posix())
    found.sort()
    if limit is None or limit >= len(found):
        return found
    # A sample across all of it rather than its beginning, so that there are many groups.
    return [found[index * len(found) // limit] for index in range(limit)]


def package_of(path: str) -> str:
    """The top-level package or module a file belongs to."""
    return path.partition("/")[0].removesuffix(".py")


def examine(root: Path, path: str) -> dict[str, Any]:
    """What there is to find in one file: lines, SHA-256, statements (None if it is no Python, as some test files)."""
    content = (root / path).read_bytes()
    return {"lines": content.count(b"\n"), "sha256": digest(content), "statements": _statements(content)}


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _statements(content: bytes) -> int | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return len(ast.parse(content).body)
    except (SyntaxError, ValueError):
        return None
