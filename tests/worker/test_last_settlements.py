"""What ends in the moment in which a worker stops is settled, not left to lapse."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import rota

from .running import until


class Slow(logging.Handler):
    """Holds up whoever logs that a handler failed: the time between its end and its settlement."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("handler_failed"):
            self.reached.set()
            self.go_on.wait(15)


@pytest.mark.parametrize("how", ["async", "thread"])
def test_a_settlement_on_its_way_is_waited_for(store: rota.Store, running: Any, how: str) -> None:
    worker = rota.Worker(store)
    queue = store.queue("q", max_attempts=9)

    def fail(payload: Any) -> None:
        raise rota.Retry(0)

    async def afail(payload: Any) -> None:
        raise rota.Retry(0)

    worker.queue("q", concurrency=1)(afail if how == "async" else fail)
    slow = Slow()
    logging.getLogger("rota.worker").addHandler(slow)
    try:
        queue.enqueue("work")
        started = running(worker)
        assert slow.reached.wait(15)
        worker.stop()
        until(lambda: worker.health().state != "working")
        # Time enough to believe that nothing is held any more.
        started._thread.join(0.5)
        slow.go_on.set()
        started.join()
    finally:
        slow.go_on.set()
        logging.getLogger("rota.worker").removeHandler(slow)
    job = queue.get_job(1)
    assert job is not None
    assert (job.state, job.attempts) == ("pending", 1)
