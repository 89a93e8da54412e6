"""P1-P4: strict JSON, size, codecs, names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from rota import Item, PayloadError, PayloadTooLarge, TypedCodec
from rota.codecs import JsonCodec
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite

EXACT: list[Any] = [
    None,
    True,
    0,
    -1,
    2**53 + 1,
    -(2**64),
    10**400,
    1.5,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    0.1,
    1e22,
    "",
    "a\0b\x1f\x7f",
    "\u2028\ufeff\ufffd😀é e\u0301",
    '"\\/',
    [],
    {},
    [[], {}, [None]],
    {"": 1, "\0": 2, "a": {"b": [1, 2, {"c": None}]}},
    [1, 1.0, True, "1"],
]


@dataclasses.dataclass
class Order:
    """A payload of its own type."""

    number: int
    lines: list[str]


class Fragile:
    """A codec that cannot read what says so."""

    def encode(self, obj: Any) -> str:
        return str(obj)

    def decode(self, text: str) -> Any:
        if "broken" in text:
            raise RuntimeError(f"cannot read {text}")
        return text


class PayloadClauses(Suite):
    """Payloads and names (P)."""

    # -- P1 ------------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("value", EXACT, ids=lambda value: ascii(value)[:24])
    def test_P1_what_comes_out_equals_what_went_in(self, store: Any, value: Any) -> None:
        """Equal and of the same types: big ints, floats, NUL in strings, empty things."""
        queue = store.queue("q", keep_done=60)
        transport = store.transport("t", codec=JsonCodec())
        id = queue.enqueue(value)
        transport.publish("g", value)
        assert repr(queue.get_job(id).payload) == repr(value)
        assert repr(transport.peek("g")[0].event) == repr(value)
        job, lease = queue.claim_one("w"), transport.claim("w")
        assert repr(job.payload) == repr(lease.event) == repr(value)
        assert job.ack(value)
        assert repr(queue.get_job(id).result) == repr(value)
        assert lease.fail()
        assert repr(transport.dead_letters()[0].event) == repr(value)

    @pytest.mark.parametrize(
        ("value", "path"),
        [
            (math.nan, "payload"),
            ({"a": [1, math.inf]}, r"\['a'\]\[1\]"),
            ({"a": -math.inf}, r"\['a'\]"),
            ([b"x"], r"\[0\]"),
            ({"a": (1, 2)}, r"\['a'\]"),
            ([{1, 2}], r"\[0\]"),
            ([frozenset()], r"\[0\]"),
            ({"when": datetime.now(UTC)}, r"\['when'\]"),
            ({1: "a"}, "1"),
            ({"a": {None: 1}}, r"\['a'\]"),
            (["\ud800"], r"\[0\]"),
            ({"\udfff": 1}, "udfff"),
            ([object()], r"\[0\]"),
            ([10**5_000], r"\[0\]"),
        ],
        ids=lambda value: ascii(value)[:24] if not isinstance(value, list) else "list",
    )
    def test_P1_what_json_cannot_carry_exactly_is_refused(self, store: Any, value: Any, path: str) -> None:
        """PayloadError naming the path to the value; nothing is stored."""
        queue, transport = store.queue("q"), store.transport("t", codec=JsonCodec())
        ways: list[Callable[[], Any]] = [
            lambda: queue.enqueue(value),
            lambda: queue.enqueue_many([1, value]),
            lambda: queue.enqueue_many([Item(value)]),
            lambda: transport.publish("g", value),
            lambda: transport.publish_many([("g", 1), ("g", value)]),
        ]
        for store_it in ways:
            with pytest.raises(PayloadError, match=path):
                store_it()
        assert queue.stats().pending == transport.stats().messages == 0

    def test_P1_each_claim_decodes_afresh(self, queue: Any) -> None:
        """Changing a claimed payload changes nothing that is stored, nor does changing the enqueued object."""
        payload = {"a": [1]}
        queue.enqueue(payload)
        payload["a"].append(2)
        job = queue.claim_one("w")
        assert job.payload == {"a": [1]}
        job.payload["a"].append(3)
        assert job.release()
        assert queue.claim_one("w").payload == {"a": [1]}

    def test_P1_a_container_inside_itself_is_refused(self, queue: Any) -> None:
        """A cycle is a PayloadError, no recursion error."""
        cycle: list[Any] = []
        cycle.append(cycle)
        with pytest.raises(PayloadError):
            queue.enqueue(cycle)

    # -- P2 ------------------------------------------------------------------------------------------------------------

    def test_P2_the_size_is_limited(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """max_payload_bytes counts bytes of UTF-8, quotes included; beyond it nothing is stored."""
        store = opener(clock=clock, max_payload_bytes=10)
        queue, transport = store.queue("q"), store.transport("t", codec=JsonCodec())
        queue.enqueue("x" * 8)
        transport.publish("g", "é" * 4)
        for too_large in ("x" * 9, "é" * 5):
            with pytest.raises(PayloadTooLarge, match="10"):
                queue.enqueue(too_large)
            with pytest.raises(PayloadTooLarge):
                transport.publish("g", too_large)
        assert queue.stats().pending == transport.stats().messages == 1
        job = queue.claim_one("w")
        assert job.ack(None)

    def test_P2_the_default_is_one_mebibyte(self, queue: Any) -> None:
        """2**20 bytes pass, one more does not."""
        queue.enqueue("x" * (2**20 - 2))
        with pytest.raises(PayloadTooLarge):
            queue.enqueue("x" * (2**20 - 1))
        assert len(queue.claim_one("w").payload) == 2**20 - 2

    # -- P3 ------------------------------------------------------------------------------------------------------------

    def test_P3_a_typed_codec_gives_the_type_back(self, store: Any) -> None:
        """TypedCodec(T) on a queue and on a transport."""
        codec = TypedCodec(Order)
        queue, transport = store.queue("q", codec=codec), store.transport("t", codec=codec)
        order = Order(7, ["a", "b"])
        queue.enqueue(order)
        transport.publish("g", order)
        assert queue.claim_one("w").payload == order
        assert transport.claim("w").event == order
        with pytest.raises(PayloadError, match="number"):
            queue.enqueue(Order("7", []))  # type: ignore[arg-type]
        with pytest.raises(PayloadError):
            transport.publish("g", {"number": 7, "lines": []})

    def test_P3_the_stores_codec_is_the_default(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """A codec given to open serves every handle that names none."""
        store = opener(clock=clock, codec=TypedCodec(Order))
        store.queue("q").enqueue(Order(1, []))
        assert store.queue("q").claim_one("w").payload == Order(1, [])

    def test_P3_a_payload_that_cannot_be_decoded_is_delivered_as_the_error(self, store: Any) -> None:
        """Never lost, never a crash of the batch: it can be settled like any other (case 018)."""
        queue, transport = store.queue("q", codec=Fragile()), store.transport("t", codec=Fragile())
        queue.enqueue_many(["fine", "broken", "also fine"])
        transport.publish_many([("a", "fine"), ("b", "broken")])
        jobs = queue.claim_batch("w", 3)
        assert [job.payload for job in jobs[::2]] == ["fine", "also fine"]
        assert isinstance(jobs[1].payload, PayloadError)
        assert "cannot read broken" in str(jobs[1].payload)
        leases = transport.claim_batch("w", 2)
        assert isinstance(leases[1].event, PayloadError)
        assert jobs[1].fail(jobs[1].payload)
        assert leases[1].fail(leases[1].event)
        assert "cannot read broken" in queue.dead_letters()[0].last_error
        assert isinstance(queue.dead_letters()[0].payload, PayloadError)
        assert isinstance(transport.dead_letters()[0].event, PayloadError)
        assert jobs[0].ack()
        assert jobs[2].ack()

    # -- P4 ------------------------------------------------------------------------------------------------------------

    NAMES = (
        'it\'s; DROP TABLE jobs; -- "x" `y` /* */',
        "MyQueue",
        "myqueue",
        "MYQUEUE",
        " spaced ",
        "spaced",
        "%s %(a)s {0} {{}} $1 ? :p",
        "x" * 255,
        "x" * 254,
        "n" * 63 + "a",
        "n" * 63 + "b",
        "😀" * 255,
        "é",
        "e\u0301",
        "\u00a0",
        "%",
        "_",
        "*",
        "[a-z]",
        "null",
        "0",
    )

    def test_P4_hostile_names_are_data(self, store: Any) -> None:
        """Names, group ids, worker ids and keys of any look never share jobs or leases (case 034)."""
        for name in self.NAMES:
            queue, transport = store.queue(name), store.transport(name)
            queue.enqueue(name, key=name, name=name)
            transport.publish(name, name, key=name, headers={name: name})
        assert store.queues() == store.transports() == sorted(self.NAMES)
        for name in self.NAMES:
            queue, transport = store.queue(name), store.transport(name)
            job, lease = queue.claim_one(name), transport.claim(name)
            assert (job.payload, job.name, job.worker_id, job.queue) == (name, name, name, name)
            assert (lease.event, lease.group_id, lease.worker_id, lease.headers) == (name, name, name, {name: name})
            assert queue.claim_one(name) is None
            assert transport.claim(name) is None
            assert job.ack()
            assert lease.ack()

    def test_P4_group_ids_are_told_apart_code_point_by_code_point(self, transport: Any) -> None:
        """Every name is a group of its own in one transport."""
        transport.publish_many([(name, name) for name in self.NAMES])
        leases = transport.claim_batch("w", 1_000)
        assert [lease.group_id for lease in leases] == list(self.NAMES)
        assert [group.group_id for group in transport.groups()] == sorted(self.NAMES)

    @pytest.mark.parametrize("bad", ["", "x" * 256, "a\0", "\n", "\x7f", "\x85", "\ud800"], ids=ascii)
    def test_P4_other_names_are_refused(self, store: Any, bad: str) -> None:
        """ValueError everywhere a name enters, before any effect."""
        queue, transport = store.queue("q"), store.transport("t")
        ways: list[Callable[[], Any]] = [
            lambda: store.queue(bad),
            lambda: store.transport(bad),
            lambda: queue.enqueue(1, key=bad),
            lambda: queue.enqueue(1, name=bad),
            lambda: queue.enqueue(1, headers={bad: "v"}),
            lambda: queue.claim_one(bad),
            lambda: queue.ack_batch([], bad),
            lambda: transport.publish(bad, 1),
            lambda: transport.publish("g", 1, key=bad),
            lambda: transport.publish_many([("g", 1), (bad, 2)]),
            lambda: transport.claim(bad),
            lambda: transport.suspend(bad),
            lambda: transport.resume(bad),
            lambda: transport.purge(bad),
            lambda: store.notify(bad),
        ]
        for enter in ways:
            with pytest.raises(ValueError):
                enter()
        assert queue.stats().pending == transport.stats().messages == 0

    @pytest.mark.parametrize("bad", [1, b"x", ["x"]], ids=ascii)
    def test_P4_names_are_strings(self, store: Any, bad: Any) -> None:
        """TypeError for anything else."""
        transport = store.transport("t")
        ways: list[Callable[[], Any]] = [
            lambda: store.queue(bad),
            lambda: store.transport(bad),
            lambda: transport.publish(bad, 1),
            lambda: transport.claim(bad),
            lambda: transport.publish("g", 1, headers={"a": bad}),
            lambda: transport.publish("g", 1, headers=bad),
        ]
        for enter in ways:
            with pytest.raises(TypeError):
                enter()
        assert transport.stats().messages == 0

    def test_P4_headers_are_strings(self, store: Any) -> None:
        """A dict of str to str, kept exactly; the caller's dict is not shared."""
        queue = store.queue("q")
        headers = {"trace-id": "é😀\n\t", "empty": ""}
        id = queue.enqueue(1, headers=headers)
        expected = dict(headers)
        headers["late"] = "x"
        job = queue.claim_one("w")
        assert job.headers == queue.get_job(id).headers == expected
        assert job.fail()
        assert queue.dead_letters()[0].headers == expected
