"""An example in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .programs import Example


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Callable[[str], Example]]:
    """Copies an example by its name; its programs end with the test."""
    made: list[Example] = []

    def make(name: str) -> Example:
        made.append(Example(name, tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()
        # Shown by pytest when the test failed.
        print(one.outputs())
