"""The rules of the contract as pure functions: no clock, no random source, no global state.

Every engine calls these or states the same predicate in SQL, where a test compares the texts. Times are whole
microseconds (see ``units``); ``now`` and chance are arguments.
"""

from __future__ import annotations

from typing import Any

from rota.records import ExplanationRow, GroupState, JobRow, JobState, Stamp, TransportOptions
from rota.units import MICROSECONDS

# -- Life of a job (Q3-Q12): (state, verb) -> the states it may lead to. The docs' diagram is drawn from it. ---

TRANSITIONS: dict[tuple[JobState, str], tuple[JobState, ...]] = {
    ("new", "enqueue"): ("pending",),
    ("pending", "claim"): ("processing",),
    ("pending", "cancel"): ("gone",),
    ("pending", "sweep"): ("dead",),
    ("processing", "claim"): ("processing", "dead"),
    ("processing", "ack"): ("done", "gone"),
    ("processing", "retry"): ("pending", "dead"),
    ("processing", "fail"): ("dead",),
    ("processing", "heartbeat"): ("processing",),
    ("processing", "release"): ("pending",),
    ("processing", "cancel"): ("gone",),
    ("processing", "sweep"): ("dead",),
    ("dead", "redrive"): ("pending",),
    ("dead", "sweep"): ("gone",),
    ("dead", "purge"): ("gone",),
    ("done", "sweep"): ("gone",),
    ("done", "purge"): ("gone",),
    ("pending", "purge"): ("gone",),
    ("processing", "purge"): ("gone",),
}

# Reasons of dead letters (D1).
FAILED = "failed"
EXPIRED = "expired"
MAX_ATTEMPTS = "max attempts exceeded"
MAX_DELIVERIES = "max deliveries exceeded"

# How many lapsed, exhausted or expired items one round of a claim cleans at most (C8).
CLEANING_LIMIT = 1_000
# The backoff never waits longer than this (Q8).
BACKOFF_CAP = 3_600 * MICROSECONDS
# Error texts are cut to this many bytes of UTF-8 (D4).
MAX_ERROR_BYTES = 64 * 1024

DEFAULT_STAMP = Stamp(
    visibility=300 * MICROSECONDS,
    max_attempts=3,
    backoff_base=5 * MICROSECONDS,
    dead_letter_retention=None,
    keep_done=0,
    key_ttl=300 * MICROSECONDS,
)
# Of what waits to be delivered to another system (X5).
OUTBOX_STAMP = DEFAULT_STAMP._replace(visibility=60 * MICROSECONDS, max_attempts=5)

# -- Leases and claims -----------------------------------------------------------------------------------------------


def lapsed(deadline: int, now: int) -> bool:
    """T1, Q3, Q6: the deadline's own instant still belongs to the holder; one microsecond later nobody holds it."""
    return deadline < now


def expired(expires_at: int | None, now: int) -> bool:
    """Q3: an expiry's own instant is already over."""
    return expires_at is not None and expires_at <= now


def claimable(state: JobState, run_at: int, claim_expires_at: int | None, expires_at: int | None, now: int) -> bool:
    """Q3: not expired, and pending and due, or processing under a lapsed claim."""
    if expired(expires_at, now):
        return False
    if state == "pending":
        return run_at <= now
    return state == "processing" and claim_expires_at is not None and lapsed(claim_expires_at, now)


def exhausted(attempts: int, max_attempts: int) -> bool:
    """Q5: ``max_attempts=m`` means exactly m deliveries."""
    return attempts >= max_attempts


def poisoned(deliveries: int, max_deliveries: int | None) -> bool:
    """T7: a head already delivered ``max_deliveries`` times is dead-lettered when a claim reaches it."""
    return max_deliveries is not None and deliveries >= max_deliveries


# -- Times a job is stamped with -------------------------------------------------------------------------------------


def ready_time(now: int, delay: int | None, run_at: int | None) -> int:
    """Q2: ``delay`` wins over ``run_at``, which is taken literally; neither means now."""
    if delay is not None:
        return now + delay
    return now if run_at is None else run_at


def expiry_time(now: int, expires: int | None) -> int | None:
    """Q2: ``expires`` is relative to now; zero or less is legal and means born expired."""
    return None if expires is None else now + expires


def backoff(base: int, attempts: int, chance: float) -> int:
    """Q8, equal jitter: ``full = min(base * 2**(attempts - 1), 3600 s)``, uniform in ``[full/2, full]`` by ``chance``.

    ``base`` and the result are microseconds, ``chance`` is in ``[0, 1)``. Total for any attempts: no overflow.
    """
    doublings = max(attempts - 1, 0)
    # 2**32 µs is more than the cap, so further doublings cannot matter (base 0 stays 0).
    full = min(base << min(doublings, 32), BACKOFF_CAP)
    return full - round(full * (1.0 - chance) / 2)


# -- Keys (Q15) ------------------------------------------------------------------------------------------------------


def key_taken(live: bool, until: int, now: int) -> bool:
    """Q15: while its item is pending or processing, and while ``now < enqueued_at + key_ttl``."""
    return live or now < until


