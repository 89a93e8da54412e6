"""What ``rota work`` works on: a job or a message behind one interface, and where they are claimed."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rota import Job, Lease, Queue, Transport

_PAGE = 1_000
_DEFAULT_LEASE = 30.0

# Everything ``variables`` may set.
ITEM_VARIABLES = frozenset(
    f"ROTA_{name}"
    for name in (
        *("KIND", "QUEUE", "TRANSPORT", "ID", "SEQ", "GROUP", "NAME", "ATTEMPT", "MAX_ATTEMPTS"),
        *("TOKEN", "WORKER", "PRIORITY", "HEADERS"),
    )
)


class Held(Protocol):
    """A job or message under our claim."""

    source: Source
    label: str
    payload: Any
    visibility: float
    """Seconds a claim holds from one heartbeat to the next."""
    valid_until: float
    """Until when the claim is surely ours, on this process's monotonic clock."""
    last_attempt: bool
    """Whether a retry would bury it."""

    def variables(self) -> dict[str, str]:
        """The variables of the command's environment that describe it."""

    def ack(self) -> bool: ...

    def retry(self, error: str) -> bool: ...

    def fail(self, error: str) -> bool: ...

    def release(self) -> bool: ...


class Left(enum.Enum):
    """What a source still has for somebody."""

    NOTHING = "nothing"
    WAITING = "waiting"
    SUSPENDED = "suspended"


class Source(Protocol):
    """Where work is claimed: a queue or a transport."""

    label: str

    def claim(self, worker: str, n: int, wait: float) -> Sequence[Held]: ...

    def extend(self, held: Sequence[Any]) -> list[bool]:
        """Heartbeat each; False where the claim is lost."""

    def sweep(self) -> None: ...

    def left(self) -> Left: ...


# -- Queues ----------------------------------------------------------------------------------------------------------


class HeldJob:
    """A claimed job."""

    def __init__(self, source: QueueSource, job: Job, visibility: float, since: float) -> None:
        self.source: Source = source
        self.label = f"{source.label} job {job.id}"
        self.payload = job.payload
        self.visibility = visibility
        self.valid_until = since + visibility
        self.last_attempt = job.attempts >= job.max_attempts
        self.job = job
        self.ack = job.ack
        self.retry = job.retry
        self.fail = job.fail
        self.release = job.release

    def variables(self) -> dict[str, str]:
        """The job for its command."""
        job = self.job
        return {
            "ROTA_KIND": "job",
            "ROTA_QUEUE": job.queue,
            "ROTA_ID": str(job.id),
            "ROTA_NAME": job.name or "",
            "ROTA_ATTEMPT": str(job.attempts),
            "ROTA_MAX_ATTEMPTS": str(job.max_attempts),
            **_common(job),
        }


class QueueSource:
    """A queue to claim from."""

    def __init__(self, queue: Queue, visibility: float | None) -> None:
        self.label = f"queue:{queue.name}"
        self._queue = queue
        self._visibility = visibility

    def claim(self, worker: str, n: int, wait: float) -> Sequence[HeldJob]:
        """Up to n jobs."""
        # The claim holds from some moment after this one; while the call waits, `since` is moved on below.
        jobs = self._queue.claim_batch(worker, n, visibility=self._visibility, wait=wait)
        now, here = time.time(), time.monotonic()
        held: list[HeldJob] = []
        for job in jobs:
            visibility = job.claim_expires_at - job.claimed_at
            # How long ago the claim was made, by the wall clock; a clock that jumped must not make it seem younger.
            age = min(max(now - job.claimed_at, 0.0), visibility)
            held.append(HeldJob(self, job, visibility, here - age))
        return held

    def extend(self, held: Sequence[HeldJob]) -> list[bool]:
        """One heartbeat for all of them."""
        lost = {id(job) for job in self._queue.heartbeat_batch([one.job for one in held])}
        return [id(one.job) not in lost for one in held]

    def sweep(self) -> None:
        """Bury what is expired."""
        self._queue.sweep_expired()

    def left(self) -> Left:
        """Whether anything may still come: expired jobs are buried first, they would wait for ever."""
        self._queue.sweep_expired()
        stats = self._queue.stats()
        if not stats.pending and not stats.processing:
            return Left.NOTHING
        return Left.SUSPENDED if stats.suspended and not stats.processing else Left.WAITING


# -- Transports ------------------------------------------------------------------------------------------------------


class HeldMessage:
    """A leased message."""

    def __init__(self, source: TransportSource, lease: Lease, visibility: float) -> None:
        self.source: Source = source
        self.label = f"{source.label} group {lease.group_id!r} message {lease.seq}"
        self.payload = lease.event
        self.visibility = visibility
        self.valid_until = time.monotonic() + visibility
        # Only a claim buries a message (T7).
        self.last_attempt = False
        self.lease = lease
        self.ack = lease.ack
        self.retry = lease.retry
        self.fail = lease.fail
        self.release = lease.release

    def variables(self) -> dict[str, str]:
        """The message for its command."""
        lease = self.lease
        return {
            "ROTA_KIND": "message",
            "ROTA_TRANSPORT": self.source.label.partition(":")[2],
            "ROTA_GROUP": lease.group_id,
            "ROTA_SEQ": str(lease.seq),
            "ROTA_ATTEMPT": str(lease.deliveries),
            **_common(lease),
        }


class TransportSource:
    """A transport to claim from."""

    def __init__(self, transport: Transport, visibility: float | None, min_priority: int | None) -> None:
        self.label = f"transport:{transport.name}"
        self._transport = transport
        self._visibility = _DEFAULT_LEASE if visibility is None else visibility
        self._floor = min_priority

    def claim(self, worker: str, n: int, wait: float) -> Sequence[HeldMessage]:
        """Up to n messages, each of another group."""
        leases = self._transport.claim_batch(worker, n, self._visibility, self._floor, wait=wait)
        return [HeldMessage(self, lease, self._visibility) for lease in leases]

    def extend(self, held: Sequence[HeldMessage]) -> list[bool]:
        """One heartbeat for all of them. The token stays, so the lease we hold settles as well as the renewed one."""
        renewed = self._transport.extend_batch([one.lease for one in held], self._visibility)
        return [lease is not None for lease in renewed]

    def sweep(self) -> None:
        """Delete letters past their retention."""
        self._transport.sweep()

    def left(self) -> Left:
        """Whether any group at or above the floor may still come."""
        stats = self._transport.stats()
        if not stats.messages:
            return Left.NOTHING
        if stats.suspended:
            return Left.WAITING if stats.leased else Left.SUSPENDED
        if self._floor is None and not stats.suspended_groups:
            return Left.WAITING
        return self._left_in_groups(self._floor)

    def _left_in_groups(self, floor: int | None) -> Left:
        found = Left.NOTHING
        after: str | None = None
        while True:
            page = self._transport.groups(None, _PAGE, after)
            for group in page:
                if floor is not None and group.priority < floor:
                    continue
                if group.state != "suspended":
                    return Left.WAITING
                found = Left.SUSPENDED
            if len(page) < _PAGE:
                return found
            after = page[-1].group_id


def _common(claim: Job | Lease) -> dict[str, str]:
    import json

    return {
        "ROTA_TOKEN": str(claim.token),
        "ROTA_WORKER": claim.worker_id,
        "ROTA_PRIORITY": str(claim.priority),
        "ROTA_HEADERS": json.dumps(claim.headers),
    }
