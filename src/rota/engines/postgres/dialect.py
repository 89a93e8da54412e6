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
            own = translated(block)
            if isinstance(values, tuple) and "%(1)s" in own.text:
                # Numbered values are named ones to the driver.
                named: Any = {str(number): value for number, value in enumerate(values, 1)}
                values = named
            reply = yield own, values
    except StopIteration as end:
        result: T = end.value
        return result


@lru_cache(maxsize=256)
def translated(block: Block) -> Block:
    """``?`` and ``?1`` become ``%s`` and ``%(1)s``, ``rota_jobs`` becomes ``jobs`` of the schema."""
    text = re.sub(r"\brota_(\w+)", r"{schema}.\1", block.text)
    text = re.sub(r"\?(\d+)", r"%(\1)s", text).replace("?", "%s")
    return Block(block.name, text, block.rows)
