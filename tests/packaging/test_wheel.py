"""What is in the wheel, and what is not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name.startswith("rota-")
    assert wheel.name.endswith("-py3-none-any.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rota"}
    wanted = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "rota").rglob("*")
        if path.is_file() and path.suffix in (".py", ".sql", ".typed")
    }
    assert {name for name in names if name.startswith("rota/")} == wanted
    assert "rota/py.typed" in names
    assert [name for name in names if re.search(r"(^|/)(tests?|conftest)(/|\.|_)", name)] == []


def test_metadata(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (place,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{place}/METADATA").decode()
        points = archive.read(f"{place}/entry_points.txt").decode()
        assert f"{place}/licenses/LICENSE" in archive.namelist()
    assert "\nRequires-Python: >=3.11\n" in metadata
    required = re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)
    assert [line for line in required if "extra ==" not in line] == [], "Rota has no dependencies"
    assert re.search(r"\[console_scripts\]\s+rota = rota\.cli:main", points)
    assert re.search(r"\[pytest11\]\s+rota = rota\.testing\.plugin", points)


def test_extras_are_what_the_readme_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == []
    assert set(project["optional-dependencies"]) == {"cli", "django", "otel", "postgres", "test", "dev"}
