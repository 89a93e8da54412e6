"""Transports without I/O: what both facades check on the way in and make on the way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from rota import names, rules, units
from rota.codecs import Codec, decoded, to_text
from rota.errors import PayloadError
from rota.facade import ids
from rota.facade.core import Core
from rota.facade.settled import remembering
from rota.records import (
    GroupState,
    LeaseClaim,
    NewGroups,
    NewMessage,
    Poison,
    TransportOptions,
)
from rota.units import Duration
from rota.wakeups import transport_address

if TYPE_CHECKING:
    from rota.contract import EngineTransaction, Position, TransportEngine

DEFAULT_VISIBILITY = 30
_NOBODY = object()


class OptionChanges(TypedDict, total=False):
    """Options of a transport by name; None means the default (T11)."""

    max_deliveries: int | None
    poison: Poison | None
    new_groups: NewGroups | None
    backoff_base: Duration | None
    dead_letter_retention: Duration | None
    key_ttl: Duration | None


def check_options(**options: Unpack[OptionChanges]) -> dict[str, Any]:
    """The options in the units of the engines; None stays None. ``ValueError`` or ``TypeError`` naming the option."""
    checked: dict[str, Any] = {}
    for option, value in options.items():
        if option not in TransportOptions._fields:
            raise TypeError(
                f"{option} is not an option of a transport, which are: {', '.join(TransportOptions._fields)}"
            )
        checked[option] = None if value is None else _check_option(option, value)
    return checked


def with_defaults(changes: dict[str, Any]) -> dict[str, Any]:
    """Checked changes with the default in place of None."""
    plain = TransportOptions()._asdict()
    return {option: plain[option] if value is None else value for option, value in changes.items()}


def _check_option(option: str, value: Any) -> Any:
    if option == "max_deliveries":
        return units.integer(value, option, 1, 2**31 - 1)
    if option == "poison":
        return _one_of(value, option, ("dead-letter", "hold"))
    if option == "new_groups":
        return _one_of(value, option, ("first", "last"))
    return units.not_negative(value, option)


def _one_of(value: Any, option: str, accepted: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{option} must be one of {accepted}, got {value!r}")
    if value not in accepted:
        raise ValueError(f"{option} must be one of {accepted}, got {value!r}")
    return value


class LeaseData:
    """The right to work on one message until a deadline (T). Verbs: ``rota.Lease``, ``rota.AsyncLease``."""

    # ``_lost`` stays unset until somebody asks for it.
    __slots__ = ("_claim", "_lost", "_transport", "event")
    # True for a worker's, see ``rota.facade.settled``.
    remembers = False

    def __init__(self, claim: LeaseClaim, event: Any, transport: Any) -> None:
        self._claim = claim
        self.event = event
        self._transport = transport

    @property
    def seq(self) -> int:
        """The message's place in the order of publishing."""
        return self._claim.seq

    @property
    def group_id(self) -> str:
        """The message's group."""
        return self._claim.group_id

    @property
    def token(self) -> int:
        """This claim's fence (T6): grows with every claim, never reused."""
        return self._claim.token

    @property
    def worker_id(self) -> str:
        """Who claimed."""
        return self._claim.worker_id

    @property
    def deliveries(self) -> int:
        """How often the message was claimed, this time included, released ones not (T7)."""
        return self._claim.deliveries

    @property
    def deadline(self) -> float:
        """POSIX seconds; this very instant still belongs to the holder (T1)."""
        return units.seconds(self._claim.deadline)

    @property
    def priority(self) -> int:
        """The group's priority (T5)."""
        return self._claim.priority

    @property
    def headers(self) -> dict[str, str]:
        """The message's headers: a copy."""
        return dict(self._claim.headers or {})

    @property
    def published_at(self) -> float:
        """POSIX seconds."""
        return units.seconds(self._claim.published_at)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} seq={self.seq} group_id={self.group_id!r} token={self.token} "
            f"deliveries={self.deliveries} worker_id={self.worker_id!r}>"
        )


L = TypeVar("L", bound=LeaseData)
R = TypeVar("R", bool, int, list[int])


