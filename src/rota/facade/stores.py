"""Stores without I/O: what both facades share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from rota import names, units
from rota.facade.core import Core
from rota.facade.transports import OptionChanges, check_options, with_defaults

if TYPE_CHECKING:
    from rota.contract import TransportEngine


class StoreBase:
    """An opened engine under one of its facades."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def url(self) -> str:
        """The URL it was opened with, without a password."""
        return self._core.engine.url

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._core.closed

    def now(self) -> float:
        """The store's clock in POSIX seconds (C3)."""
        return units.seconds(self._open().engine.now())

    def _open(self) -> Core:
        self._core.check_open()
        return self._core

    def _to_configure(self, name: str, options: OptionChanges) -> tuple[TransportEngine, dict[str, Any]]:
        changes = with_defaults(check_options(**options))
        return self._open().transport(names.name(name, "transport name"), {}), changes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url!r}{' closed' if self.closed else ''}>"


def declared(**options: Unpack[OptionChanges]) -> dict[str, Any]:
    """The options a handle names, checked: None names nothing (C6)."""
    return {option: value for option, value in check_options(**options).items() if value is not None}
