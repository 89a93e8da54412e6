"""The hot verbs of transports (T). ``now`` is read by the caller once it holds the write lock (C7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Any

from rota import rules
from rota.records import LeaseClaim, NewMessage, TransportOptions
from rota.rules import CLEANING_LIMIT
from rota.sql import keys
from rota.sql.blocks import Blocks
from rota.sql.drive import Op
from rota.sql.rows import headers_of, headers_text, named_options, options_of, options_text

SQL = Blocks("rota.sql", "statements/transport.sql")

_LOWEST = -(2**31)
# A named tuple's own constructor costs twice as much.
_new_row = tuple.__new__

# -- Options (T11) ---------------------------------------------------------------------------------------------------


def options(now: int, transport: str) -> Op[TransportOptions]:
    """The stored options, all resolved."""
    for text, _ in (yield SQL.transport, (transport,)):
        return options_of(text)
    return TransportOptions()


def declare(now: int, transport: str, declared: dict[str, Any], make: bool) -> Op[bool]:
    """Merge a handle's options with the stored ones; ``ValueError`` on conflict. False: there is no such transport."""
    rows = yield SQL.transport, (transport,)
    if not rows and not make:
        return False
    stored = named_options(rows[0][0]) if rows else {}
    merged = rules.merge_options(transport, stored, declared)
    if not rows or merged != stored:
        yield SQL.store_options, (transport, options_text(merged))
    return True


def configure(now: int, transport: str, changes: dict[str, Any]) -> Op[TransportOptions]:
    """Change stored options."""
    rows = yield SQL.transport, (transport,)
    text = options_text((named_options(rows[0][0]) if rows else {}) | changes)
    yield SQL.store_options, (transport, text)
    return options_of(text)


# -- Publish (T2, T5, T10) -------------------------------------------------------------------------------------------


def publish_many(now: int, transport: str, messages: Sequence[NewMessage]) -> Op[list[int]]:
    """Append messages to their groups, all or nothing; where a key is taken, the seq of the message that has it."""
    if not messages:
        return []
    ruling = yield from options(now, transport)
    if any(message.key is not None for message in messages):
        return (yield from _publish_keyed(now, transport, messages, ruling))
    last = yield from keys.advance("seq", len(messages))
    first = last - len(messages) + 1
    yield from _append(now, transport, first, messages, ruling)
    return list(range(first, last + 1))


def _publish_keyed(now: int, transport: str, messages: Sequence[NewMessage], ruling: TransportOptions) -> Op[list[int]]:
    space = keys.of_transport(transport)
    holders: dict[str, int | None] = {}
    fresh: list[NewMessage] = []
    for message in messages:
        if message.key is None:
            fresh.append(message)
        elif message.key not in holders:
            holders[message.key] = yield from keys.holder(space, message.key, now)
            if holders[message.key] is None:
                fresh.append(message)
    next_seq = (yield from keys.advance("seq", len(fresh))) - len(fresh) + 1
    if fresh:
        yield from _append(now, transport, next_seq, fresh, ruling)
    seqs: list[int] = []
    bindings: list[tuple[str, int, int]] = []
    for message in messages:
        taken = None if message.key is None else holders[message.key]
        if taken is None:
            taken = next_seq
            next_seq += 1
            if message.key is not None:
                # A second message with this key gets the first one's seq.
                holders[message.key] = taken
                bindings.append((message.key, taken, now + ruling.key_ttl))
        seqs.append(taken)
    yield from keys.bind(space, bindings)
    return seqs


def _append(now: int, transport: str, first: int, messages: Sequence[NewMessage], ruling: TransportOptions) -> Op[None]:
    if len(messages) == 1:
        group_id, event, priority, key, headers = messages[0]
        turn = rules.fresh_turn(first) if ruling.new_groups == "first" else (yield from keys.advance("token", 1))
        yield SQL.insert_group, (transport, group_id, priority, turn, transport, group_id)
        yield SQL.insert_message, (first, transport, group_id, now, key, headers_text(headers), event)
        return
    # The first message of a group made here gives it its priority and its turn.
    heads: dict[str, tuple[int, int]] = {}
    rows: list[tuple[Any, ...]] = []
    for seq, (group_id, event, priority, key, headers) in enumerate(messages, first):
        if group_id not in heads:
            heads[group_id] = (seq, priority)
        rows.append((seq, transport, group_id, now, key, None if headers is None else headers_text(headers), event))
    yield from make_groups(
        transport, [(group_id, priority, seq) for group_id, (seq, priority) in heads.items()], ruling
    )
    yield SQL.insert_message, rows


def make_groups(transport: str, groups: Sequence[tuple[str, int, int]], ruling: TransportOptions) -> Op[None]:
    """Make those of these groups (id, priority, head) that are not there yet."""
    if ruling.new_groups == "first":
        turns: Iterable[int] = [rules.fresh_turn(head) for _, _, head in groups]
    else:
        last = yield from keys.advance("token", len(groups))
        turns = range(last - len(groups) + 1, last + 1)
    yield (
        SQL.insert_group,
        [
            (transport, group_id, priority, turn, transport, group_id)
            for (group_id, priority, _), turn in zip(groups, turns, strict=True)
        ],
    )


