"""The memory engine against yardsticks of the interpreter: ``python -m bench.memory``.

* One claim + ack of a transport with 1,000 groups, against push + pop of a heap of that size (3-tuples, rising ints).
* The same with 1,000,000 groups, against itself with 1,000.
* A backlog of 10,000 messages in 10 groups, against a naive transport: a list that is sorted at each claim.
* Enqueue + claim + ack of a small dict, against ``json.dumps`` + ``json.loads`` of it.
"""

from __future__ import annotations

import heapq
import json
from itertools import count

import rota
from bench.measure import alternate, at_least, at_most, heading, time_of

GROUPS = 1_000
CYCLES = 20_000
SMALL = {"id": 12345, "email": "someone@example.org", "kind": "welcome"}


def heap_round() -> float:
    """Push + pop in a heap of as many entries as there are groups."""
    keys = count(GROUPS)
    heap = [(key, key, "x") for key in range(GROUPS)]

    def run() -> None:
        push, pop = heapq.heappush, heapq.heappop
        for _ in range(CYCLES):
            key = next(keys)
            push(heap, (key, key, "x"))
            pop(heap)

    return time_of(CYCLES, run)


def transport_round(groups: int, messages: int, cycles: int) -> float:
    """Claim + ack through the public handles, with a backlog that outlasts the cycles."""
    with rota.open("memory://") as store:
        transport = store.transport("bench")
        transport.publish_many([(f"group-{n}", n) for _ in range(messages) for n in range(groups)])

        def run() -> None:
            claim = transport.claim
            for _ in range(cycles):
                lease = claim("worker")
                assert lease is not None
                lease.ack()

        return time_of(cycles, run)


class NaiveTransport:
    """What one writes first: a list of messages, sorted at each claim by the group's last turn and arrival."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, str, object]] = []
        self.turns: dict[str, int] = {}
        self.leased: set[str] = set()
        self.turn = count(1)

    def claim(self) -> tuple[int, str, object] | None:
        for message in sorted(self.messages, key=lambda message: (self.turns.get(message[1], 0), message[0])):
            if message[1] not in self.leased:
                self.leased.add(message[1])
                self.turns[message[1]] = next(self.turn)
                return message
        return None

    def ack(self, message: tuple[int, str, object]) -> None:
        self.messages.remove(message)
        self.leased.discard(message[1])


def naive_round() -> float:
    """Claim + ack of the naive transport with 10,000 messages in 10 groups."""
    naive = NaiveTransport()
    naive.messages = [(seq, f"group-{seq % 10}", seq) for seq in range(10_000)]

    def run() -> None:
        for _ in range(50):
            message = naive.claim()
            assert message is not None
            naive.ack(message)

    return time_of(50, run)


def json_round() -> float:
    """What encoding and decoding alone cost."""

    def run() -> None:
        dumps, loads = json.dumps, json.loads
        for _ in range(CYCLES):
            loads(dumps(SMALL))

    return time_of(CYCLES, run)


def queue_round() -> float:
    """Enqueue + claim + ack through the public handles."""
    with rota.open("memory://") as store:
        queue = store.queue("bench")

        def run() -> None:
            enqueue, claim = queue.enqueue, queue.claim_one
            for _ in range(CYCLES):
                enqueue(SMALL)
                job = claim("worker")
                assert job is not None
                job.ack()

        return time_of(CYCLES, run)


def main() -> None:
    heading("Memory")
    ours, heap = alternate(lambda: transport_round(GROUPS, 30, CYCLES), heap_round)
    at_most("transport claim+ack, 1,000 groups / heap push+pop", ours.median / heap.median, 8, ours.per_second())
    large, small = alternate(
        lambda: transport_round(1_000_000, 1, 300_000), lambda: transport_round(GROUPS, 30, CYCLES), rounds=3
    )
    at_most("transport claim+ack, 1,000,000 / 1,000 groups", large.median / small.median, 3, large.per_second())
    ours, naive = alternate(lambda: transport_round(10, 1_000, 8_000), naive_round, rounds=3)
    at_least("naive sorted list / transport, 10,000 messages", naive.median / ours.median, 1_000, naive.per_second())
    ours, plain = alternate(queue_round, json_round)
    at_most("queue enqueue+claim+ack / json.dumps+loads", ours.median / plain.median, 3, ours.per_second())


if __name__ == "__main__":
    main()
