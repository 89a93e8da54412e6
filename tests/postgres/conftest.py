"""Sessions that call the functions of the schema themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import rota
from postgres.sabotage import Session

Sessions = Callable[[], Session]


@pytest.fixture
def sessions(postgres_url: str) -> Iterator[Sessions]:
    """Makes sessions; the transport "t" is there."""
    made: list[Session] = []

    def new() -> Session:
        made.append(Session(postgres_url))
        return made[-1]

    with rota.open(postgres_url, notify=False) as store:
        store.transport("t").suspend("nobody")
        store.transport("t").resume("nobody")
    yield new
    for session in made:
        session.close()
