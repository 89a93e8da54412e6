"""rules: boundaries, backoff, options, error texts, and the transition table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import rules
from rota.records import TransportOptions

HOUR = 3_600_000_000
instants = st.integers(-(2**61), 2**61)


@given(instants)
def test_the_deadlines_own_instant_belongs_to_the_holder(now: int) -> None:
    assert not rules.lapsed(now, now)
    assert not rules.lapsed(now + 1, now)
    assert rules.lapsed(now - 1, now)


@given(instants)
def test_an_expirys_own_instant_is_over(now: int) -> None:
    assert rules.expired(now, now)
    assert rules.expired(now - 1, now)
    assert not rules.expired(now + 1, now)
    assert not rules.expired(None, now)


@given(instants)
def test_claimable(now: int) -> None:
    assert rules.claimable("pending", now, None, None, now)
    assert not rules.claimable("pending", now + 1, None, None, now)
    assert not rules.claimable("pending", now, None, now, now)
    assert not rules.claimable("processing", now, now, None, now)
    assert rules.claimable("processing", now, now - 1, None, now)
    assert not rules.claimable("processing", now, now - 1, now, now)
    assert not rules.claimable("dead", now, None, None, now)
    assert not rules.claimable("done", now, None, None, now)


def test_attempts_and_deliveries_are_counted_exactly() -> None:
    assert [rules.exhausted(attempts, 3) for attempts in (0, 2, 3, 4)] == [False, False, True, True]
    assert [rules.poisoned(deliveries, 2) for deliveries in (0, 1, 2, 3)] == [False, False, True, True]
    assert not rules.poisoned(10**9, None)


@given(
    st.integers(0, 10**18),
    st.integers(1, 2**31),
    st.floats(0, 1, exclude_max=True, allow_nan=False),
)
def test_backoff_lies_in_its_range(base: int, attempts: int, chance: float) -> None:
    doubled = base * 2 ** min(attempts - 1, 62)
    full = min(doubled, HOUR)
    delay = rules.backoff(base, attempts, chance)
    assert type(delay) is int
    # The lower half may start half a microsecond lower: whole microseconds are handed out.
    assert full // 2 <= delay <= full


@given(st.integers(-10, 10**30), st.integers(0, 10**30))
def test_backoff_is_total(attempts: int, base: int) -> None:
    assert 0 <= rules.backoff(base, attempts, 0.999999) <= HOUR


def test_backoff_of_base_two() -> None:
    seconds = [
        (rules.backoff(2_000_000, attempt, 0.0), rules.backoff(2_000_000, attempt, 1.0)) for attempt in (1, 2, 3)
    ]
    assert seconds == [(1_000_000, 2_000_000), (2_000_000, 4_000_000), (4_000_000, 8_000_000)]
    assert rules.backoff(0, 50, 0.5) == 0


@given(instants, st.none() | instants, st.none() | instants)
def test_ready_time(now: int, delay: int | None, run_at: int | None) -> None:
    ready = rules.ready_time(now, delay, run_at)
    if delay is not None:
        assert ready == now + delay
    elif run_at is not None:
        assert ready == run_at
    else:
        assert ready == now


def test_expiry_time() -> None:
    assert rules.expiry_time(5, None) is None
    assert rules.expiry_time(5, 0) == 5
    assert rules.expiry_time(5, -3) == 2


@given(instants)
def test_a_key_is_taken_while_live_or_before_its_end(now: int) -> None:
    assert rules.key_taken(True, now - 1, now)
    assert rules.key_taken(False, now + 1, now)
    assert not rules.key_taken(False, now, now)


@given(st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1), st.integers(1, 2**62))
def test_fresh_groups_go_first_in_order_of_their_heads(one: int, two: int, token: int) -> None:
    assert rules.fresh_turn(one) < token
    assert rules.is_fresh(rules.fresh_turn(one))
    assert not rules.is_fresh(token)
    assert (rules.fresh_turn(one) < rules.fresh_turn(two)) is (one < two)


def test_options_merge_until_they_conflict() -> None:
    merged = rules.merge_options("t", {"max_deliveries": 3}, {"poison": "hold", "max_deliveries": 3})
    assert merged == {"max_deliveries": 3, "poison": "hold"}
    with pytest.raises(ValueError, match=r"max_deliveries"):
        rules.merge_options("t", {"max_deliveries": 3}, {"max_deliveries": 4})
    assert set(merged) <= set(TransportOptions._fields)


def test_retention_ends_at_its_very_instant() -> None:
    assert rules.retained_until(10, 5) == 15
    assert rules.retained_until(10, 0) == 10
    assert rules.retained_until(10, None) is None


# -- Error texts (case 029) ------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_any_text_becomes_fit(text: str) -> None:
    cleaned = rules.clean_error(text)
    if not text:
        assert cleaned is None
        return
    assert cleaned is not None
    assert "\0" not in cleaned
    assert len(cleaned.encode()) <= rules.MAX_ERROR_BYTES
    if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


@pytest.mark.parametrize(
    ("text", "characters"),
    [("x" * 5_000_000, 65_536), ("é" * 100_000, 32_768), ("x" + "é" * 100_000, 32_768), ("😀" * 100_000, 16_384)],
)
def test_long_texts_are_cut_at_a_character(text: str, characters: int) -> None:
    cleaned = rules.clean_error(text)
    assert cleaned is not None
    assert text.startswith(cleaned)
    assert len(cleaned) == characters


def test_exceptions_become_type_and_message() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert rules.clean_error(ValueError("wrong\0")) == "ValueError: wrong\ufffd"
    assert rules.clean_error(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert (rules.clean_error(Unprintable()) or "").startswith("Unprintable: ")
    assert rules.clean_error(None) is None
    with pytest.raises(TypeError, match="error"):
        rules.clean_error(5)  # type: ignore[arg-type]


# -- The life of a job -----------------------------------------------------------------------------------------------


def test_the_transition_table_is_closed() -> None:
    """Every state can be reached, none but gone is a dead end, and nothing leads out of gone."""
    reached = {state for targets in rules.TRANSITIONS.values() for state in targets}
    sources = {source for source, _ in rules.TRANSITIONS}
    assert reached == {"pending", "processing", "done", "dead", "gone"}
    assert sources == {"new", "pending", "processing", "done", "dead"}
    assert rules.TRANSITIONS["dead", "redrive"] == ("pending",)
    assert ("done", "cancel") not in rules.TRANSITIONS


@pytest.mark.parametrize(
    ("suspended", "until", "leased", "state"),
    [
        (True, 10, True, "suspended"),
        (False, None, False, "ready"),
        (False, 9, True, "ready"),
        (False, 10, True, "leased"),
        (False, 10, False, "parked"),
    ],
)
def test_group_states(suspended: bool, until: int | None, leased: bool, state: str) -> None:
    assert rules.group_state(suspended, until, leased, 10) == state
