"""The conformance suite on the memory engine."""

from __future__ import annotations

from typing import Any

import rota
from rota.testing import tck


class TestMemory(tck.Conformance):
    keeps_objects = True

    def open(self, **options: Any) -> rota.Store:
        return rota.open("memory://", **options)

    def aopen(self, **options: Any) -> Any:
        return rota.aopen("memory://", **options)
