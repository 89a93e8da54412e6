"""Dead letters of a transport (D) and what is swept (Q12's sister ``sweep``). The caller holds the lock."""

from __future__ import annotations

from collections.abc import Sequence

from rota import rules
from rota.contract import Position
from rota.memory.groups import Group, Message
from rota.memory.transport_state import TransportState
from rota.records import DeadMessageRow, MessageRow


def sweep(state: TransportState) -> int:
    """Delete letters whose retention is over, and keys whose time is."""
    now = state.shared.now()
    deleted = 0
    retention = state.options.dead_letter_retention
    if retention is not None:
        for letter_id in state.letters_by_age.take(now - retention):
            _delete(state, letter_id)
            deleted += 1
    state.keys.sweep(now)
    return deleted


def dead_letters(state: TransportState, limit: int, after: int | None, group_id: str | None) -> list[DeadMessageRow]:
    """A page of letters; letter ids grow, so they lie in their order."""
    page: list[DeadMessageRow] = []
    if limit <= 0:
        return page
    for letter in state.letters.values():
        if (after is None or letter.letter_id > after) and (group_id is None or letter.message.group_id == group_id):
            page.append(letter)
            if len(page) == limit:
                break
    return page


def purge_dead(state: TransportState, ids: Sequence[int] | None, older_than: int | None) -> int:
    """Delete letters by id (None: all), or by age."""
    if older_than is not None:
        until = state.shared.now() - older_than
        ids = [letter.letter_id for letter in state.letters.values() if letter.died_at <= until]
    doomed = (
        list(state.letters) if ids is None else [number for number in dict.fromkeys(ids) if number in state.letters]
    )
    for letter_id in doomed:
        _delete(state, letter_id)
    return len(doomed)


def _delete(state: TransportState, letter_id: int) -> None:
    del state.letters[letter_id]
    state.shared.items -= 1


def redrive(state: TransportState, ids: Sequence[int] | None, position: Position) -> list[int]:
    """Make letters live again, in the order of their old seqs (D3)."""
    now = state.shared.now()
    wanted = state.letters if ids is None else dict.fromkeys(ids)
    letters = [state.letters[number] for number in wanted if number in state.letters]
    letters.sort(key=lambda letter: letter.message.seq)
    # Per group the message put in last: the next one belongs behind it, so one walk through a group is enough.
    last: dict[str, Message] = {}
    seqs = []
    for letter in letters:
        del state.letters[letter.letter_id]
        row = letter.message
        message = _revived(state, row, row.seq if position == "original" else state.shared.next_seq(), now)
        seqs.append(message.seq)
        group = state.groups.get(row.group_id)
        if group is None:
            state.add_group(row.group_id, row.priority, message)
        elif position == "tail":
            group.append(message)
        else:
            group.insert(message, last.get(row.group_id))
            _reorder(state, group)
        last[row.group_id] = message
    return seqs


def arrive(state: TransportState, group_id: str, priority: int, message: Message) -> None:
    """A message that was published in a transaction; others with higher seqs may have come before its commit (T2)."""
    group = state.groups.get(group_id)
    if group is None:
        state.add_group(group_id, priority, message)
    elif group.tail.seq < message.seq:
        group.append(message)
    else:
        group.insert(message, None)
        _reorder(state, group)
    state.shared.items += 1
    if message.key is not None:
        at = message.published_at
        state.keys.bind(message.key, message.seq, at + state.options.key_ttl, at)


def _revived(state: TransportState, row: MessageRow, seq: int, now: int) -> Message:
    message = Message(seq, row.event, row.headers, row.published_at, row.key)
    message.last_error, message.previous_error = row.last_error, row.previous_error
    if row.key is not None:
        until = row.published_at + state.options.key_ttl
        if not state.keys.rebind(row.key, row.seq, seq, until, now):
            message.key = None
    return message


def _reorder(state: TransportState, group: Group) -> None:
    """A group never claimed stands in the rota by its head's seq (T3), which may be lower now."""
    assert group.head is not None
    turn = rules.fresh_turn(group.head.seq)
    if not rules.is_fresh(group.turn) or group.turn == turn:
        return
    if group.queued:
        group = state.groups[group.group_id] = group.lane.replaced(group)
        group.turn = turn
        group.lane.push(group)
    else:
        group.turn = turn
