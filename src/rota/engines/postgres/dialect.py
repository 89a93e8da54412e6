"""Operations written for every SQL engine, in PostgreSQL's words.

Most of their statements differ in the placeholders and the tables' names only: those are put into other words here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeVar

from rota.sql.drive import Block, Op

T = TypeVar("T")


def spoken(op: Op[T]) -> Op[T]:
    """The operation with its statements in PostgreSQL's words."""
    reply: Any = None
    try:
        while True:
            block, values = op.send(reply)
            if block.order:
                assert isinstance(values, tuple), "a block with numbered values is run once"
                values = tuple(values[number] for number in block.order)
            reply = yield translated(block), values
    except StopIteration as end:
        result: T = end.value
        return result


@lru_cache(maxsize=256)
def translated(block: Block) -> Block:
    """``?`` becomes ``%s``, ``rota_jobs`` becomes ``jobs`` of the schema."""
    text = re.sub(r"\brota_(\w+)", r"{schema}.\1", block.text).replace("?", "%s")
    return Block(block.name, text, block.rows)
