"""Groups of a transport and the messages linked in them."""

from __future__ import annotations

from typing import Any

from rota import rules
from rota.memory.lanes import Queued, TurnLane
from rota.memory.schedule import FREE
from rota.records import GroupRow, GroupState, MessageRow


class Message:
    """One message, linked to the next of its group."""

    __slots__ = (
        "deliveries",
        "event",
        "headers",
        "key",
        "last_error",
        "next",
        "previous_error",
        "published_at",
        "seq",
    )

    def __init__(
        self, seq: int, event: Any, headers: dict[str, str] | None, published_at: int, key: str | None
    ) -> None:
        self.seq = seq
        self.event = event
        self.headers = headers
        self.published_at = published_at
        self.key = key
        self.deliveries = 0
        self.last_error: str | None = None
        self.previous_error: str | None = None
        self.next: Message | None = None

    def failed(self, error: str | None) -> None:
        """Note an error; None keeps the last one."""
        if error is not None:
            self.previous_error = self.last_error
            self.last_error = error


class Group(Queued):
    """One group while it has messages (T5).

    Each group is either queued in its lane, or in the transport's deadlines (leased or parked), or in neither while
    suspended. ``token`` is the current lease's, 0 when spent; ``deadline`` is ``FREE`` unless leased or parked.
    """

    __slots__ = ("group_id", "head", "last_claimed_at", "parked_at", "size", "tail", "turn", "worker_id")

    def __init__(self, group_id: str, lane: TurnLane, first: Message, turn: int) -> None:
        self.group_id = group_id
        self.lane = lane
        self.head: Message | None = first
        self.tail = first
        """The last message; only of use while there is a head."""
        self.size = 1
        self.turn = turn
        self.token = 0
        self.deadline = FREE
        self.timer = None
        self.queued = False
        self.worker_id: str | None = None
        """The holder's; None while parked."""
        self.last_claimed_at: int | None = None
        self.parked_at: int | None = None

    def empty(self) -> None:
        """Let go of all messages."""
        self.head = None
        self.tail = _NO_MESSAGE
        self.size = 0

    def find(self, seq: int) -> Message | None:
        """A message of the group; the leased one is the head, or just behind those redriven meanwhile."""
        message = self.head
        while message is not None and message.seq < seq:
            message = message.next
        return message if message is not None and message.seq == seq else None

    def append(self, message: Message) -> None:
        """Add the highest seq."""
        self.tail.next = message
        self.tail = message
        self.size += 1

    def insert(self, message: Message, after: Message | None) -> None:
        """Add a message in the order of seqs, looking from ``after`` (None: the head) on."""
        before = after
        behind = self.head if before is None else before.next
        while behind is not None and behind.seq < message.seq:
            before, behind = behind, behind.next
        message.next = behind
        if before is None:
            self.head = message
        else:
            before.next = message
        if behind is None:
            self.tail = message
        self.size += 1

    def remove(self, message: Message) -> None:
        """Unlink a message."""
        self.size -= 1
        if self.head is message:
            self.head = message.next
            return
        before = self.head
        while before is not None and before.next is not message:
            before = before.next
        assert before is not None
        before.next = message.next
        if message.next is None:
            self.tail = before

    def held_until(self) -> int | None:
        """The deadline of a lease or park, lapsed or not."""
        return None if self.deadline == FREE else self.deadline

    def state(self, suspended: bool, now: int) -> GroupState:
        """The state shown."""
        return rules.group_state(suspended, self.held_until(), self.worker_id is not None, now)

    def row(self, suspended: bool, now: int) -> GroupRow:
        """The group as ``groups`` shows it."""
        assert self.head is not None
        held = self.deadline >= now
        return GroupRow(
            self.group_id,
            self.lane.priority,
            self.size,
            self.head.published_at,
            self.last_claimed_at,
            self.state(suspended, now),
            self.deadline if held else None,
            self.worker_id if held else None,
        )

    def message_row(self, message: Message) -> MessageRow:
        """One of its messages as ``peek`` and dead letters show it."""
        return MessageRow(
            message.seq,
            self.group_id,
            message.event,
            message.headers,
            message.deliveries,
            message.published_at,
            message.key,
            message.last_error,
            message.previous_error,
            self.lane.priority,
        )


_NO_MESSAGE = Message(0, None, None, 0, None)
