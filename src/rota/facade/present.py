"""Rows of the engines as the records callers see: seconds for microseconds, decoded payloads."""

from __future__ import annotations

from rota import public, records
from rota.codecs import Codec, decoded, from_text
from rota.units import optional_seconds, seconds


def job(row: records.JobRow, queue: str, codec: Codec, results: Codec) -> public.JobRecord:
    """A job as ``get_job`` and its like show it."""
    return public.JobRecord(
        id=row.id,
        queue=queue,
        state=row.state,
        name=row.name,
        payload=from_text(codec, row.payload),
        headers=dict(row.headers or {}),
        priority=row.priority,
        attempts=row.attempts,
        max_attempts=row.stamp.max_attempts,
        run_at=seconds(row.run_at),
        enqueued_at=seconds(row.enqueued_at),
        expires_at=optional_seconds(row.expires_at),
        worker_id=row.worker_id,
        claimed_at=optional_seconds(row.claimed_at),
        claim_expires_at=optional_seconds(row.claim_expires_at),
        releases=row.releases,
        last_error=row.last_error,
        previous_error=row.previous_error,
        visibility=seconds(row.stamp.visibility),
        backoff_base=seconds(row.stamp.backoff_base),
        dead_letter_retention=optional_seconds(row.stamp.dead_letter_retention),
        keep_done=seconds(row.stamp.keep_done),
        key=row.key,
        result=None if row.result is None else from_text(results, row.result),
        died_at=optional_seconds(row.died_at),
        done_at=optional_seconds(row.done_at),
    )


def dead_job(row: records.DeadJobRow, queue: str, codec: Codec) -> public.DeadJob:
    """A dead letter of a queue."""
    dead = row.job
    return public.DeadJob(
        letter_id=row.letter_id,
        reason=row.reason,
        last_error=dead.last_error or row.reason,
        previous_error=dead.previous_error,
        died_at=seconds(dead.died_at or 0),
        headers=dict(dead.headers or {}),
        priority=dead.priority,
        key=dead.key,
        id=dead.id,
        queue=queue,
        name=dead.name,
        payload=from_text(codec, dead.payload),
        attempts=dead.attempts,
        max_attempts=dead.stamp.max_attempts,
        releases=dead.releases,
        run_at=seconds(dead.run_at),
        enqueued_at=seconds(dead.enqueued_at),
        expires_at=optional_seconds(dead.expires_at),
        worker_id=dead.worker_id,
    )


def message(row: records.MessageRow, codec: Codec | None) -> public.Message:
    """A message as ``peek`` shows it."""
    return public.Message(
        seq=row.seq,
        group_id=row.group_id,
        event=decoded(codec, row.event),
        headers=dict(row.headers or {}),
        deliveries=row.deliveries,
        published_at=seconds(row.published_at),
        key=row.key,
        last_error=row.last_error,
        priority=row.priority,
    )


def dead_message(row: records.DeadMessageRow, transport: str, codec: Codec | None) -> public.DeadMessage:
    """A dead letter of a transport."""
    dead = row.message
    return public.DeadMessage(
        letter_id=row.letter_id,
        reason=row.reason,
        last_error=dead.last_error or row.reason,
        previous_error=dead.previous_error,
        died_at=seconds(row.died_at),
        headers=dict(dead.headers or {}),
        priority=dead.priority,
        key=dead.key,
        seq=dead.seq,
        transport=transport,
        group_id=dead.group_id,
        event=decoded(codec, dead.event),
        deliveries=dead.deliveries,
        published_at=seconds(dead.published_at),
    )


def group(row: records.GroupRow) -> public.Group:
    """A group as ``groups`` shows it."""
    return public.Group(
        group_id=row.group_id,
        priority=row.priority,
        messages=row.messages,
        oldest_at=seconds(row.oldest_at),
        last_claimed_at=optional_seconds(row.last_claimed_at),
        state=row.state,
        until=optional_seconds(row.until),
        worker_id=row.worker_id,
    )


def _age(since: int | None, now: int) -> float | None:
    return None if since is None else seconds(max(now - since, 0))


def queue_stats(row: records.QueueStatsRow) -> public.QueueStats:
    """The counts of a queue."""
    return public.QueueStats(
        pending=row.pending,
        processing=row.processing,
        done=row.done,
        dead=row.dead,
        capped=row.capped,
        oldest_ready_age=_age(row.oldest_ready_at, row.now),
        next_due_at=optional_seconds(row.next_due_at),
        suspended=row.suspended,
    )


def transport_stats(row: records.TransportStatsRow) -> public.TransportStats:
    """The counts of a transport."""
    return public.TransportStats(
        groups=row.groups,
        messages=row.messages,
        ready=row.ready,
        leased=row.leased,
        parked=row.parked,
        suspended_groups=row.suspended_groups,
        dead=row.dead,
        capped=row.capped,
        oldest_ready_age=_age(row.oldest_ready_at, row.now),
        next_due_at=optional_seconds(row.next_due_at),
        suspended=row.suspended,
    )


def explanation(row: records.ExplanationRow) -> public.Explanation:
    """Why something is, or is not, claimable."""
    return public.Explanation(
        claimable=row.claimable,
        reason=row.reason,
        since=optional_seconds(row.since),
        until=optional_seconds(row.until),
        worker_id=row.worker_id,
    )
