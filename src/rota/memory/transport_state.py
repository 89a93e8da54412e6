"""One transport's data and its hot verbs: publish, claim, settle (T1-T8).

The caller holds the lock, but ``claim`` and ``ack`` take it themselves and spell out what they could call: they are the
whole cost of a cycle, about 1.7 µs, in which a call is 40 ns and a ``with lock`` 85 ns more than this.
Dead letters stand in ``transport_letters``, inspection in ``transport_inspect``; ``transport`` is the engine's face.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush
from time import time_ns
from typing import Any

from rota import rules
from rota.memory.groups import Group, Message
from rota.memory.keys import Keys
from rota.memory.lanes import Lanes, TurnLane
from rota.memory.pins import Pin, Pins
from rota.memory.schedule import FREE, Agenda, DeadlineTimers
from rota.memory.shared import Shared
from rota.records import DeadMessageRow, LeaseClaim, NewMessage

# A named tuple's own constructor costs twice as much.
_new_row = tuple.__new__


class TransportState:
    """One transport."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.shared = shared
        self.name = name
        self.stored: dict[str, Any] = {}
        self.options = rules.resolve_options({})
        self.suspended_at: int | None = None
        self.suspended: dict[str, int] = {}
        """Suspended group ids, with or without messages (T9), and since when."""
        self.groups: dict[str, Group] = {}
        self.lanes: Lanes[TurnLane] = Lanes(TurnLane)
        self.deadlines = DeadlineTimers()
        self.keys = Keys()
        self.pinned = Pins()
        self.letters: dict[int, DeadMessageRow] = {}
        self.letters_by_age = Agenda(lambda died_at, letter_id: letter_id in self.letters)

    def store_options(self, stored: dict[str, Any]) -> None:
        """Set the stored options (T11)."""
        self.stored = stored
        self.options = rules.resolve_options(stored)

    # -- Publish -----------------------------------------------------------------------------------------------------

    def publish(self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None) -> int:
        shared = self.shared
        now = shared.now()
        if key is not None:
            holder = self.keys.holder(key, now)
            if holder is not None:
                return holder
        if shared.max_items is not None:
            shared.make_room(1)
        return self._append(group_id, event, priority, key, headers, now)

    def publish_many(self, messages: Sequence[NewMessage]) -> list[int]:
        shared = self.shared
        now = shared.now()
        self.make_room(messages, now)
        seqs = []
        for group_id, event, priority, key, headers in messages:
            seq = None if key is None else self.keys.holder(key, now)
            seqs.append(self._append(group_id, event, priority, key, headers, now) if seq is None else seq)
        return seqs

    def make_room(self, messages: Sequence[NewMessage], now: int, owner: object = None) -> None:
        """Before any effect: is there room for those whose key is not taken, and is no key in doubt (X1)?"""
        if self.shared.max_items is None and not self.keys.reserved:
            return
        keys = {message.key for message in messages if message.key is not None}
        free = sum(1 for key in keys if self.keys.holder(key, now, owner) is None)
        if self.shared.max_items is not None:
            self.shared.make_room(free + sum(1 for message in messages if message.key is None))

    def _append(
        self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None, now: int
    ) -> int:
        shared = self.shared
        seq = shared.next_seq()
        message = Message(seq, event, headers, now, key)
        group = self.groups.get(group_id)
        if group is None:
            self.add_group(group_id, priority, message)
        else:
            group.tail.next = message
            group.tail = message
            group.size += 1
        shared.items += 1
        if key is not None:
            self.keys.bind(key, seq, now + self.options.key_ttl, now)
        return seq

    def add_group(self, group_id: str, priority: int, message: Message) -> Group:
        """A new group enters the rota (T3, T5)."""
        first = self.options.new_groups == "first"
        turn = rules.fresh_turn(message.seq) if first else self.shared.next_token()
        lane = self.lanes.join(priority)
        group = self.groups[group_id] = Group(group_id, lane, message, turn)
        lane.push(group)
        return group

    # -- Claim -------------------------------------------------------------------------------------------------------

    def claim(self, worker_id: str, n: int, visibility: int, min_priority: int | None) -> list[LeaseClaim]:
        shared = self.shared
        lock = shared.lock
        try:
            lock.acquire()
            # The host's clock without the call around it: 0.15 of 2.3 µs.
            now = time_ns() // 1_000 if shared.on_wall_clock else shared.now()
            claims: list[LeaseClaim] = []
            if self.suspended_at is not None:
                return claims
            deadlines = self.deadlines
            if deadlines.live and deadlines.due(now):
                self.free_lapsed(now)
            lanes = self.lanes.ordered
            only_lane = None
            if len(lanes) == 1 and (min_priority is None or lanes[0].priority >= min_priority):
                only_lane = lanes[0]
            deadline = now + visibility
            options = self.options
            max_deliveries = options.max_deliveries
            suspended = self.suspended
            fifo = deadlines.fifo
            while len(claims) < n:
                lane = self._next_lane(min_priority) if only_lane is None else only_lane
                group = None if lane is None else lane.pop()
                if group is None:
                    break
                group_id = group.group_id
                if suspended and group_id in suspended:
                    # Out of its lane until it is resumed.
                    continue
                if group.deadline >= now:
                    # Freed as lapsed, but the clock has gone back and its holder is valid again (C9).
                    deadlines.add(group, group.deadline, group.token)
                    continue
                message = group.head
                if max_deliveries is not None and message.deliveries >= max_deliveries:
                    message = self._bury_poisoned(group, now)
                    if message is None:
                        continue
                group.token = group.turn = token = shared.next_token()
                group.deadline = deadline
                group.worker_id = worker_id
                group.last_claimed_at = now
                message.deliveries = deliveries = message.deliveries + 1
                # ``deadlines.add``, spelled out.
                deadlines.live += 1
                group.timer = entry = (deadline, token, group)
                if not fifo or fifo[-1] < entry:
                    fifo.append(entry)
                else:
                    heappush(deadlines.heap, entry)
                claims.append(
                    _new_row(
                        LeaseClaim,
                        (
                            message.seq,
                            group_id,
                            message.event,
                            token,
                            worker_id,
                            deliveries,
                            deadline,
                            group.lane.priority,
                            message.headers,
                            message.published_at,
                            options.backoff_base,
                        ),
                    )
                )
            return claims
        finally:
            try:
                lock.release()
            except RuntimeError:
                pass  # Interrupted while it waited for the lock.

    def _next_lane(self, floor: int | None) -> TurnLane | None:
        """The lane at or above the floor whose first group has the lowest turn (T4: priority is no order)."""
        best, best_turn = None, 0
        for lane in self.lanes.ordered:
            if floor is not None and lane.priority < floor:
                break
            turn = lane.front()
            if turn is not None and (best is None or turn < best_turn):
                best, best_turn = lane, turn
        return best

    def free_lapsed(self, now: int) -> None:
        """Groups whose lease or park is over return to their lanes. Their token stays current until a claim (T6)."""
        for group in self.deadlines.lapsed(now):
            assert isinstance(group, Group)
            group.lane.push(group)

    def _bury_poisoned(self, group: Group, now: int) -> Message | None:
        """T7: dead-letter the poisoned head, and those behind it; the head to claim instead, if any."""
        while (head := group.head) is not None and rules.poisoned(head.deliveries, self.options.max_deliveries):
            # Whoever delivered it last may not settle what comes after it.
            group.token = 0
            group.deadline = FREE
            group.remove(head)
            self.bury(group, head, rules.MAX_DELIVERIES, None, now)
            if self.options.poison == "hold":
                self.suspended.setdefault(group.group_id, now)
                break
        if group.head is None:
            self.forget(group)
            return None
        return None if group.group_id in self.suspended else group.head

    def bury(self, group: Group, message: Message, reason: str, error: str | None, now: int) -> None:
        """Make an unlinked message a dead letter (D1)."""
        if message.key is not None:
            self.keys.ended(message.key, message.seq)
        message.previous_error = message.last_error
        message.last_error = reason if error is None else error
        letter_id = self.shared.next_letter()
        self.letters[letter_id] = DeadMessageRow(letter_id, reason, now, group.message_row(message))
        self.letters_by_age.put(now, letter_id, len(self.letters))

    # -- Settle ------------------------------------------------------------------------------------------------------

    def ack(self, claim: LeaseClaim) -> bool:
        shared = self.shared
        lock = shared.lock
        try:
            lock.acquire()
            # Reads no clock: a lapsed lease nobody else took may still be settled.
            group = self.groups.get(claim[1])
            if group is None or group.token != claim[3]:
                self.pinned.check(claim[1])
                return False
            message = group.head
            if message is None or message.seq != claim[0]:
                message = group.find(claim[0])
                if message is None:
                    return False
                group.remove(message)
            else:
                group.head = message.next
                group.size -= 1
            shared.items -= 1
            if message.key is not None:
                self.keys.ended(message.key, message.seq)
            if group.head is None or group.timer is None:
                self.free(group)
                return True
            # ``free``, spelled out for the usual case.
            group.token = 0
            group.deadline = FREE
            self.deadlines.drop(group)
            turned = group.lane.turned
            if turned and turned[-1].turn > group.turn:
                group.lane.push(group)
            else:
                group.queued = True
                turned.append(group)
            return True
        finally:
            try:
                lock.release()
            except RuntimeError:
                pass  # Interrupted while it waited for the lock.

    def ack_batch(self, claims: Sequence[LeaseClaim]) -> int:
        for claim in claims if self.pinned else ():
            self.pinned.check(claim.group_id)
        # Under the lock; each takes it once more.
        return sum(map(self.ack, claims))

    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> bool:
        return self.give_back(claim, delay, error, True, self.shared.now())

    def release(self, claim: LeaseClaim, delay: int) -> bool:
        return self.give_back(claim, delay, None, False, self.shared.now())

    def give_back(self, claim: LeaseClaim, delay: int, error: str | None, delivered: bool, now: int) -> bool:
        """Free or park; ``delivered``: this delivery counts."""
        group, message = self.leased(claim)
        if group is None or message is None:
            return False
        message.failed(error)
        if not delivered:
            message.deliveries -= 1
        if delay > 0:
            self._park(group, now, delay)
        else:
            self.free(group)
        return True

    def fail(self, claim: LeaseClaim, error: str | None) -> bool:
        return self.end_failed(claim, error, self.shared.now())

    def end_failed(self, claim: LeaseClaim, error: str | None, now: int) -> bool:
        """Dead-letter the message of a lease."""
        group, message = self.leased(claim)
        if group is None or message is None:
            return False
        group.remove(message)
        self.bury(group, message, rules.FAILED, error, now)
        if self.options.poison == "hold":
            self.suspended.setdefault(group.group_id, now)
        self.free(group)
        return True

    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> list[int | None]:
        now = self.shared.now()
        deadline = now + visibility
        results: list[int | None] = []
        for claim in claims if self.pinned else ():
            self.pinned.check(claim.group_id)
        for claim in claims:
            group, _ = self.leased(claim)
            if group is None or rules.lapsed(group.deadline, now):
                results.append(None)
                continue
            self._hold(group, deadline)
            results.append(deadline)
        return results

    def renew(self, claim: LeaseClaim, deadline: int) -> None:
        """Another deadline for a lease that is valid."""
        self._hold(self.groups[claim.group_id], deadline)

    # -- Pins (X2) -----------------------------------------------------------------------------------------------------

    def pin(self, group_id: str, owner: object) -> Pin:
        """Take a leased group out of reach."""
        group = self.groups[group_id]
        if group.timer is not None:
            self.deadlines.drop(group)
        elif group.queued:
            # It has lapsed, and its holder comes after all.
            group = self.groups[group_id] = group.lane.replaced(group)
        pin = self.pinned[group_id] = Pin(owner, group.token, group.deadline)
        group.token = 0
        return pin

    def unpin(self, group_id: str) -> None:
        """Leased as before; the next claim finds out whether it has lapsed. Quiet if it was not pinned after all."""
        pin = self.pinned.pop(group_id, None)
        if pin is None:
            return
        group = self.groups[group_id]
        group.token = pin.token
        self.deadlines.add(group, group.deadline, group.token)

    def leased(self, claim: LeaseClaim) -> tuple[Group | None, Message | None]:
        """The group and message of a lease that is still the group's current one (T6)."""
        group = self.groups.get(claim.group_id)
        if group is None or group.token != claim.token:
            self.pinned.check(claim.group_id)
            return None, None
        message = group.find(claim.seq)
        return (group, message) if message is not None else (None, None)

    def free(self, group: Group) -> None:
        """Spend the token and free the group, or forget it if it has run empty."""
        group.token = 0
        if group.head is None:
            self.forget(group)
            return
        group.deadline = FREE
        # Without a timer it was freed as lapsed before: back in its lane already, or out of it while suspended.
        if group.timer is not None:
            self.deadlines.drop(group)
            group.lane.push(group)

    def _park(self, group: Group, now: int, delay: int) -> None:
        group.token = 0
        group.worker_id = None
        group.parked_at = now
        self._hold(group, now + delay)

    def _hold(self, group: Group, deadline: int) -> None:
        """Lease or park a group until another deadline."""
        if group.timer is not None:
            self.deadlines.renew(group, deadline)
            return
        # It lapsed and went back to its lane, then its holder came after all.
        if group.queued:
            group = self.groups[group.group_id] = group.lane.replaced(group)
        group.deadline = deadline
        self.deadlines.add(group, deadline, group.token)

    def forget(self, group: Group) -> None:
        """The last message is gone: so are the group, its priority and its turn (T5)."""
        del self.groups[group.group_id]
        # Entries that no longer count may hold the object for a while, but nothing of its messages.
        group.empty()
        if group.timer is not None:
            self.deadlines.drop(group)
        if group.queued:
            group.lane.discard(group)
        group.lane.living -= 1
        if not group.lane.living:
            self.lanes.unused(group.lane)
