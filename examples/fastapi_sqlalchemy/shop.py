"""What the application and the worker share: the database, its tables, the queue and the transport."""

import os
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# One database for both: only so can an order and its e-mail be one commit.
URL = os.environ.get("ROTA_URL", "sqlite:///shop.db")
MAILS = "mails"
EVENTS = "customers"
# Stamped on each job when it is enqueued.
OPTIONS: dict[str, Any] = {"max_attempts": 10, "backoff_base": 1}

engine = create_async_engine(
    URL.replace("sqlite:", "sqlite+aiosqlite:", 1).replace("postgresql:", "postgresql+asyncpg:", 1)
)
# Objects stay readable after the commit; refreshing them would be a statement at an unexpected place.
Writing = async_sessionmaker(engine, expire_on_commit=False)
Reading = async_sessionmaker(engine.execution_options(only_reading=True))

if engine.dialect.name == "sqlite":
    # Python begins transactions late and without asking for the write lock. So we do it: as a writer, at the start.
    @event.listens_for(engine.sync_engine, "connect")
    def _leave_it_to_us(connection: Any, record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("only_reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "stock"
    item: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[int]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(index=True)
    item: Mapped[str]
    quantity: Mapped[int]
    cancelled: Mapped[bool] = mapped_column(default=False)
    confirmed: Mapped[int] = mapped_column(default=0)


class Customer(Base):
    """What the worker makes of the events."""

    __tablename__ = "customers"
    name: Mapped[str] = mapped_column(primary_key=True)
    history: Mapped[str] = mapped_column(default="")
    points: Mapped[int] = mapped_column(default=0)


async def prepare() -> None:
    """Make the tables and fill the stock: stands for your migrations."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with Writing.begin() as session:
        if await session.get(Stock, "tea") is None:
            session.add(Stock(item="tea", amount=100))


def mail_of(order: Order) -> str:
    return f"Dear {order.customer}, thank you for ordering {order.quantity} x {order.item}."
