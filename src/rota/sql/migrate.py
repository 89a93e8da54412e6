"""Ordered schema files and the version they lead to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from rota.errors import SchemaMismatch
from rota.sql.drive import Block, Op

_SET_VERSION = Block(
    "set_version",
    "INSERT INTO rota_meta (one, schema_version) VALUES (1, ?) "
    "ON CONFLICT (one) DO UPDATE SET schema_version = excluded.schema_version",
    False,
)


class Migration(NamedTuple):
    """The statements that lead to a version from the one before."""

    version: int
    statements: tuple[str, ...]


def load(package: str, folder: str) -> tuple[Migration, ...]:
    """The migrations of a folder: ``001_what.sql`` and so on, without gaps."""
    found: list[Migration] = []
    for entry in sorted(files(package).joinpath(folder).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            found.append(Migration(int(entry.name.split("_")[0]), _statements(entry.read_text(encoding="utf-8"))))
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations in {folder} are not numbered from 1 without gaps")
    return tuple(found)


def _statements(text: str) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return tuple(part.strip() for part in re.split(r";\s*$", "\n".join(lines), flags=re.MULTILINE) if part.strip())


def check(version: int, migrations: Sequence[Migration], place: str) -> bool:
    """Whether a schema of this version is up to date; ``SchemaMismatch`` if it is newer than this code."""
    known = migrations[-1].version
    if version > known:
        raise SchemaMismatch(
            f"{place} has schema version {version}, this version of Rota works with {known}: "
            "upgrade Rota here to the version that wrote it (pip install --upgrade rota)"
        )
    return version == known


def migrate(version: int, migrations: Sequence[Migration]) -> Op[None]:
    """Bring a schema of this version (0: none) up to date, in the caller's transaction."""
    for migration in migrations[version:]:
        for number, text in enumerate(migration.statements, 1):
            yield Block(f"migration {migration.version} statement {number}", text, False), ()
        yield _SET_VERSION, (migration.version,)
