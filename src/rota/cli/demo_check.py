"""The demo's verification: what is stored and noted, against a direct walk over the same files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli.demo_files import examine, package_of

if TYPE_CHECKING:
    from rota import JobRecord, Queue, Transport

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Note:
    """One line of a worker's log: a message it handled."""

    worker: str
    group: str
    seq: int
    token: int
    deliveries: int
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verification found."""

    problems: list[str]
    repeated: int
    """Jobs and messages that were delivered again, as the counters tell."""


def verify(
    queue: Queue,
    transport: Transport,
    root: Path,
    published: Mapping[str, int],
    logs: Mapping[str, Path],
    killed: set[str],
    step: Callable[[int], None],
) -> Verdict:
    """Compare. ``published`` gives the seq of each path, ``logs`` the log of each worker."""
    problems: list[str] = []
    direct: dict[str, dict[str, Any]] = {}
    for number, path in enumerate(published, 1):
        direct[path] = examine(root, path)
        step(number)
    repeated = _check_jobs(queue, direct, killed, problems)
    notes = [note for worker, path in logs.items() for note in read_log(worker, path)]
    repeated += check_messages(
        notes, published, {path: found["sha256"] for path, found in direct.items()}, killed, problems
    )
    left = transport.stats()
    if left.messages or left.dead:
        problems.append(f"the transport still has {left.messages} messages and {left.dead} dead letters")
    return Verdict(problems, repeated)


# -- Jobs ------------------------------------------------------------------------------------------------------------


def _check_jobs(queue: Queue, direct: Mapping[str, dict[str, Any]], killed: set[str], problems: list[str]) -> int:
    """Every file has exactly one job, which is done with the right result. Returns how many took several attempts."""
    seen: Counter[str] = Counter()
    repeated = 0
    for job in _every_job(queue):
        path = job.payload["path"]
        seen[path] += 1
        if job.state != "done":
            problems.append(f"job {job.id} ({path}) is {job.state}")
        elif job.result != direct.get(path):
            problems.append(
                f"job {job.id} ({path}) has the result {job.result}, a direct look gives {direct.get(path)}"
            )
        if job.attempts > 1:
            repeated += 1
            if not killed:
                problems.append(f"job {job.id} ({path}) took {job.attempts} attempts and no worker was killed")
    _compare_counts("job", seen, direct, problems)
    return repeated


def _every_job(queue: Queue) -> Iterator[JobRecord]:
    after: int | None = None
    while True:
        page = queue.jobs(None, _PAGE, after)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].id


# -- Messages --------------------------------------------------------------------------------------------------------


def read_log(worker: str, path: Path) -> list[Note]:
    """What a worker noted. A last line without its end was never completed, so its message was never acked."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [Note(worker=worker, **json.loads(line)) for line in whole.splitlines()]


def check_messages(
    notes: list[Note],
    published: Mapping[str, int],
    digests: Mapping[str, str],
    killed: set[str],
    problems: list[str],
) -> int:
    """Each group in the order it was published, every message handled. Returns how many were delivered again.

    Tokens grow with every claim, so they give the true order across workers.
    """
    groups: dict[str, list[Note]] = {}
    for note in sorted(notes, key=lambda note: note.token):
        groups.setdefault(note.group, []).append(note)
        if note.sha256 != digests.get(note.path):
            problems.append(f"message {note.seq} ({note.path}): SHA-256 is not that of a direct look")
    expected: dict[str, list[int]] = {}
    for path, seq in sorted(published.items(), key=lambda item: item[1]):
        expected.setdefault(package_of(path), []).append(seq)
    for group, seqs in expected.items():
        handled = _without_redeliveries(groups.get(group, []), killed, problems)
        if handled != seqs:
            problems.append(f"group {group!r} was handled as {handled[:20]}, published as {seqs[:20]}")
    _compare_counts("message", Counter({note.path: 1 for note in notes}), digests, problems)
    if not killed and any(note.deliveries > 1 for note in notes):
        problems.append("messages were delivered again and no worker was killed")
    return len({note.seq for note in notes if note.deliveries > 1})


def _without_redeliveries(notes: list[Note], killed: set[str], problems: list[str]) -> list[int]:
    """The seqs as handled; a second note of one is left out where the kill explains it and the counter shows it."""
    handled: list[int] = []
    before: Note | None = None
    for note in notes:
        if before is not None and note.seq == before.seq:
            if before.worker not in killed or note.deliveries <= before.deliveries:
                problems.append(f"message {note.seq} was handled twice, by {before.worker} and {note.worker}")
        else:
            handled.append(note.seq)
        before = note
    return handled


def _compare_counts(what: str, seen: Counter[str], direct: Mapping[str, Any], problems: list[str]) -> None:
    for path in direct:
        if seen[path] != 1:
            problems.append(f"{path} has {'no' if not seen[path] else seen[path]} {what}")
    for path in seen:
        if path not in direct:
            problems.append(f"{path} has a {what} but was never put in")
