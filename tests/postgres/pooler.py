"""A pooler in transaction mode, as strict as can be: each transaction of a client gets another session of the server.

It speaks just enough of the protocol: it passes messages on, and looks for ReadyForQuery outside a transaction.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102


class Pooler:
    """Gives clients the sessions of a server in turn."""

    def __init__(self, url: str, sessions: int) -> None:
        self._server_url = url
        self._sessions: queue.Queue[socket.socket] = queue.Queue()
        self._connections = [psycopg.connect(url) for _ in range(sessions)]
        self._parameters = {
            name: value
            for name in ("server_version", "client_encoding", "standard_conforming_strings", "integer_datetimes")
            if (value := self._connections[0].info.parameter_status(name)) is not None
        }
        for connection in self._connections:
            session = socket.socket(fileno=connection.fileno())
            session.setblocking(True)
            self._sessions.put(session)
        self._numbers = itertools.count(1)
        self._clients: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{urlsplit(url).port}/", f":{self._listening.getsockname()[1]}/")
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for _ in self._connections:
            with contextlib.suppress(queue.Empty):
                self._sessions.get(timeout=2).detach()
        for connection in self._connections:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._clients.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self._greet(client):
                while self._transaction(client):
                    pass
        client.close()

    def _greet(self, client: socket.socket) -> bool:
        while True:
            (length,) = struct.unpack("!i", _exactly(client, 4))
            body = _exactly(client, length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code in (_SSL, _GSS):
                client.sendall(b"N")
            elif code == _CANCEL:
                return False
            else:
                break
        reply = _message(b"R", struct.pack("!i", 0))
        for name, value in self._parameters.items():
            reply += _message(b"S", f"{name}\0{value}\0".encode())
        reply += _message(b"K", struct.pack("!ii", next(self._numbers), 1)) + _message(b"Z", b"I")
        client.sendall(reply)
        return True

    def _transaction(self, client: socket.socket) -> bool:
        """From a client's first message to the end of its transaction, on one session."""
        first = _read(client)
        if first[:1] == b"X":
            return False
        server = self._sessions.get()
        try:
            while True:
                server.sendall(first)
                # A simple query or a Sync is what the server answers with ReadyForQuery.
                if first[:1] in (b"Q", b"S") and self._answered(server, client) == b"I":
                    return True
                try:
                    first = _read(client)
                except (OSError, EOFError):
                    first = b"X"
                if first[:1] == b"X":
                    self._clean(server)
                    return False
        finally:
            # First in, first out: the next transaction gets another one.
            self._sessions.put(server)

    def _clean(self, server: socket.socket) -> None:
        """The client went away in the middle of a transaction."""
        server.sendall(_message(b"S", b""))
        self._answered(server, None)
        server.sendall(_message(b"Q", b"ROLLBACK\0"))
        self._answered(server, None)

    def _answered(self, server: socket.socket, client: socket.socket | None) -> bytes:
        while True:
            message = _read(server)
            # A notification is for whoever listened on this session; nobody knows who that was.
            if client is not None and message[:1] != b"A":
                with contextlib.suppress(OSError):
                    client.sendall(message)
            if message[:1] == b"Z":
                return message[5:6]


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _read(source: socket.socket) -> bytes:
    head = _exactly(source, 5)
    return head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@contextlib.contextmanager
def pooler(url: str, sessions: int = 3) -> Iterator[Pooler]:
    """A pooler for a while."""
    opened = Pooler(url, sessions)
    try:
        yield opened
    finally:
        opened.close()
