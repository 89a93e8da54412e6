"""The sync and the async facade have the same names and signatures."""

from __future__ import annotations

import inspect
import re

import pytest

import rota
from rota.aio.store import Opening

PAIRS = [
    (rota.Store, rota.AsyncStore),
    (rota.Queue, rota.AsyncQueue),
    (rota.Outbox, rota.AsyncOutbox),
    (rota.Transport, rota.AsyncTransport),
    (rota.Job, rota.AsyncJob),
    (rota.Lease, rota.AsyncLease),
    (rota.Listener, rota.AsyncListener),
    (rota.Transaction, rota.AsyncTransaction),
    (rota.Savepoint, rota.AsyncSavepoint),
]
# Without I/O, so not awaited: they make a handle, a listener, something to enter, the other facade, or read a clock.
NOT_AWAITED = {
    "transport",
    "queue",
    "outbox",
    "worker",
    "transaction",
    "savepoint",
    "listen",
    "as_async",
    "as_sync",
    "now",
}
SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__next__": "__anext__", "__iter__": "__aiter__"}


def public(cls: type) -> dict[str, object]:
    """Every public member, inherited ones included."""
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


MEMBERS = [
    pytest.param(sync, asynchronous, name, id=f"{sync.__name__}.{name}")
    for sync, asynchronous in PAIRS
    for name in sorted({*public(sync), *public(asynchronous)})
]


def sync_word(annotation: object) -> str:
    """An annotation with the async types replaced by their sync twins."""
    return re.sub(r"\bAsync(?=[A-Z])", "", str(annotation))


@pytest.mark.parametrize(("sync", "asynchronous", "name"), MEMBERS)
def test_same_member(sync: type, asynchronous: type, name: str) -> None:
    ours, theirs = getattr(sync, name), getattr(asynchronous, name)
    assert callable(ours) == callable(theirs)
    if not callable(ours):
        assert type(ours) is type(theirs)
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)
        return
    same_signature(ours, theirs)
    assert inspect.iscoroutinefunction(theirs) == (name not in NOT_AWAITED)
    assert not inspect.iscoroutinefunction(ours)
    assert inspect.getdoc(ours)
    if name not in ("as_async", "as_sync"):
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)


def same_signature(ours: object, theirs: object) -> None:
    """Names, kinds, defaults and annotations of parameters and result, modulo the names of async types."""
    mine, yours = inspect.signature(ours), inspect.signature(theirs)  # type: ignore[arg-type]
    assert list(mine.parameters) == list(yours.parameters)
    for name, parameter in mine.parameters.items():
        twin = yours.parameters[name]
        assert (parameter.kind, parameter.default) == (twin.kind, twin.default), name
        assert sync_word(parameter.annotation) == sync_word(twin.annotation), name
    if getattr(ours, "__name__", "") not in ("as_async", "as_sync"):
        assert sync_word(mine.return_annotation) == sync_word(yours.return_annotation)


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS, ids=lambda cls: cls.__name__)
def test_same_protocols(sync: type, asynchronous: type) -> None:
    for ours, theirs in SPECIAL.items():
        assert (ours in dir(sync)) == (theirs in dir(asynchronous)), ours


def test_open_and_aopen() -> None:
    mine, yours = inspect.signature(rota.open), inspect.signature(rota.aopen)
    assert [str(parameter) for parameter in mine.parameters.values()] == [
        str(parameter) for parameter in yours.parameters.values()
    ]
    assert hasattr(Opening, "__await__")
    assert hasattr(Opening, "__aenter__")


def test_every_verb_of_a_handle_is_a_verb_of_its_queue_or_transport() -> None:
    for handle, source in ((rota.Job, rota.Queue), (rota.Lease, rota.Transport)):
        for name, verb in vars(handle).items():
            if name.startswith("_") or not inspect.isfunction(verb):
                continue
            mine = list(inspect.signature(verb).parameters.values())[1:]
            full = list(inspect.signature(getattr(source, name)).parameters.values())[2:]
            assert mine == full, f"{handle.__name__}.{name}"
