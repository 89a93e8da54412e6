"""Poison, dead letters, redrive and keys of the memory transport (T7, D1-D3, Q15)."""

from __future__ import annotations

import pytest

from rota.errors import EngineFull, StoreClosed
from rota.memory import MemoryEngine
from rota.records import NewMessage

from .bench import Bench, publish, take


def test_t7_poison_dead_letter_goes_on_in_the_same_claim(bench: Bench) -> None:
    t = bench.transport(max_deliveries=1)
    publish(t, "g", "bad", "good")
    publish(t, "alone", "bad")
    for claim in t.claim("w", 2, 10, None):
        assert t.nack(claim, 0, f"no {claim.group_id}")
    publish(t, "h", "fine")
    claims = t.claim("w", 2, 10, None)
    # alone is empty now and makes the batch no shorter.
    assert [(claim.group_id, claim.event) for claim in claims] == [("h", "fine"), ("g", "good")]
    assert take(t) is None
    letters = t.dead_letters(9, None, None)
    assert [(letter.reason, letter.message.last_error, letter.message.previous_error) for letter in letters] == [
        ("max deliveries exceeded", "max deliveries exceeded", "no g"),
        ("max deliveries exceeded", "max deliveries exceeded", "no alone"),
    ]
    assert [row.group_id for row in t.groups(None, 9, None)] == ["g", "h"]


def test_t7_poison_hold_suspends_and_redrive_original_continues_in_order(bench: Bench) -> None:
    t = bench.transport(max_deliveries=1, poison="hold")
    (bad, _) = publish(t, "g", "bad", "good")
    t.nack(take(t), 0, None)
    publish(t, "h", "x")
    assert take(t).group_id == "h"
    assert take(t) is None
    assert t.groups("suspended", 9, None)[0].group_id == "g"
    assert t.redrive(None, "original") == [bad]
    assert take(t) is None
    t.resume("g")
    again = take(t)
    assert again is not None
    assert (again.event, again.deliveries) == ("bad", 1)
    assert t.fail(again, "broken")
    assert t.groups("suspended", 9, None)[0].group_id == "g"
    assert t.dead_letters(9, None, "g")[0].message.last_error == "broken"


def test_d3_redrive_tail_and_original(bench: Bench) -> None:
    t = bench.transport()
    seqs = publish(t, "g", "a", "b", "c", "d")
    for _ in range(3):
        assert t.fail(take(t), None)
    letters = [letter.letter_id for letter in t.dead_letters(9, None, None)]
    new = t.redrive([letters[1], 999], "tail")
    assert new[0] > seqs[3]
    assert t.redrive([letters[2], letters[0], letters[0]], "original") == [seqs[0], seqs[2]]
    assert [row.event for row in t.peek("g", 9)] == ["a", "c", "d", "b"]
    assert t.dead_letters(9, None, None) == []
    assert [take_and_ack(t) for _ in range(4)] == ["a", "c", "d", "b"]


def take_and_ack(t) -> object:
    claim = take(t)
    assert claim is not None
    assert t.ack(claim)
    return claim.event


def test_redrive_original_below_a_leased_head_settles_the_leased_seq(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", "a", "b", "c")
    assert t.fail(take(t), None)
    held = take(t)
    t.redrive(None, "original")
    assert held.event == "b"
    assert t.ack(held)
    assert [take_and_ack(t), take_and_ack(t)] == ["a", "c"]


def test_redrive_original_lowers_the_turn_of_a_fresh_group(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", "early")
    claim = take(t)
    assert t.fail(claim, None)
    publish(t, "f", 1)
    publish(t, "g", "late")
    t.redrive(None, "original")
    # g was never claimed since it came back, and its head is older than f's now.
    assert take(t).event == "early"
    assert take(t).group_id == "f"
    assert take(t) is None


def test_redrive_of_a_gone_group_takes_the_priority_of_the_letter(bench: Bench) -> None:
    t = bench.transport()
    publish(t, "g", 1, priority=7)
    t.fail(take(t), None)
    assert t.groups(None, 9, None) == []
    t.redrive(None, "tail")
    assert take(t, floor=7).priority == 7


def test_q15_keys_while_live_and_while_their_time_runs(bench: Bench) -> None:
    t = bench.transport(key_ttl=100)
    seq = t.publish("g", 1, 0, "k", None)
    assert t.publish("h", 2, 0, "k", None) == seq
    assert t.publish_many([NewMessage("g", 1, key="n"), NewMessage("g", 1, key="n")])[0] == seq + 1
    assert t.ack(take(t))
    bench.now += 99
    assert t.publish("g", 3, 0, "k", None) == seq
    bench.now += 1
    other = t.publish("g", 3, 0, "k", None)
    assert other > seq
    bench.now += 500
    t.sweep()
    # Its time is over, but it is live.
    assert t.publish("g", 4, 0, "k", None) == other
    t.purge("g")
    assert t.publish("g", 4, 0, "k", None) > other


def test_d3_a_key_taken_meanwhile_is_dropped_from_the_redriven_message(bench: Bench) -> None:
    t = bench.transport(key_ttl=10)
    t.publish("g", 1, 0, "k", None)
    assert t.fail(take(t), None)
    bench.now += 10
    other = t.publish("h", 2, 0, "k", None)
    t.redrive(None, "original")
    assert t.peek("g", 1)[0].key is None
    assert t.publish("x", 3, 0, "k", None) == other


def test_keys_stay_bounded_without_a_sweep(bench: Bench) -> None:
    t = bench.transport(key_ttl=10)
    for i in range(5_000):
        t.publish("g", i, 0, f"k{i}", None)
        assert t.ack(take(t))
        bench.now += 1
    assert len(bench.engine.transport_states["t"].keys) < 50


def test_sweep_deletes_letters_whose_retention_is_over(bench: Bench) -> None:
    t = bench.transport(dead_letter_retention=100)
    publish(t, "g", 1, 2)
    t.fail(take(t), None)
    bench.now += 50
    t.fail(take(t), None)
    bench.now += 49
    assert t.sweep() == 0
    bench.now += 1
    assert t.sweep() == 1
    assert t.purge_dead(None, 51) == 0
    assert t.purge_dead(None, 50) == 1
    assert bench.engine.shared.items == 0


def test_cap_refuses_whole_batches_before_any_effect() -> None:
    engine = MemoryEngine("memory://", now=lambda: 5, max_items=3)
    t = engine.transport("t", {})
    t.publish_many([NewMessage("g", 1, key="k"), NewMessage("g", 2)])
    with pytest.raises(EngineFull, match="max_items=3"):
        t.publish_many([NewMessage("g", 3), NewMessage("g", 4)])
    assert t.stats().messages == 2
    # Duplicates take no room.
    assert len(t.publish_many([NewMessage("g", 3), NewMessage("g", 4, key="k")])) == 2
    with pytest.raises(EngineFull):
        t.publish("g", 5, 0, None, None)
    t.ack(take(t))
    t.publish("g", 5, 0, None, None)


def test_closed_engine_raises_from_handles_made_before(bench: Bench) -> None:
    t, q = bench.transport(), bench.queue()
    publish(t, "g", 1)
    claim = take(t)
    bench.engine.close()
    bench.engine.close()
    for verb in (
        lambda: t.ack(claim),
        lambda: take(t),
        lambda: t.stats(),
        lambda: q.claim("w", 1, None),
        lambda: bench.transport(),
    ):
        with pytest.raises(StoreClosed):
            verb()
