"""The loop under ``rota work``: claim as much as there is room for, run it, settle it, stop cleanly."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from rota.cli.work_beats import Beats
from rota.cli.work_child import Child, Ended, Reason, TooLarge, payload_bytes
from rota.cli.work_items import Held, Left, Source
from rota.errors import EngineBusy, EngineUnavailable, OutcomeUnknown

# A signal is noticed at the latest after this, also while waiting for work.
_LOOK = 0.25
# With more addresses than free places each is waited at in turn, together for about this long.
_ROUND = 0.1
_SHORTEST = 0.02
_SWEEP_EVERY = 30.0
# Between two looks whether a drained source is really empty, while something is left in it.
_DRAIN_EVERY = 0.5
_DEAD_LETTER_STATUS = 100
# After the second signal: so long for giving back what is held.
_LAST_WORDS = 5.0
# A store that does not answer is told of once in so many seconds.
_SILENT = 10.0

P = ParamSpec("P")
T = TypeVar("T")
Log = Callable[[str, str], None]
_PASSING = (EngineBusy, EngineUnavailable, OutcomeUnknown)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and for how long."""

    command: list[str]
    worker: str
    parallel: int
    drain: bool
    at_most: int | None
    timeout: float | None
    grace: float
    raw: bool
    url: str


class Stop:
    """How often, and by which signal, we were told to stop. Written by a signal handler, so without a lock."""

    count = 0
    number = 0


