"""The HTTP server of health probes: what clients send, and what they get."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from rota.worker import endpoint
from rota.worker.endpoint import Address, Answer, Endpoint, parse_address


def answer(path: str) -> Answer | None:
    if path == "/broken":
        raise ValueError("secret")
    return Answer(200, f"é {path}\n") if path.startswith("/ok") else None


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    one = Endpoint(Address("127.0.0.1", 0), answer)
    one.start()
    assert one.address is not None
    yield one.address
    one.close()
    assert one.address is None


def exchange(address: tuple[str, int], *parts: bytes) -> bytes:
    with socket.create_connection(address, timeout=10) as connection:
        for part in parts:
            connection.sendall(part)
        return read(connection)


def read(connection: socket.socket) -> bytes:
    found = b""
    while chunk := connection.recv(65_536):
        found += chunk
    return found


def drip(connection: socket.socket) -> None:
    for _ in range(200):
        connection.sendall(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /ok HTTP/1.0\n\n", 200),
        (b"GET /ok?x=1#f HTTP/1.1\r\n\r\n", 200),
        (b"GET http://x/ok HTTP/1.1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /ok HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /ok\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\0" * 100 + b"\r\n\r\n", 400),
        (b"GET /ok HTTP/1.1\r\nX: " + b"x" * 20_000, 431),
    ],
)
def test_requests(server: tuple[str, int], request_: bytes, expected: int) -> None:
    got = exchange(server, request_)
    assert got.startswith(b"HTTP/1.1 %d " % expected)
    assert b"secret" not in got
    assert (b"\r\nAllow: GET, HEAD\r\n" in got) == (expected == 405)


def test_body_has_its_length_in_bytes_and_head_has_none(server: tuple[str, int]) -> None:
    head, _, body = exchange(server, b"GET /ok HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert body == "é /ok\n".encode()
    assert b"\r\nContent-Length: 7\r\n" in head
    assert exchange(server, b"HEAD /ok HTTP/1.1\r\n\r\n") == head + b"\r\n\r\n"


def test_a_request_in_pieces(server: tuple[str, int]) -> None:
    with socket.create_connection(server, timeout=10) as connection:
        for part in (b"GET ", b"/ok HTTP/1.1\r", b"\n\r", b"\n"):
            connection.sendall(part)
            time.sleep(0.01)
        assert read(connection).startswith(b"HTTP/1.1 200 ")


def test_a_slow_client_is_cut_off_however_it_drips(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_DEADLINE", 0.3)
    began = time.monotonic()
    with socket.create_connection(server, timeout=10) as connection, pytest.raises(OSError):
        drip(connection)
    assert time.monotonic() - began < 5
    assert exchange(server, b"GET /ok HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_clients_that_leave(server: tuple[str, int]) -> None:
    for begin in (b"", b"GET", b"GET /ok HTTP/1.1\r\n\r\n"):
        for reset in (False, True):
            connection = socket.create_connection(server)
            connection.sendall(begin)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    assert exchange(server, b"GET /ok HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_the_oldest_gives_way(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_CONNECTIONS", 2)
    silent = [socket.create_connection(server, timeout=10) for _ in range(3)]
    assert silent[0].recv(1) == b""
    assert exchange(server, b"GET /ok HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    for one in silent:
        one.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (8080, ("127.0.0.1", 8080)),
        (0, ("127.0.0.1", 0)),
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(given: int | str, expected: tuple[str, int]) -> None:
    assert parse_address(given) == expected
    host, port = expected
    assert str(parse_address(given)) == (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


@pytest.mark.parametrize("given", [-1, 65_536, "", "x", "host:", "host:x", "::1:80", "host:70000", "1.5", "host:٣"])
def test_no_addresses(given: int | str) -> None:
    with pytest.raises(ValueError, match="health"):
        parse_address(given)


@pytest.mark.parametrize("given", [True, 1.5, None, ("h", 1)])
def test_no_addresses_by_type(given: object) -> None:
    with pytest.raises(TypeError, match="health"):
        parse_address(given)  # type: ignore[arg-type]


def test_ipv6() -> None:
    one = Endpoint(Address("::1", 0), answer)
    one.start()
    if one.address is not None:  # a machine without IPv6 has nothing to listen on
        assert exchange(one.address, b"GET /ok HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    one.close()
