"""The demo's verification finds what it is there to find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.demo_check import Note, check_messages, read_log
from rota.cli.demo_files import examine, package_of, source_files, standard_library

PUBLISHED = {"a/1.py": 1, "b.py": 2, "a/2.py": 3, "a/3.py": 4}
DIGESTS = {path: f"sha of {path}" for path in PUBLISHED}


def note(seq: int, token: int, deliveries: int = 1, worker: str = "w1", sha256: str | None = None) -> Note:
    path = next(path for path, number in PUBLISHED.items() if number == seq)
    return Note(worker, package_of(path), seq, token, deliveries, path, sha256 or DIGESTS[path])


GOOD = [note(1, 10), note(2, 11), note(3, 12, worker="w2"), note(4, 13)]


def problems(notes: list[Note], killed: set[str]) -> list[str]:
    found: list[str] = []
    check_messages(notes, PUBLISHED, DIGESTS, killed, found)
    return found


def test_a_good_run_has_no_problems() -> None:
    assert problems(GOOD, set()) == []
    assert problems(list(reversed(GOOD)), {"w2"}) == [], "the order is that of the tokens, not of the logs"


def test_a_redelivery_is_accepted_where_the_kill_explains_it() -> None:
    again = [*GOOD[:2], note(3, 12, worker="w2"), note(3, 13, deliveries=2), note(4, 14)]
    assert problems(again, {"w2"}) == []
    found: list[str] = []
    assert check_messages(again, PUBLISHED, DIGESTS, {"w2"}, found) == 1
    unlogged = [*GOOD[:2], note(3, 13, deliveries=2), note(4, 14)]
    assert problems(unlogged, {"w2"}) == []


@pytest.mark.parametrize(
    "notes",
    [
        GOOD[:3],
        [note(1, 10), note(2, 11), note(4, 12), note(3, 13)],
        [*GOOD, note(1, 14, deliveries=2)],
        [*GOOD[:2], note(3, 12), note(3, 13, deliveries=2), note(4, 14)],
        [*GOOD[:2], note(3, 12, worker="w2"), note(3, 13, deliveries=1), note(4, 14)],
        [*GOOD[:3], note(4, 13, sha256="wrong")],
    ],
    ids=["lost", "out of order", "handled twice", "living worker", "counter does not tell", "wrong content"],
)
def test_what_is_wrong_is_found(notes: list[Note]) -> None:
    assert problems(notes, {"w2"}) != []


def test_redeliveries_without_a_kill_are_found() -> None:
    assert problems([*GOOD[:3], note(4, 13, deliveries=2)], set()) != []


def test_a_torn_last_line_of_a_log_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = json.dumps({"group": "g", "seq": 1, "token": 2, "deliveries": 1, "path": "p", "sha256": "s"})
    path.write_text(f"{line}\n{line[:20]}")
    assert read_log("w", path) == [Note("w", "g", 1, 2, 1, "p", "s")]
    assert read_log("w", tmp_path / "none") == []


def test_the_input_is_really_there() -> None:
    root = standard_library()
    files = source_files(root, None)
    assert len(files) > 500
    assert "json/decoder.py" in files
    assert not [path for path in files if "site-packages" in path]
    sample = source_files(root, 50)
    assert len(sample) == len(set(sample)) == 50
    assert set(sample) <= set(files)
    found = examine(root, "json/decoder.py")
    assert found["lines"] == (root / "json/decoder.py").read_bytes().count(b"\n")
    assert found["statements"] > 5
