"""What holds for every test, and PostgreSQL: a server per run (and worker of ``pytest -n``), a database per test."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres.databases import Databases
    from postgres.server import Server

# A shell ignores SIGINT in what it starts in the background, and so would every process a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The engines side by side. Here, because with ``pytest -n`` the process that reports sees no folder's conftest."""
    from contract.tally import count, table

    ends = terminalreporter.stats
    counts = count([one for end in ("passed", "failed", "error") for one in ends.get(end, ())])
    if counts:
        terminalreporter.section("conformance suite")
        for line in table(counts):
            terminalreporter.write_line(line)


_names = itertools.count()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine's name."""
    return str(request.param)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """Where the SQLite store of this test lives."""
    return tmp_path / "test.db"


@pytest.fixture
def url(engine: str, sqlite_file: Path, request: pytest.FixtureRequest) -> str:
    """A store of this test alone; opened twice it is the same one."""
    if engine == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    # What most tests show does not hang on power cuts, so they do not wait for the disk.
    sqlite = f"sqlite:///{sqlite_file}?durability=normal"
    return sqlite if engine == "sqlite" else f"memory://test-{next(_names)}?codec=json"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A running server; the run fails where there is none."""
    from postgres.server import Server

    server = Server()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: Server) -> Iterator[Databases]:
    """Databases with the schema in place."""
    from postgres.databases import Databases

    databases = Databases(postgres_server)
    yield databases
    databases.close()


@pytest.fixture
def new_postgres_url(postgres_server: Server, postgres_databases: Databases) -> Iterator[Callable[[], str]]:
    """Makes databases with the schema in place for this test; their URLs."""
    names: list[str] = []

    def new() -> str:
        names.append(postgres_databases.take())
        return postgres_server.dsn(names[-1])

    yield new
    for name in names:
        postgres_databases.give(name)


@pytest.fixture
def postgres_url(new_postgres_url: Callable[[], str]) -> str:
    """A database of this test alone, its schema in place."""
    return new_postgres_url()


@pytest.fixture
def empty_postgres_url(postgres_server: Server) -> Iterator[str]:
    """A database of this test alone, with nothing in it."""
    name = postgres_server.create_database()
    yield postgres_server.dsn(name)
    postgres_server.drop_database(name)


@pytest.fixture
def alter_database(postgres_server: Server) -> Iterator[Callable[[str, str], None]]:
    """``ALTER DATABASE`` for the database of a URL, until the test is over."""
    altered: set[str] = set()

    def alter(url: str, change: str) -> None:
        name = url.rsplit("/", 1)[1]
        postgres_server.execute(f'ALTER DATABASE "{name}" {change}')
        altered.add(name)

    yield alter
    for name in altered:
        postgres_server.execute(f'ALTER DATABASE "{name}" RESET ALL')
