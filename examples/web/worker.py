"""The worker: ``rota run worker:worker``."""

import asyncio
import statistics
from typing import Any

from reports import QUEUE, URL, Report

import rota

worker = rota.Worker(URL)


@worker.queue(QUEUE, concurrency=20, timeout=30)
async def make(report: Report, job: rota.AsyncJob) -> dict[str, Any]:
    """Its annotation says how the payload is decoded; what it returns is kept as the job's result."""
    if report.title == "forbidden":
        raise rota.Fail("nobody may have this report")
    await asyncio.sleep(0.1)  # the real work
    return {"title": report.title, "mean": statistics.fmean(report.numbers), "attempt": job.attempts}
