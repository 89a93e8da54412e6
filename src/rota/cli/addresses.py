"""Addresses: ``queue:NAME``, ``transport:NAME``, or a bare name where it is unambiguous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from rota.cli.exits import NOT_FOUND, USAGE, CommandError
from rota.names import HOUSEKEEPING

if TYPE_CHECKING:
    from rota import Queue, Store, Transport

Kind = Literal["queue", "transport"]


class Address(NamedTuple):
    """One queue or transport."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def is_bare(text: str) -> bool:
    """Whether the kind is left open."""
    return not text.startswith(("queue:", "transport:"))


def of_kind(text: str, kind: Kind) -> Address:
    """The address where the command itself says which kind is meant; the other kind is refused."""
    if is_bare(text):
        return Address(kind, text)
    given, _, name = text.partition(":")
    if given != kind:
        raise CommandError(USAGE, f"{text!r} is a {given}, this command works on a {kind}")
    return Address(kind, name)


def resolve(store: Store, text: str) -> Address:
    """The address ``text`` means; a bare name must exist as exactly one of queue and transport."""
    if not is_bare(text):
        kind, _, name = text.partition(":")
        return Address("queue" if kind == "queue" else "transport", name)
    is_queue, is_transport = text in store.queues(), text in store.transports()
    if is_queue and is_transport:
        raise CommandError(USAGE, f"{text!r} is both a queue and a transport: say queue:{text} or transport:{text}")
    if is_queue:
        return Address("queue", text)
    if is_transport:
        return Address("transport", text)
    raise CommandError(
        NOT_FOUND, f"there is no queue or transport named {text!r} (queue:{text} or transport:{text} is taken as it is)"
    )


def every(store: Store) -> list[Address]:
    """Every queue and transport that is listed for people: not the workers' own, which has to be named."""
    queues = [Address("queue", name) for name in store.queues()]
    return queues + [Address("transport", name) for name in store.transports() if name != HOUSEKEEPING]


def existing(store: Store, text: str, kind: Kind) -> Address:
    """The address of a command that works on one kind only; a bare name must exist, so that a typo is noticed."""
    address = of_kind(text, kind)
    if is_bare(text) and text not in (store.queues() if kind == "queue" else store.transports()):
        raise CommandError(NOT_FOUND, f"there is no {kind} named {text!r}")
    return address


def handle(store: Store, address: Address) -> Queue | Transport:
    """The handle at an address."""
    return store.queue(address.name) if address.kind == "queue" else store.transport(address.name)
