"""Opening a store: from a URL and settings to a ``Core``."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from rota import engines, units
from rota.clock import Clock, SteeredClock, microseconds_of
from rota.codecs import MAX_PAYLOAD_BYTES, Codec, JsonCodec
from rota.facade.core import Chance, Core

DEFAULT_URL = "sqlite:///rota.db"


def open_core(
    url: str,
    clock: Clock | None,
    rng: Chance | None,
    max_payload_bytes: int | None,
    codec: Codec | None,
    settings: dict[str, Any],
) -> Core:
    """Open the engine a URL names. Wrong settings raise before anything is opened."""
    limit = MAX_PAYLOAD_BYTES
    if max_payload_bytes is not None:
        limit = units.integer(max_payload_bytes, "max_payload_bytes", 1)
    if rng is not None and not callable(getattr(rng, "random", None)):
        raise TypeError(f"rng must have a random() method, like random.Random, got {rng!r}")
    check_codec(codec)
    if rng is None:
        # The module's own generator is seeded anew in a forked child; one made here would not be.
        import random

        rng = random
    now = microseconds_of(clock)
    target = engines.parse(url, settings)
    engine, close = target.open(now, clock)
    return Core(
        engine,
        clock=clock if isinstance(clock, SteeredClock) else None,
        rng=rng,
        max_payload_bytes=limit,
        codec=codec or (JsonCodec() if engine.durable or target.codec == "json" else None),
        close=close,
    )


def check_codec(codec: Codec | None) -> Codec | None:
    """Something with ``encode`` and ``decode``, or None; ``TypeError`` otherwise."""
    if codec is not None and not isinstance(codec, Codec):
        raise TypeError(f"codec must have encode(obj) -> str and decode(str) -> obj, got {codec!r}")
    if isinstance(codec, type) and isinstance(_as_defined(codec, "decode"), FunctionType):
        # Called on the class itself it would take the text for the codec, and every payload for undecodable.
        raise TypeError(f"codec must be an instance, got the class {codec!r}: write {codec.__name__}(…)")
    return codec


def _as_defined(owner: type, name: str) -> object:
    return next(vars(one)[name] for one in owner.__mro__ if name in vars(one))
