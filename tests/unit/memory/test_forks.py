"""A fork in the middle of another thread's verb."""

from __future__ import annotations

import os
import signal
import threading
import traceback

import pytest

import rota
from rota import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def test_a_copy_that_may_be_half_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that never lets go must not make the child wait for ever."""
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    inside, over = threading.Event(), threading.Event()
    with rota.open("memory://") as store:
        queue = store.queue("q")

        def stay() -> None:
            with store._core.engine.shared.lock:
                inside.set()
                over.wait()

        staying = threading.Thread(target=stay)
        staying.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                with pytest.raises(rota.EngineUnavailable, match="open one after the fork"):
                    queue.enqueue(1)
                store.close()
                with rota.open("memory://") as another:
                    another.queue("q").enqueue(1)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        over.set()
        staying.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queue.enqueue(1) == 1
