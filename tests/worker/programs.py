"""A worker in a process of its own, for signals: ``python -m``-like, told by its arguments what to do."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import Any

import rota

url, how, takes, grace, log = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], Path(sys.argv[5])
worker = rota.Worker(url, grace=None if grace == "None" else float(grace))


def note(what: str) -> None:
    with log.open("a") as file:
        file.write(f"{what}\n")


def work(payload: Any) -> None:
    note(f"start {payload}")
    time.sleep(takes)
    note(f"end {payload}")


async def work_async(payload: Any) -> None:
    note(f"start {payload}")
    await asyncio.sleep(takes)
    note(f"end {payload}")


async def work_blocking(payload: Any) -> None:
    work(payload)


async def on_event(event: Any) -> None:
    await work_async(event)


handler = {"async": work_async, "thread": work, "process": work, "blocking": work_blocking}[how]
worker.queue("q", concurrency=20, visibility=2, processes=how == "process")(handler)
worker.transport("t", concurrency=2, visibility=2)(on_event)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    worker.run()
    note("returned")
