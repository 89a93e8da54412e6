"""One worker process of ``rota demo``: ``python -m rota.cli.demo_worker NAME QUEUE TRANSPORT ROOT LOG``.

It may be killed at any instant. A job's result is stored by its ack, in one step; a message is noted in this worker's
own log before its ack, so what is acked is always noted, and what is noted twice was delivered twice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rota
from rota.cli.demo_files import digest, examine

if TYPE_CHECKING:
    from rota import Job, Lease, Queue, Transport

BATCH = 8
VISIBILITY = 5.0
_RENEW_AFTER = VISIBILITY / 4
_WAIT = 0.2

H = TypeVar("H")


def main(argv: list[str]) -> int:
    """Work until nothing is left in the queue and the transport."""
    name, queue_name, transport_name, root, log_path = argv
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with rota.open(os.environ["ROTA_URL"], create=False) as store:
            _work(name, store.queue(queue_name), store.transport(transport_name), Path(root), log)
    except KeyboardInterrupt:
        return 130
    finally:
        os.close(log)
    return 0


def _work(name: str, queue: Queue, transport: Transport, root: Path, log: int) -> None:
    while True:
        jobs = queue.claim_batch(name, BATCH, visibility=VISIBILITY)
        for job in _renewed(jobs, lambda rest: _kept_jobs(queue, rest)):
            job.ack(examine(root, job.payload["path"]))
        leases = transport.claim_batch(name, BATCH, VISIBILITY)
        handled: list[Lease] = []
        for lease in _renewed(leases, lambda rest: _kept_leases(transport, rest)):
            _note(log, lease, digest((root / lease.event["path"]).read_bytes()))
            handled.append(lease)
        transport.ack_batch(handled)
        if not jobs and not leases and _is_over(queue, transport):
            return


def _is_over(queue: Queue, transport: Transport) -> bool:
    """Whether nothing is left, with others either; else wait a little for what they might give up."""
    jobs, messages = queue.stats(), transport.stats()
    if not jobs.pending and not jobs.processing and not messages.messages:
        return True
    time.sleep(_WAIT)
    return False


def _renewed(held: list[H], keep: Callable[[list[H]], list[H]]) -> Iterator[H]:
    """One after the other; when it takes long, the rest is renewed, and what was lost is left out."""
    rest = list(held)
    renewed_at = time.monotonic()
    while rest:
        if time.monotonic() - renewed_at > _RENEW_AFTER:
            renewed_at = time.monotonic()
            rest = keep(rest)
            continue
        yield rest.pop(0)


def _kept_jobs(queue: Queue, jobs: list[Job]) -> list[Job]:
    lost = queue.heartbeat_batch(jobs)
    return [job for job in jobs if job not in lost]


def _kept_leases(transport: Transport, leases: list[Lease]) -> list[Lease]:
    return [lease for lease in transport.extend_batch(leases, VISIBILITY) if lease is not None]


def _note(log: int, lease: Lease, sha256: str) -> None:
    """One line by one write: a process that is killed has written all of it or nothing."""
    entry: dict[str, Any] = {
        "group": lease.group_id,
        "seq": lease.seq,
        "token": lease.token,
        "deliveries": lease.deliveries,
        "path": lease.event["path"],
        "sha256": sha256,
    }
    os.write(log, json.dumps(entry).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
