"""What the application and the worker share: the store's URL, the job's type, the queue with its options."""

import os
from typing import Any

from pydantic import BaseModel, Field

import rota

URL = os.environ.get("ROTA_URL", "sqlite:///reports.db")
QUEUE = "reports"
# The options of a queue are stamped on each job when it is enqueued, so they belong with whoever enqueues.
OPTIONS: dict[str, Any] = {"max_attempts": 5, "keep_done": 3600}


class Report(BaseModel):
    """Body of the request and payload of the job."""

    title: str
    numbers: list[float] = Field(min_length=1)


CODEC = rota.TypedCodec(Report)