# -- Turns (T3) ------------------------------------------------------------------------------------------------------

_FRESH = 2**62


def fresh_turn(head_seq: int) -> int:
    """T3: a group never claimed goes before all claimed ones, lowest head ``seq`` first; its turn then is a token."""
    return head_seq - _FRESH


def is_fresh(turn: int) -> bool:
    """Whether the group of this turn was never claimed."""
    return turn < 0


# -- Options of a transport (T11) ------------------------------------------------------------------------------------


def merge_options(transport: str, stored: dict[str, Any], declared: dict[str, Any]) -> dict[str, Any]:
    """T11: the stored options with those a handle names added; ``ValueError`` where both name one differently.

    Both dicts hold only options that somebody named, already checked. The first to name an option stores it.
    """
    for option, value in declared.items():
        if option in stored and stored[option] != value:
            raise ValueError(
                f"transport {transport!r} has {option}={stored[option]!r}, this handle says {option}={value!r}: "
                "use one value everywhere, or change the stored one with store.configure_transport()"
            )
    return stored | declared


def resolve_options(stored: dict[str, Any]) -> TransportOptions:
    """All options of a transport: the stored ones, defaults for the rest."""
    return TransportOptions(**stored)


# -- Retention -------------------------------------------------------------------------------------------------------


def retained_until(since: int, retention: int | None) -> int | None:
    """When a dead letter's or done record's time is over: at this very instant (Q12); None means never."""
    return None if retention is None else since + retention


# -- Error texts (D4) ------------------------------------------------------------------------------------------------


def clean_error(error: str | BaseException | None) -> str | None:
    """D4: text fit for any database and never a reason to fail: NUL and lone surrogates replaced, cut to 64 KiB.

    An exception gives ``Type: message``. An empty text counts as none given. Other types raise ``TypeError``.
    """
    if error is None:
        return None
    if isinstance(error, BaseException):
        text = _describe(error)
    elif isinstance(error, str):
        text = error
    else:
        raise TypeError(f"error must be a str, an exception or None, got {error!r}")
    if not text:
        return None
    # One character is at least one byte: cutting first keeps a huge text cheap.
    raw = text[:MAX_ERROR_BYTES].replace("\0", "\ufffd").encode("utf-8", "surrogatepass")
    cleaned = raw.decode("utf-8", "replace").encode("utf-8")[:MAX_ERROR_BYTES]
    return cleaned.decode("utf-8", "ignore")


def _describe(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        message = str(error)
    except Exception:
        message = "<its message could not be made>"
    return f"{kind}: {message}" if message else kind


# -- Why something is not claimable (explain) ------------------------------------------------------------------------


def group_state(suspended: bool, held_until: int | None, leased: bool, now: int) -> GroupState:
    """The state ``groups`` shows: a suspension first, then a lease or park that still counts (T1), else ready."""
    if suspended:
        return "suspended"
    if held_until is None or lapsed(held_until, now):
        return "ready"
    return "leased" if leased else "parked"


def explain_group(
    *,
    now: int,
    transport_suspended_at: int | None,
    suspended_at: int | None,
    messages: int,
    held_since: int | None,
    held_until: int | None,
    leased: bool,
    worker_id: str | None,
) -> ExplanationRow:
    """Why a group is not claimable now and since when: the first obstacle that applies."""
    if transport_suspended_at is not None:
        return ExplanationRow(False, "transport suspended", transport_suspended_at, None, None)
    if suspended_at is not None:
        return ExplanationRow(False, "suspended", suspended_at, None, None)
    if messages == 0:
        return ExplanationRow(False, "no messages", None, None, None)
    state = group_state(False, held_until, leased, now)
    if state == "ready":
        return ExplanationRow(True, "ready", None, None, None)
    return ExplanationRow(False, state, held_since, held_until, worker_id if leased else None)


def explain_job(*, now: int, queue_suspended_at: int | None, job: JobRow | None) -> ExplanationRow:
    """Why a job is not claimable now and since when: the first obstacle that applies."""
    if job is None:
        return ExplanationRow(False, "unknown", None, None, None)
    if job.state == "dead":
        return ExplanationRow(False, "dead", job.died_at, None, job.worker_id)
    if job.state == "done":
        return ExplanationRow(False, "done", job.done_at, None, job.worker_id)
    if expired(job.expires_at, now):
        return ExplanationRow(False, "expired", job.expires_at, None, None)
    if queue_suspended_at is not None:
        return ExplanationRow(False, "queue suspended", queue_suspended_at, None, None)
    if job.state == "processing":
        assert job.claim_expires_at is not None
        if not lapsed(job.claim_expires_at, now):
            return ExplanationRow(False, "processing", job.claimed_at, job.claim_expires_at, job.worker_id)
        return ExplanationRow(True, "ready", job.claim_expires_at, None, None)
    if job.run_at > now:
        return ExplanationRow(False, "delayed", job.enqueued_at, job.run_at, None)
    return ExplanationRow(True, "ready", job.run_at, None, None)
