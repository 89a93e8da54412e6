"""A naive transport: lists, sorts, and the words of the contract. Obviously right, never fast, knows no engine.

Times are whole microseconds. Numbers of the oracle (seqs, tokens) grow like an engine's but are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class Message:
    seq: int
    group_id: str
    event: Any
    published_at: int
    key: str | None
    deliveries: int = 0
    last_error: str | None = None
    previous_error: str | None = None


@dataclass
class Group:
    priority: int
    entered: int | None  # its turn if new_groups="last" put it at the back, else None
    turn: int | None = None  # the number of its last claim
    token: int | None = None  # the lease that may settle, None when settled
    leased_seq: int | None = None
    worker: str | None = None
    until: int | None = None  # deadline of lease or park
    claimed_at: int | None = None


@dataclass(frozen=True)
class Lease:
    seq: int
    group_id: str
    event: Any
    token: int
    worker: str
    deliveries: int
    deadline: int
    priority: int
    published_at: int


@dataclass
class Letter:
    number: int
    reason: str
    died_at: int
    priority: int
    message: Message


@dataclass
class TransportOracle:
    max_deliveries: int | None = None
    poison: str = "dead-letter"
    new_groups: str = "first"
    retention: int | None = None
    key_ttl: int = 300_000_000
    now: int = 0
    counter: int = 0
    last_seq: int = 0
    last_letter: int = 0
    messages: list[Message] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    suspended_groups: dict[str, int] = field(default_factory=dict)
    suspended_at: int | None = None

    # -- Looking -------------------------------------------------------------------------------------------------------

    def of(self, group_id: str) -> list[Message]:
        return sorted((m for m in self.messages if m.group_id == group_id), key=lambda m: m.seq)

    def in_flight(self, group: Group) -> bool:
        return group.until is not None and group.until >= self.now

    def state(self, group_id: str) -> str:
        group = self.groups[group_id]
        if group_id in self.suspended_groups:
            return "suspended"
        if not self.in_flight(group):
            return "ready"
        return "parked" if group.token is None else "leased"

    def live(self, seq: int) -> bool:
        return any(message.seq == seq for message in self.messages)

    def in_turn(self, floor: int | None) -> list[str]:
        """Claimable groups: never claimed ones first by head seq, then by the number of their last claim (T3)."""
        if self.suspended_at is not None:
            return []
        found = []
        for group_id, group in self.groups.items():
            if group_id in self.suspended_groups or self.in_flight(group):
                continue
            if floor is not None and group.priority < floor:
                continue
            number = group.turn if group.turn is not None else group.entered
            found.append(((0, self.of(group_id)[0].seq) if number is None else (1, number), group_id))
        return [group_id for _, group_id in sorted(found)]

    def next_due(self) -> int | None:
        """The next instant after now at which a group becomes claimable by time alone."""
        if self.suspended_at is not None:
            return None
        held = [g.until for name, g in self.groups.items() if name not in self.suspended_groups and self.in_flight(g)]
        return min((until + 1 for until in held if until is not None), default=None)

    # -- In ------------------------------------------------------------------------------------------------------------

    def publish(self, group_id: str, event: Any, priority: int, key: str | None) -> int:
        if key is not None and key in self.keys:
            seq, until = self.keys[key]
            if self.live(seq) or self.now < until:
                return seq
        self.last_seq += 1
        self._append(Message(self.last_seq, group_id, event, self.now, key), priority)
        if key is not None:
            self.keys[key] = (self.last_seq, self.now + self.key_ttl)
        return self.last_seq

    def _append(self, message: Message, priority: int) -> None:
        self.messages.append(message)
        if message.group_id not in self.groups:
            entered = None
            if self.new_groups == "last":
                self.counter += 1
                entered = self.counter
            self.groups[message.group_id] = Group(priority, entered)

    # -- Claim ---------------------------------------------------------------------------------------------------------

    def claim(self, worker: str, n: int, visibility: int, floor: int | None) -> list[Lease]:
        leases: list[Lease] = []
        while len(leases) < n:
            ready = self.in_turn(floor)
            if not ready:
                break
            head = self.of(ready[0])[0]
            if self.max_deliveries is not None and head.deliveries >= self.max_deliveries:
                self._bury(head, "max deliveries exceeded", None)
                continue
            leases.append(self._lease(ready[0], head, worker, visibility))
        return leases

    def _lease(self, group_id: str, head: Message, worker: str, visibility: int) -> Lease:
        self.counter += 1
        group, until = self.groups[group_id], self.now + visibility
        group.turn = group.token = self.counter
        group.leased_seq, group.worker, group.until, group.claimed_at = head.seq, worker, until, self.now
        head.deliveries += 1
        return Lease(
            head.seq,
            group_id,
            head.event,
            self.counter,
            worker,
            head.deliveries,
            until,
            group.priority,
            head.published_at,
        )

    # -- Settling ------------------------------------------------------------------------------------------------------

    def valid(self, lease: Lease) -> bool:
        group = self.groups.get(lease.group_id)
        return group is not None and group.token == lease.token

    def settle(self, lease: Lease, verb: str, delay: int = 0, error: str | None = None) -> bool:
        if not self.valid(lease):
            return False
        message = next(m for m in self.messages if m.seq == lease.seq)
        if verb == "ack":
            self._remove(message)
        elif verb == "fail":
            self._bury(message, "failed", error)
        else:
            if verb == "release":
                message.deliveries -= 1
            elif error is not None:
                message.previous_error, message.last_error = message.last_error, error
            self._free(lease.group_id, self.now + delay if delay > 0 else None)
        return True

    def _free(self, group_id: str, until: int | None) -> None:
        group = self.groups[group_id]
        group.token = group.leased_seq = group.worker = None
        group.until = until

    def _remove(self, message: Message) -> None:
        self.messages.remove(message)
        if self.of(message.group_id):
            self._free(message.group_id, None)
        else:
            del self.groups[message.group_id]

    def _bury(self, message: Message, reason: str, error: str | None) -> None:
        self.last_letter += 1
        priority = self.groups[message.group_id].priority
        dead = replace(message, last_error=error or reason, previous_error=message.last_error)
        self.letters.append(Letter(self.last_letter, reason, self.now, priority, dead))
        self._remove(message)
        if self.poison == "hold":
            self.suspended_groups.setdefault(message.group_id, self.now)

    def extend(self, lease: Lease, visibility: int) -> Lease | None:
        if not self.valid(lease) or not self.in_flight(self.groups[lease.group_id]):
            return None
        self.groups[lease.group_id].until = self.now + visibility
        return replace(lease, deadline=self.now + visibility)

    # -- Control -------------------------------------------------------------------------------------------------------

    def suspend(self, group_id: str | None) -> bool:
        if group_id is None:
            changed = self.suspended_at is None
            self.suspended_at = self.now if changed else self.suspended_at
            return changed
        changed = group_id not in self.suspended_groups
        self.suspended_groups.setdefault(group_id, self.now)
        return changed

    def resume(self, group_id: str | None) -> bool:
        if group_id is None:
            changed, self.suspended_at = self.suspended_at is not None, None
            return changed
        return self.suspended_groups.pop(group_id, None) is not None

    def purge(self, group_id: str) -> int:
        gone = self.of(group_id)
        self.messages = [message for message in self.messages if message.group_id != group_id]
        self.groups.pop(group_id, None)
        return len(gone)

    # -- Letters -------------------------------------------------------------------------------------------------------

    def redrive(self, numbers: list[int] | None, position: str) -> list[int]:
        chosen = [letter for letter in self.letters if numbers is None or letter.number in numbers]
        seqs = []
        for letter in sorted(chosen, key=lambda each: each.message.seq):
            self.letters.remove(letter)
            message = replace(letter.message, deliveries=0)
            # The errors stay as they are on the letter.
            if position == "tail":
                self.last_seq += 1
                message.seq = self.last_seq
            self._rebind(message, letter.message.seq)
            self._append(message, letter.priority)
            seqs.append(message.seq)
        return seqs

    def _rebind(self, message: Message, old_seq: int) -> None:
        """D3: the item holds its key again, unless another took it meanwhile."""
        if message.key is None:
            return
        seq, until = self.keys.get(message.key, (old_seq, message.published_at + self.key_ttl))
        if seq != old_seq and (self.live(seq) or self.now < until):
            message.key = None
        else:
            self.keys[message.key] = (message.seq, message.published_at + self.key_ttl)

    def purge_dead(self, numbers: list[int] | None, older_than: int | None) -> int:
        before = len(self.letters)
        if older_than is not None:
            self.letters = [letter for letter in self.letters if letter.died_at > self.now - older_than]
        else:
            self.letters = [letter for letter in self.letters if numbers is not None and letter.number not in numbers]
        return before - len(self.letters)

    def sweep(self) -> int:
        return 0 if self.retention is None else self.purge_dead(None, self.retention)
