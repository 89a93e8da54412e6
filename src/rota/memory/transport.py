"""A handle's transport on the memory engine: takes the lock, settles the options (T11), and hands on.

Nothing is made by making it: the data comes into being with the first verb that has something to store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rota import rules
from rota.contract import Position
from rota.memory import transport_inspect, transport_letters
from rota.memory.transport_state import TransportState
from rota.records import (
    DeadMessageRow,
    ExplanationRow,
    GroupRow,
    GroupState,
    LeaseClaim,
    MessageRow,
    NewMessage,
    TransportOptions,
    TransportStatsRow,
)

if TYPE_CHECKING:
    from rota.memory.engine import MemoryEngine


class MemoryTransport:
    """``rota.contract.TransportEngine`` on memory."""

    def __init__(self, engine: MemoryEngine, name: str, declared: dict[str, Any]) -> None:
        self.name = name
        self.place = f"memory:{engine.shared.serial}:transport:{name}"
        self._engine = engine
        self._shared = engine.shared
        self._declared = declared
        self._state: TransportState | None = None

    # -- Options -----------------------------------------------------------------------------------------------------

    def writing(self) -> TransportState:
        """The data, made if need be, its options merged with the declared ones once."""
        state = self._engine.transport_states.get(self.name)
        if state is None:
            state = TransportState(self._shared, self.name)
            state.store_options(rules.merge_options(self.name, {}, self._declared))
            self._engine.transport_states[self.name] = state
        elif self._declared:
            state.store_options(rules.merge_options(self.name, state.stored, self._declared))
        self._state = state
        # From here on the hot verbs go straight to the data, which takes the lock itself.
        self.__dict__["claim"] = state.claim
        self.__dict__["ack"] = state.ack
        return state

    def reading(self) -> TransportState:
        """The data; of a transport that does not exist an empty one, which is not kept."""
        if self.name in self._engine.transport_states:
            return self.writing()
        state = TransportState(self._shared, self.name)
        state.store_options(rules.merge_options(self.name, {}, self._declared))
        return state

    def options(self) -> TransportOptions:
        with self._shared.reading:
            return (self._state or self.reading()).options

    def configure(self, changes: dict[str, Any]) -> TransportOptions:
        with self._shared.lock:
            state = self._state or self.writing()
            state.store_options(state.stored | changes)
            return state.options

    # -- Messages ----------------------------------------------------------------------------------------------------

    def publish(self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None) -> int:
        with self._shared.lock:
            return (self._state or self.writing()).publish(group_id, event, priority, key, headers)

    def publish_many(self, messages: Sequence[NewMessage]) -> list[int]:
        with self._shared.lock:
            return (self._state or self.writing()).publish_many(messages)

    def claim(self, worker_id: str, n: int, visibility: int, min_priority: int | None) -> list[LeaseClaim]:
        with self._shared.lock:
            return (self._state or self.writing()).claim(worker_id, n, visibility, min_priority)

    def ack(self, claim: LeaseClaim) -> bool:
        with self._shared.lock:
            return (self._state or self.writing()).ack(claim)

    def ack_batch(self, claims: Sequence[LeaseClaim]) -> int:
        with self._shared.lock:
            return (self._state or self.writing()).ack_batch(claims)

    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> bool:
        with self._shared.lock:
            return (self._state or self.writing()).nack(claim, delay, error)

    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> list[int | None]:
        with self._shared.lock:
            return (self._state or self.writing()).extend(claims, visibility)

    def release(self, claim: LeaseClaim, delay: int) -> bool:
        with self._shared.lock:
            return (self._state or self.writing()).release(claim, delay)

    def release_batch(self, claims: Sequence[LeaseClaim]) -> int:
        with self._shared.lock:
            state = self._state or self.writing()
            return sum(state.release(claim, 0) for claim in claims)

    def fail(self, claim: LeaseClaim, error: str | None) -> bool:
        with self._shared.lock:
            return (self._state or self.writing()).fail(claim, error)

    # -- Control plane and inspection --------------------------------------------------------------------------------

    def suspend(self, group_id: str | None) -> bool:
        with self._shared.lock:
            return transport_inspect.suspend(self._state or self.writing(), group_id)

    def resume(self, group_id: str | None) -> bool:
        with self._shared.lock:
            return transport_inspect.resume(self._state or self.writing(), group_id)

    def groups(self, state: GroupState | None, limit: int, after: str | None) -> list[GroupRow]:
        with self._shared.reading:
            return transport_inspect.groups(self._state or self.reading(), state, limit, after)

    def stats(self) -> TransportStatsRow:
        with self._shared.reading:
            return transport_inspect.stats(self._state or self.reading())

    def peek(self, group_id: str, n: int) -> list[MessageRow]:
        with self._shared.reading:
            return transport_inspect.peek(self._state or self.reading(), group_id, n)

    def purge(self, group_id: str) -> int:
        with self._shared.lock:
            return transport_inspect.purge(self._state or self.writing(), group_id)

    def explain(self, group_id: str) -> ExplanationRow:
        with self._shared.reading:
            return transport_inspect.explain(self._state or self.reading(), group_id)

    def next_due(self) -> int | None:
        with self._shared.reading:
            return transport_inspect.next_due(self._state or self.reading())

    # -- Dead letters ------------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        with self._shared.lock:
            return transport_letters.sweep(self._state or self.writing())

    def dead_letters(self, limit: int, after: int | None, group_id: str | None) -> list[DeadMessageRow]:
        with self._shared.reading:
            return transport_letters.dead_letters(self._state or self.reading(), limit, after, group_id)

    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> int:
        with self._shared.lock:
            return transport_letters.purge_dead(self._state or self.writing(), ids, older_than)

    def redrive(self, ids: Sequence[int] | None, position: Position) -> list[int]:
        with self._shared.lock:
            return transport_letters.redrive(self._state or self.writing(), ids, position)
