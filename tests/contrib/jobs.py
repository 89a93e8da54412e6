"""Tasks of a project. Imported when Django's settings name a backend."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import sync_to_async

import rota
from rota.contrib.django import framework

if framework.django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task

calls: list[Any] = []


class Refused(Exception):
    """An exception with a path of its own."""


@task
def add(a: int, b: int = 0) -> int:
    calls.append((a, b))
    return a + b


@task(queue_name="mails", priority=10)
def mail(to: str) -> None:
    calls.append(to)


@task
async def aadd(a: int, b: int) -> dict[str, Any]:
    await asyncio.sleep(0)
    calls.append((a, b))
    return {"sum": a + b, "loop": asyncio.get_running_loop() is not None}


@task
async def arefuse(text: str) -> None:
    raise Refused(text)


@task(takes_context=True)
def told(context: Any, text: str) -> list[Any]:
    result = context.task_result
    calls.append(result)
    return [context.attempt, result.id, str(result.status), len(result.errors), text]


@task(takes_context=True)
async def atold(context: Any) -> int:
    return context.attempt  # type: ignore[no-any-return]


@task
def refuse(text: str) -> None:
    calls.append(text)
    raise Refused(text)


@task(takes_context=True)
def refuse_until(context: Any, attempt: int) -> str:
    calls.append(context.attempt)
    if context.attempt < attempt:
        raise Refused(f"attempt {context.attempt}")
    return "done"


@task
def returns(what: str) -> Any:
    calls.append(what)
    return {"object": object(), "nan": float("nan"), "long": "x" * 2_000_000}[what]


@task
def ends(how: str) -> None:
    calls.append(how)
    if len(calls) == 1 and how == "snooze":
        raise rota.Snooze(5)
    if how == "fail":
        raise rota.Fail("not today")
    if how == "exit":
        raise SystemExit(3)


@task
def touch_database(alias: str, text: str) -> None:
    from django.db import connections

    with connections[alias].cursor() as cursor:
        cursor.execute("INSERT INTO notes (text) VALUES (%s)", [text])


@task
async def atouch_database(alias: str, text: str) -> None:
    await sync_to_async(touch_database.func)(alias, text)
