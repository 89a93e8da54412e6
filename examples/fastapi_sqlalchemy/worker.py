"""The worker: ``rota run worker:worker``. What a handler writes is committed together with its ack, or not at all."""

from typing import Any

from shop import EVENTS, MAILS, URL, Customer, Order, Reading, Writing, mail_of
from sqlalchemy import update

import rota

worker = rota.Worker(URL)


@worker.queue(MAILS, concurrency=4, timeout=30)
async def confirm(payload: dict[str, Any], job: rota.AsyncJob) -> None:
    """Send the e-mail, then note that it was sent: exactly once noted, at least once sent."""
    async with Reading() as session:
        order = await session.get_one(Order, payload["order"])
    # The network before the transaction: SQLite has one writer, and on PostgreSQL locks would be held meanwhile.
    print(mail_of(order), flush=True)
    async with Writing.begin() as session:
        await session.execute(update(Order).where(Order.id == order.id).values(confirmed=Order.confirmed + 1))
        # LeaseLost where another worker has taken over: then this one's work is rolled back.
        await job.ack(tx=session)


@worker.transport(EVENTS, concurrency=4, timeout=30)
async def keep(event: dict[str, Any], lease: rota.AsyncLease) -> None:
    """Add an event to its customer: one at a time and in order, since the customer is the group."""
    async with Writing.begin() as session:
        found = await session.get(Customer, lease.group_id)
        if found is None:
            found = Customer(name=lease.group_id, history="", points=0)
            session.add(found)
        found.history += f" {event['what']}:{event['order']}"
        found.points += event["points"]
        await session.flush()
        await lease.ack(tx=session)
