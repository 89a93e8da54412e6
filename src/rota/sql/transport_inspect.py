"""Inspection and control of transports (T9), and their dead letters (D)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota import rules
from rota.contract import COUNT_CAP, Position
from rota.records import DeadMessageRow, ExplanationRow, GroupRow, GroupState, MessageRow, TransportStatsRow
from rota.sql import keys
from rota.sql import transport as hot
from rota.sql.blocks import Blocks
from rota.sql.drive import Op
from rota.sql.rows import dead_message, message

SQL = Blocks("rota.sql", "statements/transport_inspect.sql")

# How many groups one step of a listing by state reads.
PAGE = 1_000
# In the order of the statement.
COUNTED = ("groups", "messages", "ready", "leased", "parked", "suspended_groups", "dead")


def groups(now: int, transport: str, state: GroupState | None, limit: int, after: str | None) -> Op[list[GroupRow]]:
    """Groups that have messages, by id; those in a state are picked from pages of all."""
    found: list[GroupRow] = []
    start = after or ""
    while len(found) < limit:
        rows = yield SQL.groups, (transport, start, min(limit, PAGE) if state is None else PAGE)
        if not rows:
            break
        start = rows[-1][0]
        listed = (group_row(now, row) for row in rows)
        found += [group for group in listed if state is None or group.state == state]
    return found[:limit]


def group_row(now: int, row: tuple[Any, ...]) -> GroupRow:
    """A row of a listing of groups: what counts of its lease or park at this instant."""
    group_id, priority, suspended, deadline, leased_seq, worker_id, last_claimed_at, messages, oldest_at = row
    shown = rules.group_state(bool(suspended), deadline, leased_seq is not None, now)
    holding = rules.group_state(False, deadline, leased_seq is not None, now)
    until = None if holding == "ready" else deadline
    worker = worker_id if holding == "leased" else None
    return GroupRow(group_id, priority, messages, oldest_at, last_claimed_at, shown, until, worker)


def stats(now: int, transport: str) -> Op[TransportStatsRow]:
    """Counts, the oldest ready message, the next due instant."""
    (counts,) = yield SQL.count_all, (transport, COUNT_CAP + 1, now)
    ((suspended_at, _),) = yield SQL.group_and_suspension, (transport, "")
    ((oldest,),) = yield SQL.oldest_ready, (transport, COUNT_CAP + 1, now)
    due = yield from next_due(now, transport)
    named = dict(zip(COUNTED, counts, strict=True))
    return TransportStatsRow(
        **{name: min(count, COUNT_CAP) for name, count in named.items()},
        capped=tuple(name for name, count in named.items() if count > COUNT_CAP),
        oldest_ready_at=oldest if suspended_at is None else None,
        next_due_at=due,
        suspended=suspended_at is not None,
        now=now,
    )


def next_due(now: int, transport: str) -> Op[int | None]:
    """When a group may become claimable by time alone: a lease's or park's end, and a microsecond (T1)."""
    ((suspended_at, _),) = yield SQL.group_and_suspension, (transport, "")
    if suspended_at is not None:
        return None
    rows = yield SQL.next_due, (transport, now)
    due: int | None = rows[0][0] if rows else None
    return due


def peek(now: int, transport: str, group_id: str, n: int) -> Op[list[MessageRow]]:
    """The first messages of a group."""
    return [message(row) for row in (yield SQL.peek, (transport, group_id, n))]


def purge(now: int, transport: str, group_id: str) -> Op[int]:
    """Remove a group's messages, leased ones too; its suspension stays."""
    count = 0
    for group, *_ in (yield SQL.group, (transport, group_id)):
        count = yield SQL.purge_messages, (group,)
        yield hot.SQL.drop_group, (group,)
    return count


def explain(now: int, transport: str, group_id: str) -> Op[ExplanationRow]:
    """Why a group is not claimable now."""
    ((transport_suspended_at, suspended_at),) = yield SQL.group_and_suspension, (transport, group_id)
    rows = yield SQL.group, (transport, group_id)
    _, deadline, held_since, token, worker_id = rows[0] if rows else (None,) * 5
    return rules.explain_group(
        now=now,
        transport_suspended_at=transport_suspended_at,
        suspended_at=suspended_at,
        messages=len(rows),
        held_since=held_since,
        held_until=deadline,
        leased=token is not None,
        worker_id=worker_id,
    )


# -- Dead letters (D2, D3) -------------------------------------------------------------------------------------------


def dead_letters(
    now: int, transport: str, limit: int, after: int | None, group_id: str | None
) -> Op[list[DeadMessageRow]]:
    """Letters by letter id, of one group or of all."""
    start = -1 if after is None else after
    if group_id is None:
        rows = yield SQL.letters, (transport, start, limit)
    else:
        rows = yield SQL.letters_of_group, (transport, group_id, start, limit)
    return [dead_message(row) for row in rows]


def purge_dead(now: int, transport: str, ids: Sequence[int] | None, older_than: int | None) -> Op[int]:
    """Delete letters by id, by age, or all."""
    if older_than is not None:
        count: int = yield SQL.purge_letters_by_age, (transport, now - older_than)
    elif ids is None:
        count = yield SQL.purge_letters, (transport,)
    else:
        count = yield SQL.purge_letters_by_id, [(transport, letter_id) for letter_id in ids]
    return count


def redrive(now: int, transport: str, ids: Sequence[int] | None, position: Position) -> Op[list[int]]:
    """Make letters live again, in the order of their old seqs; a suspended group stays suspended."""
    if ids is None:
        letters = yield SQL.redrivable, (transport,)
    else:
        letters = yield SQL.redrivable_by_id, (json.dumps(sorted(set(ids))), transport)
    if not letters:
        return []
    ruling = yield from hot.options(now, transport)
    if position == "tail":
        last = yield from keys.advance("seq", len(letters))
        seqs = list(range(last - len(letters) + 1, last + 1))
    else:
        seqs = [letter[1] for letter in letters]
    items: list[keys.Redriven] = []
    heads: dict[str, tuple[int, int]] = {}
    for seq, (_, old, group_id, priority, key, published_at) in zip(seqs, letters, strict=True):
        items.append(keys.Redriven(key, old, seq, published_at + ruling.key_ttl))
        heads.setdefault(group_id, (seq, priority))
    kept = yield from keys.rebind(keys.of_transport(transport), items, now)
    made = [(group_id, priority, seq) for group_id, (seq, priority) in heads.items()]
    yield from hot.make_groups(transport, made, ruling)
    yield SQL.redrive, [(item.new, key, letter[0]) for item, key, letter in zip(items, kept, letters, strict=True)]
    yield SQL.drop_letter, [(letter[0],) for letter in letters]
    if position == "original":
        yield SQL.move_forward, [(rules.fresh_turn(seq), transport, group_id) for group_id, _, seq in made]
    return seqs
