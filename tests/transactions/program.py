"""Makes random transactions on one kind of connection until it is killed. Says so at each one."""

from __future__ import annotations

import os
import random
import sys

from .lenders import BY_NAME
from .workings import Place


def main(name: str, url: str, start: str) -> None:
    with Place(url, BY_NAME[name]) as place:
        chance = random.Random(int(start))
        for number in range(int(start), 2 * int(start)):
            os.write(1, b".")
            place.one(number, chance)


if __name__ == "__main__":
    main(*sys.argv[1:])
