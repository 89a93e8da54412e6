"""Asking a health server, and reading what Prometheus would read."""

from __future__ import annotations

import re
import socket
from typing import Any

import rota

from .running import until

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_PLAIN = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def exchange(address: tuple[str, int], request: bytes, seconds: float = 10) -> bytes:
    """Send bytes, read until the server closes."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
        return answer


def get(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers, body."""
    answer = exchange(address, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    if method != "HEAD":
        assert int(headers["Content-Length"]) == len(body.encode())
    return int(first.split(" ")[1]), headers, body


def address_of(worker: rota.Worker) -> tuple[str, int]:
    """Where its server listens."""
    address: tuple[str, int] = until(lambda: worker.health_address)
    return address


def samples(text: str) -> Samples:
    """The samples of a page, which must keep every rule of the text format."""
    assert text.endswith("\n")
    found: Samples = {}
    helped: set[str] = set()
    family, kind = "", ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in helped, "a family stands in two places"
            helped.add(family)
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert name == family
            assert kind in ("counter", "gauge", "histogram")
            assert (kind == "counter") == name.endswith("_total")
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            name = match["name"]
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in [family + suffix for suffix in suffixes]
            pairs = _LABEL.findall(match["labels"] or "")
            assert "".join(f'{label}="{text}",' for label, text in pairs).rstrip(",") == (match["labels"] or "")
            labels = frozenset((label, re.sub(r"\\.", lambda m: _PLAIN[m[0]], text)) for label, text in pairs)
            assert (name, labels) not in found, "a sample stands twice"
            found[name, labels] = float(match["value"].replace("+Inf", "inf"))
    return found


def value(page: Samples, name: str, /, **labels: Any) -> float:
    """One sample."""
    return page[name, frozenset(labels.items())]
