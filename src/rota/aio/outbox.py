"""``AsyncOutbox``, async: what is to reach another system after the commit (X5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota import rules
from rota.aio.queue import AsyncQueue
from rota.codecs import Codec
from rota.facade import outboxes
from rota.facade.core import Core
from rota.facade.outboxes import DELIVERY_TIMEOUT
from rota.units import Duration


class AsyncOutbox(AsyncQueue):
    """A queue with the outbox stamp, and what delivers its jobs."""

    def __init__(self, core: Core, name: str, codec: Codec | None, deliver: Callable[..., Any] | None) -> None:
        super().__init__(core, name, codec, rules.OUTBOX_STAMP)
        self._named_codec = codec
        self.deliver = outboxes.checked(deliver)
        """What its worker calls, None where nothing was named."""

    def worker(self, *, concurrency: int | None = None, timeout: Duration | None = DELIVERY_TIMEOUT) -> Any:
        """A ``rota.Worker`` on this store that calls ``deliver`` for each job; ``run`` it, or await ``arun``.

        ``concurrency`` and ``timeout`` are those of ``Worker.outbox``; handlers of other queues may be added. Raises
        ``TypeError`` where no ``deliver`` was named, or one that cannot be called.
        """
        from rota.aio.store import AsyncStore

        return outboxes.worker(AsyncStore(self._core), self, concurrency, timeout)
