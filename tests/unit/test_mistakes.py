"""Typical mistakes in a first program: refused, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota.testing import ManualClock


@pytest.mark.parametrize(("one", "kind"), [("hello", "str"), ({"to": "ada"}, "dict"), (b"x", "bytes")])
def test_one_payload_is_no_batch(one: Any, kind: str) -> None:
    """Its characters or keys would become jobs."""
    with rota.open("memory://") as store:
        queue = store.queue("q")
        with pytest.raises(
            TypeError, match=rf"several payloads or rota\.Items, got one {kind}: that is for enqueue\(\)"
        ):
            queue.enqueue_many(one)
        assert queue.stats().pending == 0
        assert len(queue.enqueue_many(payload for payload in ("a", "b"))) == 2


def test_a_store_that_was_not_awaited() -> None:
    opening: Any = rota.aopen("memory://")
    with pytest.raises(
        AttributeError, match=r"not opened yet, so it has no 'queue': write store = await rota\.aopen\(…\)"
    ):
        opening.queue("q")
    assert not hasattr(opening, "as_sync")
    with pytest.raises(AttributeError, match="has no attribute '_core'"):
        opening._core  # noqa: B018


def test_a_clock_is_no_class() -> None:
    with pytest.raises(TypeError, match=r"must be an instance, got the class .*: write ManualClock\(…\)"):
        rota.open("memory://", clock=ManualClock)  # type: ignore[arg-type]
