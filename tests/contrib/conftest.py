"""A project on each kind of database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rota

if TYPE_CHECKING:
    from .project import Project


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    found = f"sqlite:///{tmp_path / 'project.db'}"
    # What manage.py migrate does.
    rota.open(found).close()
    return found


@pytest.fixture
def make(url: str) -> Iterator[Callable[..., Project]]:
    """Makes the test's project with OPTIONS."""
    from .project import project

    with ExitStack() as stack:

        def made(**options: Any) -> Project:
            entered: AbstractContextManager[Project] = project(url, **options)
            return stack.enter_context(entered)

        yield made


@pytest.fixture
def site(make: Callable[..., Project]) -> Project:
    """A project with the default options."""
    return make()
