"""One round of one library, in that library's environment: ``python -m bench.peers.sqlite_round LIBRARY FOLDER``.

Prints JSON: seconds per operation of ``put`` (one by one), ``take`` (claim + ack of one, with a backlog of 10,000) and
``bulk`` (put in the library's own bulk form and take them all, per job; where it has none, the sum of the two above).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

PAYLOAD = {"id": 12345, "email": "someone@example.org", "kind": "welcome"}
SINGLE, WARM_UP, BACKLOG, BULK = 500, 1_500, 10_000, 20_000


def per_operation(count: int, run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / count


def warmed(put: Callable[[], object]) -> None:
    """Single writes before any is timed: the log of a new file grows at first, which slows every library alike."""
    for _ in range(WARM_UP):
        put()


def rota(folder: str, durability: str) -> dict[str, float]:
    import rota

    store = rota.open("sqlite:////" + os.path.join(folder, "rota.db").lstrip("/"), durability=durability)
    queue = store.queue("q")
    queue.enqueue_many([PAYLOAD] * (BACKLOG - WARM_UP))
    warmed(lambda: queue.enqueue(PAYLOAD))

    def take() -> None:
        for _ in range(SINGLE):
            queue.claim_one("worker").ack()

    put = per_operation(SINGLE, lambda: [queue.enqueue(PAYLOAD) for _ in range(SINGLE)])
    single = per_operation(SINGLE, take)

    def bulk() -> None:
        for _ in range(BULK // 1_000):
            queue.enqueue_many([PAYLOAD] * 1_000)
        for _ in range(BULK // 128):
            queue.ack_batch(queue.claim_batch("worker", 128), "worker")

    return {"put": put, "take": single, "bulk": per_operation(BULK, bulk)}


def litequeue(folder: str) -> dict[str, float]:
    from litequeue import LiteQueue

    queue = LiteQueue(os.path.join(folder, "lite.db"))
    text = json.dumps(PAYLOAD)
    with queue.transaction():
        for _ in range(BACKLOG - WARM_UP):
            queue.put(text)
    warmed(lambda: queue.put(text))

    def take() -> None:
        for _ in range(SINGLE):
            message = queue.pop()
            json.loads(message.data)
            queue.done(message.message_id)

    put = per_operation(SINGLE, lambda: [queue.put(json.dumps(PAYLOAD)) for _ in range(SINGLE)])
    single = per_operation(SINGLE, take)

    def bulk() -> None:
        with queue.transaction():
            for _ in range(BULK // 10):
                queue.put(json.dumps(PAYLOAD))
        for _ in range(BULK // 10):
            message = queue.pop()
            json.loads(message.data)
            queue.done(message.message_id)

    return {"put": put, "take": single, "bulk": per_operation(BULK // 10, bulk)}


def persistqueue(folder: str) -> dict[str, float]:
    import persistqueue
    from persistqueue.serializers import json as as_json

    queue = persistqueue.SQLiteAckQueue(os.path.join(folder, "persist"), auto_commit=True, serializer=as_json)
    for _ in range(BACKLOG):
        queue.put(PAYLOAD)

    def take() -> None:
        for _ in range(SINGLE):
            queue.ack(queue.get())

    put = per_operation(SINGLE, lambda: [queue.put(PAYLOAD) for _ in range(SINGLE)])
    single = per_operation(SINGLE, take)
    return {"put": put, "take": single, "bulk": put + single}


def huey(folder: str) -> dict[str, float]:
    from huey.storage import SqliteStorage

    storage = SqliteStorage("bench", filename=os.path.join(folder, "huey.db"), fsync=True)
    for _ in range(BACKLOG):
        storage.enqueue(json.dumps(PAYLOAD).encode())

    def take() -> None:
        for _ in range(SINGLE):
            json.loads(storage.dequeue())

    put = per_operation(SINGLE, lambda: [storage.enqueue(json.dumps(PAYLOAD).encode()) for _ in range(SINGLE)])
    single = per_operation(SINGLE, take)
    return {"put": put, "take": single, "bulk": put + single}


def main(library: str, folder: str) -> None:
    rounds: dict[str, Callable[[], dict[str, float]]] = {
        "rota-full": lambda: rota(folder, "full"),
        "rota-normal": lambda: rota(folder, "normal"),
        "litequeue": lambda: litequeue(folder),
        "persist-queue": lambda: persistqueue(folder),
        "huey": lambda: huey(folder),
    }
    print(json.dumps(rounds[library]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
