"""The web application: a request is one transaction, with its rows and its jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field
from shop import EVENTS, MAILS, OPTIONS, URL, Customer, Order, Reading, Stock, Writing, engine
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

import rota


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with rota.aopen(URL) as store:
        app.state.mails = store.queue(MAILS, **OPTIONS)
        app.state.events = store.transport(EVENTS)
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def transaction() -> AsyncIterator[AsyncSession]:
    """The request's transaction: committed when the route returns, rolled back when it raises."""
    async with Writing.begin() as session:
        yield session


async def reading() -> AsyncIterator[AsyncSession]:
    async with Reading() as session:
        yield session


# scope="function": committed before the answer is sent, so nobody is told of an order that was not stored.
InTransaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
ForReading = Annotated[AsyncSession, Depends(reading, scope="function")]


class NewOrder(BaseModel):
    customer: str = Field(min_length=1, max_length=50)
    item: str
    quantity: int = Field(gt=0)


@app.post("/orders", status_code=201)
async def place(new: NewOrder, session: InTransaction, request: Request) -> dict[str, int]:
    """The order, its e-mail and the customer's event are stored together, or none of them."""
    order = Order(**new.model_dump())
    session.add(order)
    await session.flush()
    await request.app.state.mails.enqueue({"order": order.id}, tx=session)
    event = {"what": "placed", "order": order.id, "points": order.quantity}
    await request.app.state.events.publish(order.customer, event, tx=session)
    enough = (Stock.item == order.item) & (Stock.amount >= order.quantity)
    taken = await session.execute(update(Stock).where(enough).values(amount=Stock.amount - order.quantity))
    if not taken.rowcount:
        # After all of the above: raising rolls it back.
        raise HTTPException(409, f"we do not have {order.quantity} x {order.item}")
    return {"id": order.id}


@app.post("/orders/{number}/cancel")
async def cancel(number: int, session: InTransaction, request: Request) -> dict[str, bool]:
    order = await session.get(Order, number, with_for_update=True)
    if order is None:
        raise HTTPException(404, "no such order")
    if not order.cancelled:
        order.cancelled = True
        await session.execute(
            update(Stock).where(Stock.item == order.item).values(amount=Stock.amount + order.quantity)
        )
        event = {"what": "cancelled", "order": order.id, "points": -order.quantity}
        await request.app.state.events.publish(order.customer, event, tx=session)
    return {"cancelled": True}


@app.get("/orders/{number}")
async def look(number: int, session: ForReading) -> dict[str, Any]:
    order = await session.get(Order, number)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"customer": order.customer, "confirmed": order.confirmed, "cancelled": order.cancelled}


@app.get("/customers/{name}")
async def customer(name: str, session: ForReading) -> dict[str, Any]:
    found = await session.get(Customer, name)
    return {"history": found.history.split() if found else [], "points": found.points if found else 0}
