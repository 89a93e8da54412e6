"""A plain script: ``python shop.py fill`` stores work, ``python shop.py work`` works it off until it is stopped."""

import logging
import os
import sys
import time

import rota

URL = os.environ.get("ROTA_URL", "sqlite:///shop.db")
log = logging.getLogger("shop")
worker = rota.Worker(URL)


@worker.queue("mails", concurrency=4, timeout=60)
def send_mail(payload: dict[str, str]) -> None:
    """A plain function runs in one of ``concurrency`` threads."""
    time.sleep(0.05)  # the real work
    log.info("mail to %s", payload["to"])


@worker.transport("orders", concurrency=8, visibility=30, max_deliveries=5)
def on_order(lease: rota.Lease) -> None:
    """Messages of one group come one after the other, in order; groups run side by side."""
    if lease.event == "paid" and lease.deliveries == 1:
        # The message comes back after a pause. Until then nothing overtakes it in its group.
        raise rota.Retry(delay=0.2, reason="the bank did not answer")
    log.info("%s %s", lease.group_id, lease.event)


def fill() -> None:
    """Store some work."""
    with rota.open(URL) as store:
        store.queue("mails", max_attempts=5).enqueue_many([{"to": f"user-{n}@example.org"} for n in range(3)])
        orders = store.transport("orders")
        for event in ("created", "paid", "sent"):
            for number in (1, 2):
                orders.publish(f"order-{number}", event)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if sys.argv[1:] == ["fill"]:
        fill()
    elif sys.argv[1:] == ["work"]:
        worker.run()
    else:
        sys.exit("usage: shop.py fill | work")
