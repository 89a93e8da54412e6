"""Forked children of a test."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def fork(act: Callable[[], object]) -> int:
    """Run in a forked child that ends without the test runner's clean-up."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def ended_well(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def in_child(act: Callable[[], object]) -> None:
    ended_well(fork(act))
