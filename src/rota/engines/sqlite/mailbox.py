"""Datagrams between the processes that use one database file: a socket each, in a folder only their user may enter.

A datagram says which address was woken. Losing one is allowed, waiting or failing because of one is not.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
import stat
import tempfile
import time

# The longest address is a prefix and a name of 255 characters, four bytes each.
_LARGEST = 1_100
EVERYBODY = "*"
# A socket's path must fit in 108 bytes, on some systems in 104.
_LONGEST_PATH = 100
# A folder changed this recently may change again without its time showing it, in nanoseconds.
_COARSE = 20_000_000
_DRAINED_AT_ONCE = 1_000


def available() -> bool:
    """Whether this system has such sockets."""
    return hasattr(socket, "AF_UNIX") and hasattr(os, "getuid") and hasattr(select, "poll")


class Post:
    """The sending side."""

    def __init__(self, database: str) -> None:
        self.folder = _folder(database)
        self.own: str | None = None
        self._socket: socket.socket | None = None
        self._listed_at = -1
        self._peers: tuple[str, ...] = ()

    def send(self, address: str) -> None:
        """Tell every other process; quiet if there is none, or none that can be told."""
        peers = self._others()
        if not peers:
            return
        data = address.encode("utf-8", "surrogatepass")
        if len(data) > _LARGEST:
            data = EVERYBODY.encode()
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
        except OSError:
            return
        for path in peers:
            try:
                self._socket.sendto(data, path)
            except (ConnectionRefusedError, FileNotFoundError):
                # Its process is gone without cleaning up.
                _unlink(path)
            except OSError:
                # Its buffer is full, so it has enough to wake up for; its probe finds the rest.
                pass

    def _others(self) -> tuple[str, ...]:
        try:
            changed = os.stat(self.folder).st_mtime_ns
        except OSError:
            return ()
        if changed != self._listed_at:
            # A folder of somebody else gets no word from here.
            names = os.listdir(self.folder) if _is_private(self.folder) else ()
            paths = (os.path.join(self.folder, name) for name in names)
            self._peers = tuple(path for path in paths if path != self.own)
            # Looked at again next time if the time of a later change could be the same.
            self._listed_at = changed if time.time_ns() - changed > _COARSE else -1
        return self._peers

    def close(self) -> None:
        """Close the sending socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Mailbox:
    """The receiving side: bound when made."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, f"{os.getpid()}-{os.urandom(4).hex()}")
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            raise OSError(f"the socket path {self.path} is too long")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._bind(folder)
        except BaseException:
            self._socket.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def _bind(self, folder: str) -> None:
        for tries_left in (2, 1, 0):
            _make_private(folder)
            try:
                self._socket.bind(self.path)
            except FileNotFoundError:
                # The last one out has just removed the folder.
                if not tries_left:
                    raise
            else:
                os.chmod(self.path, 0o600)
                return

    def wait(self, seconds: float) -> set[str]:
        """The addresses that were woken; empty after ``seconds``."""
        woken: set[str] = set()
        if self._poll.poll(seconds * 1000):
            for _ in range(_DRAINED_AT_ONCE):
                try:
                    woken.add(self._socket.recv(_LARGEST).decode("utf-8", "surrogatepass"))
                except OSError:
                    break
        return woken

    def ring(self) -> None:
        """End a ``wait`` from another thread."""
        try:
            self._socket.sendto(b"", self.path)
        except OSError:
            pass

    def close(self, *, unlink: bool = True) -> None:
        """Close the socket. Not ``unlink``: it is the parent's, in a forked child."""
        self._socket.close()
        if unlink:
            _unlink(self.path)
            try:
                os.rmdir(os.path.dirname(self.path))
            except OSError:
                # Others are still in it.
                pass


def _folder(database: str) -> str:
    # Not the environment's idea of a temporary folder where it can be helped: all processes must agree.
    base = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()
    name = hashlib.sha256(os.fsencode(database)).hexdigest()[:16]
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(base, f"rota-{user}", name)


def _make_private(folder: str) -> None:
    for path in (os.path.dirname(folder), folder):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        if not _is_private(path):
            raise OSError(f"{path} belongs to somebody else or is open to others")


def _is_private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
