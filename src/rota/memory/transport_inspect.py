"""Inspection and control plane of a transport (T9). The caller holds the lock.

``groups``, ``stats`` and a page of letters look at every group or letter once, not more; nothing else here does.
"""

from __future__ import annotations

from heapq import nsmallest

from rota import rules
from rota.contract import COUNT_CAP
from rota.memory.groups import Message
from rota.memory.schedule import FREE
from rota.memory.transport_state import TransportState
from rota.records import ExplanationRow, GroupRow, GroupState, MessageRow, TransportStatsRow


def suspend(state: TransportState, group_id: str | None) -> bool:
    """Suspend one group, there or not, or the whole transport."""
    now = state.shared.now()
    if group_id is None:
        changed = state.suspended_at is None
        if changed:
            state.suspended_at = now
        return changed
    changed = group_id not in state.suspended
    state.suspended.setdefault(group_id, now)
    return changed


def resume(state: TransportState, group_id: str | None) -> bool:
    """Lift that suspension only."""
    if group_id is None:
        changed = state.suspended_at is not None
        state.suspended_at = None
        return changed
    if state.suspended.pop(group_id, None) is None:
        return False
    group = state.groups.get(group_id)
    if group is not None and not group.queued and group.timer is None and group_id not in state.pinned:
        group.lane.push(group)
    return True


def groups(state: TransportState, shown: GroupState | None, limit: int, after: str | None) -> list[GroupRow]:
    """A page of groups by id."""
    now = state.shared.now()
    suspended = state.suspended
    matching = (
        group_id
        for group_id, group in state.groups.items()
        if (after is None or group_id > after) and (shown is None or group.state(group_id in suspended, now) == shown)
    )
    return [state.groups[group_id].row(group_id in suspended, now) for group_id in nsmallest(max(limit, 0), matching)]


def stats(state: TransportState) -> TransportStatsRow:
    """Counts, the oldest message that is ready, the next due time."""
    now = state.shared.now()
    counts = {"groups": len(state.groups), "messages": 0, "ready": 0, "leased": 0, "parked": 0, "suspended_groups": 0}
    oldest: int | None = None
    for group_id, group in state.groups.items():
        counts["messages"] += group.size
        shown = group.state(group_id in state.suspended, now)
        counts["suspended_groups" if shown == "suspended" else shown] += 1
        assert group.head is not None
        if shown == "ready" and (oldest is None or group.head.published_at < oldest):
            oldest = group.head.published_at
    counts["dead"] = len(state.letters)
    capped = tuple(name for name, count in counts.items() if count > COUNT_CAP)
    return TransportStatsRow(
        **{name: min(count, COUNT_CAP) for name, count in counts.items()},
        capped=capped,
        oldest_ready_at=oldest if state.suspended_at is None else None,
        next_due_at=_next_due(state, now),
        suspended=state.suspended_at is not None,
        now=now,
    )


def peek(state: TransportState, group_id: str, n: int) -> list[MessageRow]:
    """The first messages of a group."""
    group = state.groups.get(group_id)
    if group is None or n <= 0:
        return []
    rows: list[MessageRow] = []
    message = group.head
    while message is not None and len(rows) < n:
        rows.append(group.message_row(message))
        message = message.next
    return rows


def purge(state: TransportState, group_id: str) -> int:
    """Remove a group's messages, leased ones too; a suspension stays."""
    group = state.groups.get(group_id)
    if group is None:
        return 0
    state.pinned.check(group_id)
    count = group.size
    message: Message | None = group.head
    while message is not None:
        if message.key is not None:
            state.keys.ended(message.key, message.seq)
        message = message.next
    state.shared.items -= count
    state.forget(group)
    return count


def explain(state: TransportState, group_id: str) -> ExplanationRow:
    """Why a group is not claimable now, and since when."""
    group = state.groups.get(group_id)
    leased = group is not None and group.worker_id is not None
    return rules.explain_group(
        now=state.shared.now(),
        transport_suspended_at=state.suspended_at,
        suspended_at=state.suspended.get(group_id),
        messages=0 if group is None else group.size,
        held_since=None if group is None else group.last_claimed_at if leased else group.parked_at,
        held_until=None if group is None else group.held_until(),
        leased=leased,
        worker_id=None if group is None else group.worker_id,
    )


def next_due(state: TransportState) -> int | None:
    """The next instant at which a lease or park ends: claimable one microsecond later (T1)."""
    return _next_due(state, state.shared.now())


def _next_due(state: TransportState, now: int) -> int | None:
    if state.suspended_at is not None:
        return None
    if now <= state.deadlines.latest:
        # The clock has gone back: groups that lapsed before are held again, and only a look at all of them tells.
        held = [group.deadline for group in state.groups.values() if group.deadline != FREE and group.deadline >= now]
        return min(held) + 1 if held else None
    state.free_lapsed(now)
    deadline = state.deadlines.next()
    return None if deadline is None else deadline + 1
