"""An event loop for one run, as ``asyncio.run`` makes one, but nothing that will not end holds up its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

# For tasks that others left on the loop, and for what was started in the loop's own threads.
_PATIENCE = 1.0


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` to its end on a loop of its own.

    ``asyncio.run`` would then wait for every task that was cancelled and for every function in ``asyncio.to_thread``,
    however long they take: a worker that was told to stop must not.
    """
    if asyncio._get_running_loop() is not None:
        main.close()
        raise RuntimeError("run() cannot be called from a running event loop: await arun() there")
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main)
    finally:
        try:
            _cancel_the_rest(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            # Its threads are told to end, not waited for.
            loop.close()


def check_not_importing() -> None:
    """Raise ``RuntimeError`` where this process is a spawned child that is still importing the main module.

    Its parent wants a child for an item, not another worker that takes items and cannot start children of its own.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise RuntimeError(
            "this worker was started by the import of its module in a process for processes=True: "
            'write worker.run() under if __name__ == "__main__":'
        )


def _cancel_the_rest(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
    for task in asyncio.all_tasks(loop):
        # It was left behind, and that was said in the log.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        try:
            # What it holds, a transaction perhaps, is let go now, and not when somebody collects garbage.
            if coroutine is not None:
                coroutine.close()
        except RuntimeError:
            # It will not end even so.
            pass
