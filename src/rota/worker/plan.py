"""What the worker does next. PURE: time, chance and what was counted are arguments; nothing is read, nothing is done.

All times are seconds, as floats, on whatever clock the caller uses.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from rota.worker.outcomes import CannotRun, Fail, Retry, Snooze, error_text

# -- How an item ends --------------------------------------------------------------------------------------------------

Why = Literal["lost", "timeout", "overdue", "stopped", "left", "unknown"]
"""Why the worker itself ended a handler, or gave it up: its claim was lost; its time was over (``timeout``: it was
ended for that, ``overdue``: it could not be, so it runs on and its claim lapses); the worker stops (``stopped``: it was
asked to end, ``left``: it was given back already while it runs on); nobody knows whether its transaction was committed
(``unknown``)."""

Kind = Literal["ack", "retry", "fail", "release", "nothing"]


class Settlement(NamedTuple):
    """What is to be done with an item. ``delay``: seconds, None means the rule of the verb."""

    kind: Kind
    error: str | None = None
    delay: float | None = None
    result: Any = None


ACK = Settlement("ack")
NOTHING = Settlement("nothing")
RELEASE = Settlement("release")


def settlement(
    error: BaseException | None, why: Why | None, timeout: float | None, result: Any, *, settled: bool
) -> Settlement:
    """What follows from how a handler ended: what it raised, or its result; why we ended it, if we did.

    ``settled``: the handler settled its item itself.
    """
    if why in ("lost", "overdue", "left", "unknown"):
        return NOTHING
    if why == "timeout":
        return Settlement("retry", f"timed out after {timeout:g} s")
    if error is None:
        return NOTHING if settled else ACK if result is None else Settlement("ack", result=result)
    if why == "stopped" or isinstance(error, CannotRun):
        return RELEASE
    if isinstance(error, Snooze):
        return Settlement("release", delay=error.delay)
    if isinstance(error, Fail):
        return Settlement("fail", error.reason)
    if isinstance(error, Retry):
        text = error.reason
        if text is None and error.__cause__ is not None:
            text = error_text(error.__cause__)
        return Settlement("retry", text, error.delay)
    # Exceptions that are meant to end a program (SystemExit, KeyboardInterrupt, CancelledError) end this try only.
    return Settlement("retry", error_text(error))


def commits(why: Why | None) -> bool:
    """Whether a transaction whose handler returned is committed. One we asked to stop may still have done its work."""
    return why is None or why == "stopped"


def undecodable(error: BaseException) -> Settlement:
    """P3: no handler can do anything with a payload that cannot be decoded, and no other try will decode it."""
    return Settlement("fail", f"{type(error).__name__}: {error}")


# A job whose name nobody here knows is given back: another worker, an older or a newer one, may know it.
_UNKNOWN_FIRST, _UNKNOWN_LONGEST = 1.0, 60.0


def unknown_name(releases: int, chance: float) -> Settlement:
    """Given back, later and later, so that it neither burns attempts nor keeps this worker busy."""
    full = min(_UNKNOWN_FIRST * 2 ** min(releases, 16), _UNKNOWN_LONGEST)
    return Settlement("release", delay=full - full / 2 * (1 - chance))


# -- How much to claim -------------------------------------------------------------------------------------------------

# What is claimed beyond the free slots is about what the handlers finish in so many seconds, and never more than _MOST.
_AHEAD = 0.05
_MOST = 4_000
# A rate is judged over at least so many seconds in which there was work.
_WINDOW, _LONG_WINDOW = 0.01, 0.25


class Pace(NamedTuple):
    """How fast handlers finish, in items per second of time with work, and how many to claim ahead of them."""

    rate: float = 0.0
    ahead: int = 0


def paced(pace: Pace, finished: int, busy: float) -> Pace | None:
    """The pace after ``finished`` more items in ``busy`` seconds with work; None while that is too little to judge."""
    if busy < _WINDOW:
        return None
    rate = finished / busy
    if pace.rate and busy < _LONG_WINDOW:
        rate = (rate + pace.rate) / 2
    # It may double, no more, so that one lucky moment does not make it hoard.
    return Pace(rate, min(int(rate * _AHEAD), 2 * max(finished, pace.ahead), _MOST))


def room(held: int, unsettled: int, concurrency: int, ahead: int) -> int:
    """How many to claim now: none until half of what is claimed ahead was begun, so that claims come in batches.

    ``unsettled`` ended already but could not be recorded yet: when they pile up, the store is what is slow.
    """
    if held > refill_at(concurrency, ahead) or unsettled > 2 * (concurrency + ahead) + _MOST:
        return 0
    return concurrency + ahead - held


def refill_at(concurrency: int, ahead: int) -> int:
    """With so many held, or fewer, it is time to claim."""
    return concurrency + ahead - max(1, (ahead + 1) // 2)


def surplus(waiting: int, ahead: int, since_arrival: float) -> int:
    """How many of those that wait for a slot to give back: handlers became slow, others may be idle."""
    return max(0, waiting - ahead) if since_arrival >= _LONG_WINDOW else 0


def floor_first(number: int, share: float) -> bool:
    """Whether the claim of this number (0, 1, …) tries the floor first: evenly spread, ``share`` of them in all."""
    return int((number + 1) * share + 1e-9) > int(number * share + 1e-9)


# -- Heartbeats --------------------------------------------------------------------------------------------------------

_SHARE = 0.3
_RETRY_SHARE, _RETRY_LONGEST, _SHORTEST = 0.1, 1.0, 0.01


def beat_after(visibility: float) -> float:
    """So long after the last one: less than a third of the visibility, so that lateness has room."""
    return visibility * _SHARE


def beat_again_after(visibility: float) -> float:
    """So long after a beat that failed."""
    return min(max(visibility * _RETRY_SHARE, _SHORTEST), _RETRY_LONGEST)


def is_renewed(why: Why | None, ends_for_sure: bool) -> bool:
    """Whether an item is still renewed, which we ended or gave up for this reason.

    Where the end is certain, since it can be forced, the claim is held until then: nobody else may begin before. Else
    it must be able to lapse, or a handler that does not end would keep its item for ever.
    """
    return why is None or (ends_for_sure and why in ("timeout", "stopped"))


# -- Pauses ------------------------------------------------------------------------------------------------------------


def settle_pause(tries: int) -> float:
    """Before a settlement that failed ``tries`` times (1 or more) is tried again."""
    return float(min(0.05 * 2 ** min(tries - 1, 10), 1.0))


def outage_pause(tries: int, chance: float) -> float:
    """Before a store that failed ``tries`` times in a row (1 or more) is asked again: at most a second (X7)."""
    full = min(0.05 * 2 ** min(tries - 1, 10), 1.0)
    return float(full - full / 4 * chance)


def begin_pause(chance: float) -> float:
    """Before an item whose transaction could not begin is handed out again."""
    return 1.0 - 0.5 * chance


def sweep_pause(chance: float) -> float:
    """Between two sweeps of one queue or transport, by whichever worker."""
    return 30.0 + 30.0 * chance


def sweep_look_pause(chance: float) -> float:
    """Between two looks of one worker whether a sweep is due."""
    return 5.0 + 5.0 * chance


# -- Stopping ----------------------------------------------------------------------------------------------------------

Phase = Literal["finishing", "cancelling", "leaving"]
# Handlers that were cancelled get so long to clean up; less when we were told twice.
LAST_WORDS, _URGENT_WORDS = 2.0, 0.5


def phase(held: int, elapsed: float, grace: float | None, urgent_at: float | None, words: float = LAST_WORDS) -> Phase:
    """What a worker does ``elapsed`` seconds after it was told to stop, and told again at ``urgent_at``, if it was.

    ``words``: seconds that handlers get to end after they were cancelled.
    """
    if not held:
        return "leaving"
    end = float("inf") if grace is None else grace
    if urgent_at is not None and urgent_at < end + words:
        end, words = min(end, urgent_at), _URGENT_WORDS
        return "finishing" if elapsed < end else "cancelling" if elapsed < urgent_at + words else "leaving"
    return "finishing" if elapsed < end else "cancelling" if elapsed < end + words else "leaving"
