"""Dead letters of a queue (D) and its sweep (Q12). The caller holds the lock."""

from __future__ import annotations

from collections.abc import Sequence

from rota import rules
from rota.memory.jobs import revived
from rota.memory.queue_state import QueueState
from rota.records import DeadJobRow


def sweep_expired(state: QueueState) -> int:
    """Bury every expired job, whoever holds it; then delete letters, done records and keys whose time is over."""
    now = state.shared.now()
    moved = 0
    pinned: list[int] = []
    for job_id in state.expiries.take(now):
        if job_id in state.pinned:
            pinned.append(job_id)
            continue
        state.bury(state.jobs[job_id], rules.EXPIRED, None, now)
        moved += 1
    for job_id in pinned:
        # For the sweep after the transaction.
        state.expiries.put(state.jobs[job_id].expires_at or 0, job_id, len(state.jobs))
    for letter_id in state.letters_by_end.take(now):
        delete_letter(state, letter_id)
    for job_id in state.done_by_end.take(now):
        del state.done[job_id]
        state.shared.items -= 1
    state.keys.sweep(now)
    return moved


def dead_letters(state: QueueState, limit: int, after: int | None) -> list[DeadJobRow]:
    """A page of letters; letter ids grow, so they lie in their order."""
    page: list[DeadJobRow] = []
    if limit <= 0:
        return page
    for letter_id, letter in state.letters.items():
        if after is None or letter_id > after:
            page.append(letter)
            if len(page) == limit:
                break
    return page


def purge_dead(state: QueueState, ids: Sequence[int] | None, older_than: int | None) -> int:
    """Delete letters by id (None: all), or by age."""
    if older_than is not None:
        until = state.shared.now() - older_than
        ids = [number for number, letter in state.letters.items() if _died_at(letter) <= until]
    doomed = (
        list(state.letters) if ids is None else [number for number in dict.fromkeys(ids) if number in state.letters]
    )
    for letter_id in doomed:
        delete_letter(state, letter_id)
    return len(doomed)


def delete_letter(state: QueueState, letter_id: int) -> None:
    """Forget a letter, and with it the job."""
    letter = state.letters.pop(letter_id)
    del state.letter_of[letter.job.id]
    state.shared.items -= 1


def _died_at(letter: DeadJobRow) -> int:
    assert letter.job.died_at is not None
    return letter.job.died_at


def redrive(state: QueueState, ids: Sequence[int] | None) -> list[int]:
    """Make letters live again under their old job ids, in their order (D3)."""
    now = state.shared.now()
    wanted = state.letters if ids is None else dict.fromkeys(ids)
    letters = [state.letters[number] for number in wanted if number in state.letters]
    letters.sort(key=lambda letter: letter.job.id)
    for letter in letters:
        del state.letters[letter.letter_id]
        row = letter.job
        del state.letter_of[row.id]
        key = row.key
        if key is not None and not state.keys.rebind(key, row.id, row.id, row.enqueued_at + row.stamp.key_ttl, now):
            key = None
        job = revived(letter, state.lanes.join(row.priority), key, now)
        state.jobs[row.id] = job
        state.place(job, now)
    return [letter.job.id for letter in letters]