# -- Claim (T1-T4, T7) -----------------------------------------------------------------------------------------------


def claim(
    now: int, transport: str, worker_id: str, n: int, visibility: int, min_priority: int | None
) -> Op[list[LeaseClaim] | None]:
    """Lease the heads of up to n groups. None: a full round was cleaned away (C8); commit it and claim again."""
    floor = _LOWEST if min_priority is None else min_priority
    rows = yield SQL.look, (now, floor, floor, transport)
    if not rows:
        return []
    ((text, suspended_at, lapsed, lowest, highest),) = rows
    if suspended_at is not None:
        return []
    unfinished = False
    if lapsed:
        freed = yield SQL.free_lapsed, (transport, now, CLEANING_LIMIT)
        unfinished = freed == CLEANING_LIMIT
        ((_, _, _, lowest, highest),) = yield SQL.look, (now, floor, floor, transport)
    ruling = options_of(text)
    leases: list[LeaseClaim] = []
    cleaned = 0
    while lowest is not None:
        wanted = n - len(leases)
        heads = yield from _heads(transport, lowest, highest, wanted)
        if unfinished and len(heads) < wanted and not leases:
            return None
        ready: list[tuple[Any, ...]] = []
        for head in heads:
            group, group_id, priority, deadline, *message = head
            if deadline is not None and not rules.lapsed(deadline, now):
                # It lapsed, but the clock has gone back (C9).
                yield SQL.hold_again, (group, now)
                cleaned += 1
                continue
            if rules.poisoned(message[3], ruling.max_deliveries):
                cleaned += 1
                message = yield from _bury_poisoned(now, transport, group, group_id, message, ruling)
                if not message:
                    continue
            ready.append((group, group_id, priority, *message))
        if ready:
            leases += yield from _lease(now, worker_id, visibility, ready, ruling)
        if len(leases) == n or len(heads) < wanted:
            break
        if cleaned >= CLEANING_LIMIT and not leases:
            return None
        ((_, _, _, lowest, highest),) = yield SQL.look, (now, floor, floor, transport)
    if unfinished and not leases:
        return None
    return leases


def _heads(transport: str, lowest: int, highest: int, n: int) -> Op[list[tuple[Any, ...]]]:
    """The heads of the n free groups whose turn it is, whatever their priority (T4): one probe per priority in use."""
    if lowest == highest:
        rows: list[tuple[Any, ...]] = yield SQL.heads_in_turn, (transport, lowest, n)
        return rows
    turns: list[tuple[int, int]] = []
    priority = lowest
    while True:
        turns += yield SQL.turns, (transport, priority, n)
        if priority == highest:
            break
        ((priority,),) = yield SQL.next_priority, (transport, priority)
    chosen = [group for _, group in nsmallest(n, turns)]
    rows = yield SQL.heads_of, (json.dumps(chosen),)
    return rows


def _lease(
    now: int,
    worker_id: str,
    visibility: int,
    ready: list[tuple[Any, ...]],
    ruling: TransportOptions,
) -> Op[list[LeaseClaim]]:
    """Lease these groups, in this order."""
    first = token = (yield from keys.advance("token", len(ready))) - len(ready) + 1
    deadline = now + visibility
    leases: list[LeaseClaim] = []
    groups: list[int] = []
    seqs: list[int] = []
    for group, group_id, priority, seq, event, headers, deliveries, published_at in ready:
        groups.append(group)
        seqs.append(seq)
        # fmt: off
        leases.append(_new_row(LeaseClaim, (
            seq, group_id, event, token, worker_id, deliveries + 1, deadline, priority,
            None if headers is None else headers_of(headers), published_at, ruling.backoff_base,
        )))
        # fmt: on
        token += 1
    if len(ready) == 1:
        yield SQL.lease, (first, deadline, now, worker_id, groups[0])
        yield SQL.deliver, (seqs[0],)
    else:
        yield SQL.lease_all, (first, deadline, now, worker_id, json.dumps(groups))
        yield SQL.deliver_all, (json.dumps(seqs),)
    return leases


def _bury_poisoned(
    now: int, transport: str, group: int, group_id: str, message: list[Any], ruling: TransportOptions
) -> Op[list[Any]]:
    """T7: bury the head, and those behind it that are poisoned too; what is to be claimed instead, nothing if empty."""
    while message and rules.poisoned(message[3], ruling.max_deliveries):
        yield from _bury(now, message[0], rules.MAX_DELIVERIES, None)
        if ruling.poison == "hold":
            yield from _leave(group)
            yield from suspend(now, transport, group_id)
            return []
        rows = yield SQL.next_message, (group,)
        message = list(rows[0]) if rows else []
    if not message:
        yield SQL.drop_group, (group,)
    return message


