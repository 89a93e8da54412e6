"""A check that cannot fail is a defect: faults planted beneath the facade must be found by the walks.

Each plant stands between the facade and the memory engine and gets one rule of the contract wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from model import moves, subjects, test_queue_model, test_transport_model
from model.test_queue_model import QueueModel
from model.test_transport_model import TransportModel

WALKS = 30


class Plant:
    """The engine itself, where the plant does not override it."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.newest: dict[Any, Any] = {}

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.engine, verb)


# -- Transport -------------------------------------------------------------------------------------------------------


class LapsesAtTheDeadline(Plant):
    """T1 with < for <=: the deadline's own instant is nobody's."""

    def claim(self, worker: str, n: int, visibility: int, floor: int | None) -> list[Any]:
        taken = self.engine.claim(worker, n, max(visibility - 1, 1), floor)
        return [claim._replace(deadline=claim.deadline + (visibility > 1)) for claim in taken]


class AckIsNotFenced(Plant):
    """T6 forgotten in one verb: any lease of the group acks its current message."""

    def claim(self, *ask: Any) -> list[Any]:
        taken: list[Any] = self.engine.claim(*ask)
        self.newest |= {claim.group_id: claim for claim in taken}
        return taken

    def ack(self, claim: Any) -> bool:
        return bool(self.engine.ack(self.newest.get(claim.group_id, claim)))


class AckMovesTheTurn(Plant):
    """T3: only a claim may move a group to the back."""

    def ack(self, claim: Any) -> bool:
        done = self.engine.ack(claim)
        if done and self.engine.explain(claim.group_id).claimable:
            others = [row.group_id for row in self.engine.groups(None, 10, None) if row.group_id != claim.group_id]
            held = [group for group in others if self.engine.suspend(group)]
            for again in self.engine.claim("plant", 1, 1, None):
                self.engine.release(again, 0)
            for group in held:
                self.engine.resume(group)
        return bool(done)


class ReleaseCountsTheDelivery(Plant):
    """T7: a released delivery is not counted."""

    def release(self, claim: Any, delay: int) -> bool:
        return bool(self.engine.nack(claim, delay, None))


class FloorIsExclusive(Plant):
    """T4: a group at the floor is admitted."""

    def claim(self, worker: str, n: int, visibility: int, floor: int | None) -> list[Any]:
        return list(self.engine.claim(worker, n, visibility, None if floor is None else floor + 1))


class KeysAreIgnored(Plant):
    """Q15 on publish."""

    def publish(self, group: str, event: Any, priority: int, key: str | None, headers: Any) -> int:
        return int(self.engine.publish(group, event, priority, None, headers))


class FailForgetsToHold(Plant):
    """T7: poison="hold" suspends the group by fail too."""

    def fail(self, claim: Any, error: str | None) -> bool:
        done = self.engine.fail(claim, error)
        if done:
            self.engine.resume(claim.group_id)
        return bool(done)


class ParkIsTooShort(Plant):
    """T1: a park ends like a lease."""

    def nack(self, claim: Any, delay: int, error: str | None) -> bool:
        return bool(self.engine.nack(claim, max(delay - 1, 0), error))


class RedriveGoesToTheTail(Plant):
    """D3: "original" is the old place."""

    def redrive(self, ids: Any, position: str) -> list[int]:
        return list(self.engine.redrive(ids, "tail"))


TRANSPORT_PLANTS = (
    LapsesAtTheDeadline,
    AckIsNotFenced,
    AckMovesTheTurn,
    ReleaseCountsTheDelivery,
    FloorIsExclusive,
    KeysAreIgnored,
    FailForgetsToHold,
    ParkIsTooShort,
    RedriveGoesToTheTail,
)


# -- Queue -----------------------------------------------------------------------------------------------------------


class ClaimEndsTooEarly(Plant):
    """Q6 with < for <=."""

    def claim(self, worker: str, n: int, visibility: int | None) -> list[Any]:
        taken = self.engine.claim(worker, n, None if visibility is None else max(visibility - 1, 1))
        late = visibility is not None and visibility > 1
        return [claim._replace(claim_expires_at=claim.claim_expires_at + late) for claim in taken]