class Work:
    """Works off its sources until drained, stopped, or out of its number."""

    def __init__(self, plan: Plan, sources: Sequence[Source], stop: Stop, log: Log) -> None:
        self._plan = plan
        self._sources = list(sources)
        self._stop = stop
        self._log = log
        self._beats = Beats(self._on_lost, lambda text: log("problem", text))
        self._running: dict[int, _Run] = {}
        self._changed = threading.Condition()
        self._claimed = 0
        self._broken: Exception | None = None
        self._silent_until = 0.0
        self.counts = {"acked": 0, "retried": 0, "dead-lettered": 0, "released": 0, "lost": 0}

    def run(self) -> Left:
        """Work. Returns what is left when it was to drain. Raises what made it stop, after giving back what it held."""
        left = Left.NOTHING
        try:
            left = self._claim_until_done()
        except Exception as error:
            self._broken = self._broken or error
        finally:
            self._wait_for_running()
            self._beats.close()
        if self._broken is not None:
            raise self._broken
        return left

    # -- Claiming ------------------------------------------------------------------------------------------------------

    def _claim_until_done(self) -> Left:
        sweep_at, drain_at = time.monotonic() + _SWEEP_EVERY, 0.0
        while not self._stop.count and self._broken is None:
            room = self._room()
            if room == 0:
                if self._plan.at_most is not None and self._claimed >= self._plan.at_most:
                    return Left.NOTHING
                self._wait_for_room()
                continue
            claimed = self._try(self._look, room)
            if claimed == [] and self._plan.drain and not self._running and time.monotonic() >= drain_at:
                left = self._try(self._left)
                if left is not None and left is not Left.WAITING:
                    return left
                drain_at = time.monotonic() + _DRAIN_EVERY
            if claimed == []:
                claimed = self._try(self._wait_at_one, room)
            for held in claimed or []:
                self._begin(held)
            if time.monotonic() >= sweep_at:
                self._try(self._sweep)
                sweep_at = time.monotonic() + _SWEEP_EVERY
        return Left.NOTHING

    def _room(self) -> int:
        """How many more may be claimed: never more than can be started at once."""
        with self._changed:
            room = self._plan.parallel - len(self._running)
        if self._plan.at_most is not None:
            room = min(room, self._plan.at_most - self._claimed)
        return room

    def _wait_for_room(self) -> None:
        with self._changed:
            if len(self._running) >= self._plan.parallel:
                self._changed.wait(_LOOK)

    def _look(self, room: int) -> list[Held]:
        """Claim what is there now. The order of sources moves on, so that all get their turn."""
        claimed: list[Held] = []
        for source in list(self._sources):
            claimed += source.claim(self._plan.worker, room - len(claimed), 0)
            self._sources.append(self._sources.pop(0))
            if len(claimed) == room:
                break
        return claimed

    def _wait_at_one(self, room: int) -> list[Held]:
        """Wait for work at one source; several take turns, quickly enough that none has to wait long."""
        source = self._sources[0]
        self._sources.append(self._sources.pop(0))
        wait = _LOOK if len(self._sources) == 1 else max(_ROUND / len(self._sources), _SHORTEST)
        return list(source.claim(self._plan.worker, room, wait))

    def _left(self) -> Left:
        found = {source.left() for source in self._sources}
        for answer in (Left.WAITING, Left.SUSPENDED):
            if answer in found:
                return answer
        return Left.NOTHING

    def _sweep(self) -> None:
        for source in self._sources:
            source.sweep()

    def _try(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Do one step with the store; what passes by itself is told, waited for, and gives None."""
        try:
            result = step(*args, **kwargs)
        except _PASSING as error:
            if time.monotonic() >= self._silent_until:
                self._log("problem", f"the store does not answer, trying again: {error}")
                self._silent_until = time.monotonic() + _SILENT
            time.sleep(_LOOK)
            return None
        return result

    # -- Running -------------------------------------------------------------------------------------------------------

    def _begin(self, held: Held) -> None:
        self._claimed += 1
        if self._stop.count:
            # It was claimed in the moment we were told to stop.
            self._settle(held, "released", held.release, "stopping")
            return
        run = _Run(held)
        with self._changed:
            self._running[id(held)] = run
        self._beats.add(held)
        try:
            threading.Thread(target=self._work_off, args=(run,), name=f"rota {held.label}", daemon=True).start()
        except RuntimeError:
            # The system gives no more threads: this one is not going to be worked on here.
            self._end_run(held)
            self._settle(held, "released", held.release, "no thread")
            raise

    def _work_off(self, run: _Run) -> None:
        held = run.held
        try:
            self._execute(run)
        except TooLarge as error:
            self._beats.remove(held)
            self._settle_failed(held, str(error), str(error))
        except Exception as error:
            self._beats.remove(held)
            self._broken = self._broken or error
            self._settle(held, "released", held.release, f"not started: {error}")
        finally:
            self._end_run(held)

    def _end_run(self, held: Held) -> None:
        self._beats.remove(held)
        with self._changed:
            self._running.pop(id(held), None)
            self._changed.notify_all()

    def _execute(self, run: _Run) -> None:
        held, plan = run.held, self._plan
        if isinstance(held.payload, Exception):
            # It was delivered with the error in place of the payload (P3); no command can do anything with it.
            self._beats.remove(held)
            self._settle(held, "dead-lettered", partial(held.fail, str(held.payload)), str(held.payload))
            return
        variables = {"ROTA_URL": plan.url, **held.variables()}
        child = Child(plan.command, payload_bytes(held.payload, raw=plan.raw), variables)
        run.has_started(child)
        ended = child.run(plan.timeout)
        # From here the claim must be able to lapse: a settlement that fails for ever must not hold it for ever.
        self._beats.remove(held)
        self._settle_ended(held, ended)

    def _settle_ended(self, held: Held, ended: Ended) -> None:
        how = _described(ended.status)
        if ended.ended_by_us == "lost":
            self._count("lost")
            self._log("problem", f"{held.label}: its claim was lost, the command was ended and does not count")
        elif ended.ended_by_us == "stopped":
            self._settle(held, "released", held.release, "ended by us to stop")
        elif ended.ended_by_us == "timeout":
            how = f"timed out after {self._plan.timeout:g} s"
            self._settle_failed(held, f"{how}: {ended.tail}" if ended.tail else how, how)
        elif ended.status == 0:
            self._settle(held, "acked", held.ack, how)
        elif ended.status == _DEAD_LETTER_STATUS:
            self._settle(held, "dead-lettered", partial(held.fail, ended.tail or how), how)
        else:
            self._settle_failed(held, ended.tail or how, how)

    def _settle_failed(self, held: Held, error: str, how: str) -> None:
        name = "dead-lettered" if held.last_attempt else "retried"
        self._settle(held, name, partial(held.retry, error), how)

    def _settle(self, held: Held, name: str, verb: Callable[[], bool], how: str) -> None:
        """Settle, again and again while the claim surely holds; then tell once that it could not be recorded."""
        pause = 0.05
        while True:
            try:
                settled = verb()
            except _PASSING as error:
                until = held.valid_until if self._stop.count < 2 else time.monotonic()
                if time.monotonic() + pause >= until:
                    self._count("lost")
                    self._log("problem", f"{held.label}: {how}, but it could not be recorded: {error}")
                    return
                time.sleep(pause)
                pause = min(pause * 2, 1.0)
                continue
            except Exception as error:
                self._broken = self._broken or error
                self._log("problem", f"{held.label}: {how}, but it could not be recorded: {error}")
                return
            break
        if settled:
            self._count(name)
            self._log("detail" if name in ("acked", "released") else "remark", f"{held.label}: {how}, {name}")
        else:
            self._count("lost")
            self._log("problem", f"{held.label}: {how}, but its claim was lost meanwhile: that does not count")

    def _count(self, name: str) -> None:
        with self._changed:
            self.counts[name] += 1

    def _on_lost(self, held: Held) -> None:
        with self._changed:
            run = self._running.get(id(held))
        if run is not None:
            self._log("problem", f"{held.label}: its claim was lost, ending its command")
            run.end("lost")

    # -- Ending --------------------------------------------------------------------------------------------------------

    def _wait_for_running(self) -> None:
        """Wait for commands: without limit by itself, for the grace time when stopped, hardly when told twice."""
        soft_at = hard_at = float("inf")
        while True:
            with self._changed:
                running = list(self._running.values())
                if running:
                    self._changed.wait(_LOOK / 2)
            now = time.monotonic()
            if not running or now >= hard_at + _LAST_WORDS:
                return
            if soft_at == float("inf") and (self._stop.count or self._broken is not None):
                soft_at = now + self._plan.grace
                self._log("remark", f"stopping, {len(running)} running get {self._plan.grace:g} s")
            if self._stop.count > 1:
                hard_at = min(hard_at, now)
            if now >= min(soft_at, hard_at):
                for run in running:
                    run.end("stopped", at_once=now >= hard_at)


class _Run:
    """One item and its command. It may have to end before it has even started."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self._child: Child | None = None
        self._asked: tuple[Reason, bool] | None = None
        self._lock = threading.Lock()

    def has_started(self, child: Child) -> None:
        """The command runs."""
        with self._lock:
            self._child = child
            if self._asked is not None:
                child.end(self._asked[0], at_once=self._asked[1])

    def end(self, reason: Reason, *, at_once: bool = False) -> None:
        """End the command, now or as soon as it has started."""
        with self._lock:
            self._asked = (reason, at_once)
            if self._child is not None:
                self._child.end(reason, at_once=at_once)


def _described(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
