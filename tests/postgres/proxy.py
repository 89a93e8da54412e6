"""A TCP proxy before the server that can misbehave: swallow traffic, cut after a request, refuse."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit


class Proxy:
    """Forwards to the server of a URL. ``watch`` sees what clients send, and may cut before the reply gets back."""

    def __init__(self, url: str, port: int = 0) -> None:
        self._target = (str(urlsplit(url).hostname), int(urlsplit(url).port or 5432))
        self._listening = socket.create_server(("127.0.0.1", port))
        port = self._listening.getsockname()[1]
        self.url = url.replace(f":{self._target[1]}/", f":{port}/")
        self.port = port
        self.silent = False
        """Swallow everything, without closing anything."""
        self.cut_reply_to: Callable[[bytes], bool] | None = None
        """A request after which the reply is thrown away and the connection cut."""
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.silent:
                self._pairs.append((client, client))
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            doomed = threading.Event()
            self._pairs.append((client, server))
            threading.Thread(target=self._forward, args=(client, server, doomed, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, doomed, False), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, doomed: threading.Event, asking: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.silent:
                    continue
                if asking and self.cut_reply_to is not None and self.cut_reply_to(data):
                    self.cut_reply_to = None
                    doomed.set()
                if not asking and doomed.is_set():
                    # The server has answered, so the statement is committed; nobody hears of it.
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut every connection."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                with contextlib.suppress(OSError):
                    end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()


@contextlib.contextmanager
def proxy(url: str, port: int = 0) -> Iterator[Proxy]:
    """A proxy for a while, at a free port or at this one."""
    opened = Proxy(url, port)
    try:
        yield opened
    finally:
        opened.close()
