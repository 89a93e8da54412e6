"""Operations as generators: an operation yields statements and gets their replies; a runner carries them out.

An operation reads no clock and holds no connection: ``now`` is an argument, and it runs as well on the engine's own
connection as on another's. It never begins or ends a transaction.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Block(NamedTuple):
    """One named statement. ``rows``: its reply is its rows, else the number of rows it changed.

    ``order``: for each of its values which of those it is given, where one stands in several places.
    """

    name: str
    text: str
    rows: bool
    order: tuple[int, ...] = ()


# A block with its values: a tuple for one execution, a list of tuples for many (the reply is then the sum of changes).
Statement = tuple[Block, tuple[Any, ...] | list[tuple[Any, ...]]]
Op = Generator[Statement, Any, T]


class Cursor(Protocol):
    """What a runner needs of a driver's cursor."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, text: str, values: tuple[Any, ...], /) -> Any: ...

    def executemany(self, text: str, values: list[tuple[Any, ...]], /) -> Any: ...

    def fetchall(self) -> list[Any]: ...


def run(op: Op[T], cursor: Cursor) -> T:
    """Carry out an operation in the caller's transaction; the driver's errors pass through."""
    execute = cursor.execute
    send = op.send
    reply: Any = None
    try:
        while True:
            block, values = send(reply)
            if block.order:
                assert isinstance(values, tuple), "a block with numbered values is run once"
                values = tuple([values[number] for number in block.order])
            if isinstance(values, list):
                reply = cursor.executemany(block.text, values).rowcount if values else 0
            elif block.rows:
                reply = execute(block.text, values).fetchall()
            else:
                reply = execute(block.text, values).rowcount
    except StopIteration as end:
        result: T = end.value
        return result
