"""The conformance suite (TCK): one test per promise of the contract, for every engine, sync and async.

An engine runs it with a test class that says how its stores are opened; every test is inherited:

    import rota
    from rota.testing import tck

    class TestMyEngine(tck.Conformance):
        durable = True                      # what was stored is there when the same place is opened again

        def open(self, **options):          # options: clock=, rng=, max_payload_bytes=, codec=
            return rota.open(f"my://{self.place}", **options)

        def aopen(self, **options):
            return rota.aopen(f"my://{self.place}", **options)

``self.place`` is a fresh directory for each test; opening twice within one test opens the same data if the engine is
``durable``. Each test runs twice, on the sync and on the async facade (``[sync]``, ``[async]``), and its name begins
with the clause it proves, so ``pytest -k T6`` runs what proves T6. Single groups are classes of their own, such as
``tck.TransportOrder``. Needs pytest; ``rota.testing`` alone does not.
"""

from rota.testing.tck.asynchronous import AsynchronousClauses
from rota.testing.tck.base import Suite
from rota.testing.tck.clock import ClockClauses
from rota.testing.tck.dead_letters import DeadLetterClauses
from rota.testing.tck.failures import FailureClauses
from rota.testing.tck.keys import KeyClauses
from rota.testing.tck.numbers import NumberClauses
from rota.testing.tck.payloads import PayloadClauses
from rota.testing.tck.queue_claims import QueueClaims
from rota.testing.tck.queue_handles import QueueHandles
from rota.testing.tck.queue_inspection import QueueInspection
from rota.testing.tck.transaction_pins import PinClauses
from rota.testing.tck.transactions import TransactionClauses
from rota.testing.tck.transport_control import TransportControl
from rota.testing.tck.transport_leases import TransportLeases
from rota.testing.tck.transport_order import TransportOrder
from rota.testing.tck.wakeups import WakeupClauses


class Conformance(
    ClockClauses,
    NumberClauses,
    TransportOrder,
    TransportLeases,
    TransportControl,
    QueueClaims,
    QueueHandles,
    QueueInspection,
    KeyClauses,
    DeadLetterClauses,
    PayloadClauses,
    WakeupClauses,
    AsynchronousClauses,
    FailureClauses,
    TransactionClauses,
    PinClauses,
):
    """Every clause: C1-C9, T1-T11, Q1-Q15, D1-D4, P1-P4, X1-X3, X5-X8 and E."""


__all__ = [
    "AsynchronousClauses",
    "ClockClauses",
    "Conformance",
    "DeadLetterClauses",
    "FailureClauses",
    "KeyClauses",
    "NumberClauses",
    "PayloadClauses",
    "PinClauses",
    "QueueClaims",
    "QueueHandles",
    "QueueInspection",
    "Suite",
    "TransactionClauses",
    "TransportControl",
    "TransportLeases",
    "TransportOrder",
    "WakeupClauses",
]
