"""The web application: a request stores a job and returns, another one asks what became of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from reports import CODEC, OPTIONS, QUEUE, URL, Report

import rota


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with rota.aopen(URL) as store:
        app.state.orders = store.queue(QUEUE, codec=CODEC, **OPTIONS)
        # A handle's codec is for payloads and results alike; our results are plain JSON.
        app.state.results = store.queue(QUEUE)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports", status_code=202)
async def order(
    report: Report, request: Request, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    """When this returns, the job is stored. A client that repeats its key gets the same job."""
    number = await request.app.state.orders.enqueue(report, key=idempotency_key)
    return {"id": number, "url": f"/reports/{number}"}


@app.get("/reports/{number}")
async def look(number: int, request: Request) -> dict[str, Any]:
    """The job's state; its result once it is done, its error when it failed."""
    job = await request.app.state.results.get_job(number)
    if job is None:
        raise HTTPException(404, "no such report, or it was done long ago")
    return {"state": job.state, "attempts": job.attempts, "result": job.result, "error": job.last_error}
