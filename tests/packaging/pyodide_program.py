# Runs under Pyodide, with top-level await: threads cannot be started there, and asyncio.run is not available.
# ruff: noqa: F704
import asyncio
import threading

import rota

try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("no threads")

with rota.open("memory://") as store:
    orders = store.transport("orders")
    orders.publish_many([("ada", 1), ("bob", 1), ("ada", 2)])
    first, second = orders.claim_batch("w", 10)
    print("transport", first.group_id, second.group_id, orders.claim("w"), first.ack(), orders.claim("w").event)
    queue = store.queue("q", max_attempts=1)
    queue.enqueue({"n": 1})
    print("queue", queue.claim_one("w").fail("no"), queue.dead_letters()[0].last_error)


async def worker(queue):
    job = await queue.claim_one("w", wait=30)
    return job.payload, await job.ack()


async with rota.aopen("memory://") as store:
    queue = store.queue("q")
    waiting = asyncio.create_task(worker(queue))
    await asyncio.sleep(0.05)
    print("waits", not waiting.done())
    await queue.enqueue("awake")
    print("woken", await asyncio.wait_for(waiting, 5))
    print("nothing", await queue.claim_one("w", wait=0.05))
