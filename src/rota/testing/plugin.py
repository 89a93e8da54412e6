"""The pytest plugin: ``rota_clock``, ``rota_store`` and ``rota_url``.

Loaded in every run of whoever installed Rota, so it imports nothing but pytest until a fixture is used.

    def test_orders_are_sent(rota_store):
        queue = rota_store.queue("orders")
        queue.enqueue({"n": 1}, delay=60)
        drain(queue, send)              # rota.testing.drain: no sleeping, the clock jumps

The store is a fresh memory store with ``?codec=json``, so that a transport refuses in the test what a durable engine
would refuse in production. Another URL: the ini option ``rota_url``, or a ``rota_url`` fixture of your own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rota import Store
    from rota.testing import ManualClock

# The suite's assertions should explain themselves in the reports of whoever runs it.
pytest.register_assert_rewrite("rota.testing.tck")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option."""
    parser.addini("rota_url", "URL of the store behind the rota_store fixture", default="memory://?codec=json")


@pytest.fixture
def rota_url(request: pytest.FixtureRequest) -> str:
    """The URL that ``rota_store`` opens; override this fixture for another engine."""
    return str(request.config.getini("rota_url"))


@pytest.fixture
def rota_clock() -> ManualClock:
    """The clock of ``rota_store``: it stands still until the test moves it."""
    from rota.testing import ManualClock

    return ManualClock()


@pytest.fixture
def rota_store(rota_url: str, rota_clock: ManualClock) -> Iterator[Store]:
    """An opened store on ``rota_clock``, closed after the test; ``rota_store.as_async()`` is its async facade."""
    import rota

    with rota.open(rota_url, clock=rota_clock) as store:
        yield store