# -- Settling (T6) ---------------------------------------------------------------------------------------------------


def ack(now: int, transport: str, claim: LeaseClaim) -> Op[bool]:
    """Handled: remove the message, free the group."""
    fence = (transport, claim.group_id, claim.token)
    if not (yield SQL.ack, (claim.seq, *fence)):
        return False
    if not (yield SQL.drop_empty, fence):
        yield SQL.free, fence
    return True


def ack_batch(now: int, transport: str, claims: Sequence[LeaseClaim]) -> Op[int]:
    """Ack what is valid, each once."""
    fences = {(claim.seq, claim.token) for claim in claims}
    asked = dict.fromkeys([claim.seq for claim in claims])
    acked: list[int] = []
    empty: list[int] = []
    others: list[int] = []
    for seq, group, token, more in (yield SQL.tokens, (json.dumps([*asked]), transport)):
        if (seq, token) in fences:
            acked.append(seq)
            (others if more else empty).append(group)
    yield SQL.drop_messages, (json.dumps(acked),)
    if empty:
        yield SQL.drop_groups, (json.dumps(empty),)
    if others:
        yield SQL.free_all, (json.dumps(others),)
    return len(acked)


def nack(now: int, transport: str, claim: LeaseClaim, delay: int, error: str | None) -> Op[bool]:
    """Free the group, or park it."""
    if not (yield from _give_up(now, transport, claim, delay)):
        return False
    if error is not None:
        yield SQL.note_error, (error, claim.seq)
    return True


def release(now: int, transport: str, claim: LeaseClaim, delay: int) -> Op[bool]:
    """Give it back unworked: this delivery does not count."""
    if not (yield from _give_up(now, transport, claim, delay)):
        return False
    yield SQL.undeliver, (claim.seq,)
    return True


def release_batch(now: int, transport: str, claims: Sequence[LeaseClaim]) -> Op[int]:
    """Release each at once; how many were valid."""
    count = 0
    for claim in claims:
        count += yield from release(now, transport, claim, 0)
    return count


def _give_up(now: int, transport: str, claim: LeaseClaim, delay: int) -> Op[bool]:
    fence = (transport, claim.group_id, claim.token)
    if delay > 0:
        settled: int = yield SQL.park, (now + delay, now, *fence)
    else:
        settled = yield SQL.free, fence
    return settled > 0


def extend(now: int, transport: str, claims: Sequence[LeaseClaim], visibility: int) -> Op[list[int | None]]:
    """New deadlines; None for a lease that is lost."""
    deadline = now + visibility
    deadlines: list[int | None] = []
    for claim in claims:
        extended = yield SQL.extend, (deadline, transport, claim.group_id, claim.token, now)
        deadlines.append(deadline if extended else None)
    return deadlines


def fail(now: int, transport: str, claim: LeaseClaim, error: str | None) -> Op[bool]:
    """Dead-letter the message, free the group; under ``poison="hold"`` suspend it."""
    rows = yield SQL.holds, (transport, claim.group_id, claim.token)
    if not rows:
        return False
    ((group,),) = rows
    ruling = yield from options(now, transport)
    yield from _bury(now, claim.seq, rules.FAILED, error)
    yield from _leave(group)
    if ruling.poison == "hold":
        yield from suspend(now, transport, claim.group_id)
    return True


# -- Dead letters (D1) -----------------------------------------------------------------------------------------------


def _bury(now: int, seq: int, reason: str, error: str | None) -> Op[None]:
    letter = yield from keys.advance("letter", 1)
    yield SQL.bury, (letter, reason, now, error or reason, seq)
    yield SQL.drop_message, (seq,)


def _leave(group: int) -> Op[None]:
    """After a burial: spend the token, forget the group if it is empty."""
    if (yield SQL.next_message, (group,)):
        yield SQL.spend, (group,)
    else:
        yield SQL.drop_group, (group,)


def forget(now: int, transport: str, limit: int) -> Op[int]:
    """One round of forgetting letters whose retention is over."""
    retention = (yield from options(now, transport)).dead_letter_retention
    if retention is None:
        return 0
    count: int = yield SQL.forget_letters, (transport, now - retention, limit)
    return count


# -- Suspension (T9) -------------------------------------------------------------------------------------------------


def suspend(now: int, transport: str, group_id: str | None) -> Op[bool]:
    """Suspend a group, there or not, or the whole transport; whether that changed anything."""
    if group_id is None:
        changed: int = yield SQL.suspend_all, (now, transport)
    else:
        changed = yield SQL.suspend_group, (transport, group_id, now)
        if changed:
            yield SQL.flag_group, (1, transport, group_id)
    return changed > 0


def resume(now: int, transport: str, group_id: str | None) -> Op[bool]:
    """Lift that suspension only."""
    if group_id is None:
        changed: int = yield SQL.resume_all, (transport,)
    else:
        changed = yield SQL.resume_group, (transport, group_id)
        if changed:
            yield SQL.flag_group, (0, transport, group_id)
    return changed > 0
