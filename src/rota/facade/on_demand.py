"""Modules that are imported when first used: Rota is imported by programs that may never need them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class OnDemand:
    """Stands in for a module and imports it at the first attribute."""

    def __init__(self, module: str) -> None:
        self._name = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
