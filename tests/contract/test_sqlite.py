"""The conformance suite on the SQLite engine."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota.testing import tck


class TestSQLite(tck.Conformance):
    durable = True

    def open(self, **options: Any) -> rota.Store:
        return rota.open(f"sqlite:///{self.place}/rota.db", **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(f"sqlite:///{self.place}/rota.db", **options)


class TestSQLiteNormal(tck.TransportLeases, tck.QueueHandles, tck.DeadLetterClauses):
    """durability="normal" changes when the disk is asked, nothing else: the settling clauses show it."""

    durable = True

    def open(self, **options: Any) -> rota.Store:
        return rota.open(f"sqlite:///{self.place}/rota.db", durability="normal", **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen(f"sqlite:///{self.place}/rota.db", durability="normal", **options)


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_the_durability_asked_for_is_the_one_used(tmp_path: Any, durability: Any) -> None:
    with rota.open(f"sqlite:///{tmp_path}/rota.db", durability=durability) as store:
        store.queue("q").enqueue(1)
        assert store.engine_facts()["durability"] == durability
