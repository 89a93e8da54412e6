"""A small HTTP server for health probes: GET and HEAD, one answer per connection, nothing from the client is kept.

It must never harm the worker: it has threads of its own, few of them, each with a deadline, and says what goes wrong
with a connection by closing it.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from rota.worker.logs import INFO, WARNING, tell

_monotonic = time.monotonic
LOOPBACK = "127.0.0.1"
# A client gets so long for its request and our answer together, and as little room as probes need.
_DEADLINE = 5.0
_LARGEST_HEAD = 8_192
# With more connections than this the oldest is closed: slow clients must not lock out the others.
_CONNECTIONS = 16
_BIND_AGAIN = 5.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Answer(NamedTuple):
    """What a path is answered with."""

    status: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(value: int | str) -> Address:
    """A port (on the loopback interface), ``"PORT"``, ``"HOST:PORT"`` or ``"[IPV6]:PORT"``; port 0: any free one."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f'health must be a port or "HOST:PORT", got {value!r}')
    host, _, number = str(value).rpartition(":")
    if not number.isascii() or not number.lstrip("-").isdecimal() or not 0 <= int(number) <= 65_535:
        raise ValueError(f'health must be a port from 0 to 65535 or "HOST:PORT", got {value!r}')
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise ValueError(f'health: write an IPv6 address as "[{host}]:{number}", got {value!r}')
    return Address((host[1:-1] if bracketed else host) or LOOPBACK, int(number))


class Endpoint:
    """The server. ``answer`` is called with a path, in a thread of the server's; None: there is no such path."""

    def __init__(self, address: Address, answer: Callable[[str], Answer | None]) -> None:
        self._wanted = address
        self._answer = answer
        self._listener: socket.socket | None = None
        self._told = False
        self._closed = False
        self._here, self._wake = socket.socketpair()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        self._thread = threading.Thread(target=self._run, name="rota-health", daemon=True)

    @property
    def address(self) -> Address | None:
        """Where it listens, None while it cannot."""
        listener = self._listener
        if listener is None:
            return None
        try:
            return Address(*listener.getsockname()[:2])
        except OSError:
            # It was just closed.
            return None

    def start(self) -> None:
        """Listen, at once if that can be; else it is tried again until it can."""
        self._listen()
        self._thread.start()

    def close(self) -> None:
        """End it: who is being answered is cut off."""
        self._closed = True
        self._wake.send(b"x")
        self._thread.join(1)
        with self._lock:
            for connection in self._open:
                _cut(connection)
        self._here.close()
        self._wake.close()

    def _listen(self) -> None:
        listener = None
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(*self._wanted, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            if hasattr(socket, "SO_REUSEPORT"):
                # Elsewhere than on POSIX it would let two servers share the port.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(64)
            listener.setblocking(False)
        except (OSError, UnicodeError) as error:
            if listener is not None:
                listener.close()
            if not self._told:
                # The worker before us may still have it, for its last items.
                self._told = True
                tell(WARNING, "health_unavailable", address=str(self._wanted), error=f"{type(error).__name__}: {error}")
            return
        self._listener = listener
        tell(INFO, "health_listening", address=str(self.address))

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._here, selectors.EVENT_READ)
            while self._listener is None:
                selector.select(_BIND_AGAIN)
                if self._closed:
                    return
                self._listen()
            with self._listener as listener:
                selector.register(listener, selectors.EVENT_READ)
                while not self._closed:
                    selector.select()
                    if not self._closed and not self._accept(listener):
                        # Out of descriptors or threads: leave it a while.
                        time.sleep(0.1)
                self._listener = None

    def _accept(self, listener: socket.socket) -> bool:
        try:
            connection = listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionError):
            return True
        except OSError:
            return False
        with self._lock:
            if len(self._open) >= _CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _cut(oldest)
            self._open[connection] = None
        try:
            threading.Thread(target=self._serve, args=(connection,), name="rota-probe", daemon=True).start()
        except RuntimeError:
            self._forget(connection)
            return False
        return True

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
        connection.close()

    # -- One connection ----------------------------------------------------------------------------------------------

    def _serve(self, connection: socket.socket) -> None:
        deadline = _monotonic() + _DEADLINE
        # A client that is slow, gone or cut off is none of our trouble.
        with suppress(OSError):
            head = _read_head(connection, deadline)
            if head is not None:
                _left(connection, deadline)
                connection.sendall(self._response(head))
                connection.shutdown(socket.SHUT_WR)
                _drain(connection, min(deadline, _monotonic() + 1))
        self._forget(connection)

    def _response(self, head: bytes) -> bytes:
        method, path, refusal = _request(head)
        answer = refusal
        if answer is None and method not in ("GET", "HEAD"):
            answer = Answer(405, "only GET and HEAD\n")
        if answer is None:
            try:
                answer = self._answer(path) or Answer(404, "there are /healthz, /readyz and /metrics\n")
            except Exception as error:
                answer = Answer(500, f"{type(error).__name__}\n")
        body = answer.text.encode()
        lines = [
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *(["Allow: GET, HEAD"] if answer.status == 405 else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


def _request(head: bytes) -> tuple[str, str, Answer | None]:
    """Method and path of a request, or what is wrong with it."""
    if len(head) > _LARGEST_HEAD:
        return "", "", Answer(431, "the request is too large\n")
    parts = head.split(b"\n", 1)[0].decode("latin-1").rstrip("\r").split(" ")
    if len(parts) != 3 or not parts[0].isalpha() or not parts[2].startswith("HTTP/"):
        return "", "", Answer(400, "this is no HTTP request\n")
    if not parts[2].startswith("HTTP/1."):
        return "", "", Answer(505, "only HTTP/1\n")
    try:
        return parts[0], urlsplit(parts[1]).path, None
    except ValueError:
        return "", "", Answer(400, "this is no address\n")


def _read_head(connection: socket.socket, deadline: float) -> bytes | None:
    """A request up to the empty line after its headers, or the beginning of one that is too large; None: too slow."""
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= _LARGEST_HEAD:
        _left(connection, deadline)
        chunk = connection.recv(4_096)
        if not chunk:
            return None
        head += chunk
    return head


def _left(connection: socket.socket, deadline: float) -> None:
    left = deadline - _monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _drain(connection: socket.socket, deadline: float) -> None:
    """Read what the client still sends: closed before, it might never see our answer."""
    for _ in range(64):
        _left(connection, deadline)
        if not connection.recv(65_536):
            return


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