class TokenIsNotLookedAt(Plant):
    """Q6: an older claim by the same worker passes for the newest."""

    def claim(self, *ask: Any) -> list[Any]:
        taken: list[Any] = self.engine.claim(*ask)
        self.newest |= {(claim.id, claim.worker_id): claim for claim in taken}
        return taken

    def retry(self, claim: Any, error: str | None, delay: int) -> bool:
        return bool(self.engine.retry(self.newest.get((claim.id, claim.worker_id), claim), error, delay))


class ReleaseUsesTheAttempt(Plant):
    """Q7: a release gives the attempt back."""

    def release(self, claim: Any, delay: int | None) -> bool:
        return bool(self.engine.retry(claim, None, delay or 0))


class NegativeDelayIsNow(Plant):
    """Q8: a negative delay is taken verbatim."""

    def retry(self, claim: Any, error: str | None, delay: int) -> bool:
        return bool(self.engine.retry(claim, error, max(delay, 0)))


class BareIdsIgnoreTheWorker(Plant):
    """Q9: jobs of other workers are passed over."""

    def ack_batch(self, claims: Any, ids: Any, worker: str) -> int:
        return int(self.engine.ack_batch(claims, ids, worker)) + int(self.engine.ack_batch([], ids, "v"))


class HeartbeatForgetsTheVisibility(Plant):
    """Q7: without extend it is this claim's visibility, not the stamped one."""

    def heartbeat(self, claims: Any, extend: int | None) -> Any:
        stamped = 20_000_000 if extend is None else extend
        return self.engine.heartbeat(claims, stamped)


class SweepSparesHeldJobs(Plant):
    """Q12: a validly held job is swept too."""

    def sweep_expired(self) -> int:
        held = [job for job in self.engine.jobs("processing", 100, None) if job.expires_at is not None]
        return 0 if held else int(self.engine.sweep_expired())


class CancelSparesHeldJobs(Plant):
    """Q10: whoever holds it."""

    def cancel(self, id: int) -> bool:
        job = self.engine.get_job(id)
        return job is not None and job.state == "pending" and bool(self.engine.cancel(id))


QUEUE_PLANTS = (
    ClaimEndsTooEarly,
    TokenIsNotLookedAt,
    ReleaseUsesTheAttempt,
    NegativeDelayIsNow,
    BareIdsIgnoreTheWorker,
    HeartbeatForgetsTheVisibility,
    SweepSparesHeldJobs,
    CancelSparesHeldJobs,
)


def planted_transport(plant: type[Plant]) -> type[TransportModel]:
    class Planted(TransportModel):
        def begin(self, **options: Any) -> None:
            super().begin(**options)
            for transport in self.transports:
                transport._engine = plant(transport._engine)

    return Planted


def planted_queue(plant: type[Plant]) -> type[QueueModel]:
    class Planted(QueueModel):
        def begin(self) -> None:
            super().begin()
            for queues in self.queues:
                shared = plant(queues[0]._engine)
                for queue in queues:
                    queue._engine = shared

    return Planted


def walks_until_found(model: Any, begin: Any, moves_: Any) -> int:
    """How many walks it took to find a fault."""
    for seed in range(WALKS):
        try:
            moves.walk(model, begin, moves_, seed, 150)
        except (AssertionError, KeyError):
            return seed + 1
    pytest.fail(f"{WALKS} walks did not find the planted fault")


@pytest.fixture(autouse=True)
def _memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "engines", lambda: ["memory"])


@pytest.mark.parametrize("plant", TRANSPORT_PLANTS)
def test_a_planted_fault_of_a_transport_is_found(plant: type[Plant]) -> None:
    model = planted_transport(plant)
    assert walks_until_found(model, test_transport_model.BEGIN, test_transport_model.MOVES) <= WALKS


@pytest.mark.parametrize("plant", QUEUE_PLANTS)
def test_a_planted_fault_of_a_queue_is_found(plant: type[Plant]) -> None:
    assert walks_until_found(planted_queue(plant), {}, test_queue_model.MOVES) <= WALKS


def test_without_a_plant_nothing_is_found() -> None:
    """The wrapping itself is no fault."""
    for seed in range(3):
        moves.walk(planted_transport(Plant), test_transport_model.BEGIN, test_transport_model.MOVES, seed, 100)
        moves.walk(planted_queue(Plant), {}, test_queue_model.MOVES, seed, 100)