class TransportBase(Generic[L]):
    """A handle on a transport: making it does no I/O."""

    _lease_type: type[L]
    # Verbs after which something may be claimable.
    _waking = frozenset({"publish", "publish_many", "ack", "ack_batch", "nack", "release", "fail"})

    def __init__(self, core: Core, name: str, codec: Codec | None, declared: dict[str, Any]) -> None:
        self.name = names.name(name, "transport name")
        self._core = core
        self._codec = codec if codec is not None else core.codec
        self._engine: TransportEngine = core.transport(self.name, declared)
        self._place = self._engine.place
        self._address = transport_address(self.name)
        self._wakeups = core.wakeups
        self._call = core.engine.acall
        # The last arguments of a claim that were checked, and what came of it: workers ask the same over and over.
        self._asked: tuple[Any, Any, Any, Any, tuple[str, int, int, int | None]] = (_NOBODY, 0, 0, 0, ("", 0, 0, 0))
        core.adopt(self)

    # -- In ------------------------------------------------------------------------------------------------------------

    def _new(
        self, group_id: str, event: Any, priority: int | None, key: str | None, headers: Mapping[str, str] | None
    ) -> tuple[str, Any, int, str | None, dict[str, str] | None]:
        return (
            names.name(group_id, "group_id"),
            event if self._codec is None else to_text(self._codec, event, self._core.max_payload_bytes),
            0 if priority is None or (priority == 0 and type(priority) is int) else units.priority(priority),
            None if key is None else names.name(key, "key"),
            None if headers is None else names.headers(headers),
        )

    def _new_many(self, items: Iterable[tuple[Any, ...]]) -> list[NewMessage]:
        messages: list[NewMessage] = []
        for index, item in enumerate(items):
            if not isinstance(item, tuple | list) or not 2 <= len(item) <= 3:
                raise TypeError(
                    f"items[{index}] must be (group_id, event) or (group_id, event, priority), got {item!r}"
                )
            priority = item[2] if len(item) == 3 else 0
            try:
                messages.append(NewMessage(*self._new(item[0], item[1], priority, None, None)))
            except (TypeError, ValueError, PayloadError) as error:
                error.add_note(f"in items[{index}]")
                raise
        return messages

    def _ask(
        self, worker_id: str | None, n: int, visibility: Duration | None, min_priority: int | None
    ) -> tuple[str, int, int, int | None]:
        known_worker, known_n, known_visibility, known_floor, checked = self._asked
        if (
            worker_id is known_worker
            and n is known_n
            and visibility is known_visibility
            and min_priority is known_floor
        ):
            return checked
        worker = self._core.worker_id() if worker_id is None else names.name(worker_id, "worker_id")
        microseconds = units.positive(DEFAULT_VISIBILITY if visibility is None else visibility, "visibility")
        floor = min_priority
        if floor is not None:
            # Any floor is legal; beyond the domain of priorities it admits all or none.
            floor = max(min(units.integer(floor, "min_priority"), units.PRIORITY_MAX + 1), units.PRIORITY_MIN)
        checked = worker, n, microseconds, floor
        if worker_id is not None:
            # The id that stands for none is another one after a fork.
            self._asked = worker_id, n, visibility, min_priority, checked
        return checked

    def _own(self, lease: L) -> LeaseClaim | None:
        """The claim under a lease, or None for a foreign one: a lease of another store or transport settles nothing."""
        if not isinstance(lease, LeaseData):
            raise TypeError(f"lease must be a lease this transport handed out, got {lease!r}")
        if lease._transport is self or lease._transport._place == self._place:
            return lease._claim
        return None

    def _own_many(self, leases: Iterable[L]) -> list[LeaseClaim]:
        return [claim for claim in map(self._own, leases) if claim is not None]

    def _view(self, running: EngineTransaction) -> TransportEngine:
        return running.transport(self._engine)

    def _asked_for(self, leases: list[L], claims: list[LeaseClaim]) -> int | None:
        """How many different leases an ``ack_batch`` is about; None if one of them is another transport's."""
        if len(claims) < len(leases):
            return None
        return len({(claim.group_id, claim.token) for claim in claims})

    def _none(self) -> list[Any]:
        """What a claim for no items gets: an error once the store is closed, as for any call."""
        self._core.check_open()
        return []

    def _give_back(self, engine: TransportEngine, claims: list[LeaseClaim]) -> None:
        """Nobody is there to work on these claims: release them, so that they are claimable at once."""
        for claim in claims:
            self._woken(engine.release(claim, 0))

    def _curve(self, claim: LeaseClaim, delay: Duration | None) -> int:
        """T: retry is a nack after the backoff over ``deliveries`` (Q8), or after the given delay."""
        if delay is not None:
            return units.not_negative(delay, "delay")
        return rules.backoff(claim.backoff_base, claim.deliveries, self._core.rng.random())

    # -- Out -----------------------------------------------------------------------------------------------------------

    def _lease(self, claim: LeaseClaim) -> L:
        codec = self._codec
        return self._lease_type(claim, claim[2] if codec is None else decoded(codec, claim[2]), self)

    def _leases(self, claims: list[LeaseClaim]) -> list[L]:
        return [self._lease(claim) for claim in claims]

    def _to_extend(self, leases: Iterable[L], visibility: Duration) -> tuple[list[L], list[LeaseClaim], int]:
        asked = list(leases)
        return asked, self._own_many(asked), units.positive(visibility, "visibility")

    def _extended(self, asked: list[L], deadlines: list[int | None]) -> list[L | None]:
        """The renewed leases in the order asked; foreign ones were not asked of the engine and are lost."""
        answers = iter(deadlines)
        renewed: list[L | None] = []
        for lease in asked:
            claim = self._own(lease)
            deadline = None if claim is None else next(answers)
            if claim is None or deadline is None:
                renewed.append(None)
            else:
                renewed.append(self._renewed(lease, claim._replace(deadline=deadline)))
        return renewed

    def _renewed(self, lease: L, claim: LeaseClaim) -> L:
        if not lease.remembers or not isinstance(lease, self._lease_type):
            return self._lease_type(claim, lease.event, self)
        renewed: Any = type(lease)(claim, lease.event, self)
        renewed.first = remembering(lease)
        renewed._lost = renewed.first.lost
        made: L = renewed
        return made

    def _woken(self, changed: R) -> R:
        """Wake waiters after something may have become claimable."""
        if changed:
            self._wakeups.wake(self._address)
        return changed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


_GROUP_STATES = ("ready", "leased", "parked", "suspended")


def group_filter(
    state: GroupState | None, limit: int | None, after: str | None
) -> tuple[GroupState | None, int, str | None]:
    """The arguments of ``groups``, checked."""
    if state is not None:
        _one_of(state, "state", _GROUP_STATES)
    return state, ids.limit(limit), names.optional_name(after, "after")


def redrive_position(value: Position | None) -> Position:
    """The argument of ``redrive`` (D3)."""
    if value is None:
        return "tail"
    _one_of(value, "position", ("tail", "original"))
    return value


def group_name(value: str | None) -> str | None:
    """A group id, or None for the whole transport."""
    return names.optional_name(value, "group_id")


def required_group(value: str) -> str:
    """A group id."""
    return names.name(value, "group_id")
