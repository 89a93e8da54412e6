"""codecs: anything JSON in is equal out, everything else is refused naming the path (P1)."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections import OrderedDict, namedtuple
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.codecs import MAX_DEPTH, JsonCodec, from_text, to_text
from rota.errors import PayloadError, PayloadTooLarge

codec = JsonCodec()
text = st.text(st.characters(exclude_categories=("Cs",)))
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4))


@given(values)
def test_anything_json_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    encoded = codec.encode(value)
    # repr tells 1 from 1.0 and True, and 0.0 from -0.0.
    assert repr(codec.decode(encoded)) == repr(value)
    assert "\0" not in encoded
    assert json.loads(encoded) == value


Pair = namedtuple("Pair", "a b")


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    pass


bad_leaves = st.sampled_from(
    [
        math.nan,
        math.inf,
        -math.inf,
        b"x",
        (1,),
        {1},
        frozenset(),
        1j,
        object(),
        Decimal(1),
        datetime(2024, 1, 1),
        "\ud800",
    ]
)


@st.composite
def spoiled(draw: Any) -> tuple[Any, str]:
    """A value with one thing in it that JSON cannot carry, and the path there."""
    value, path = draw(bad_leaves), ""
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            before = draw(st.lists(leaves, max_size=2))
            value, path = [*before, value, draw(leaves)], f"[{len(before)}]{path}"
        else:
            key = draw(st.text("ab", max_size=2))
            others = draw(st.dictionaries(st.text("cd", min_size=1, max_size=2), leaves, max_size=2))
            value, path = {**others, key: value}, f"[{key!r}]{path}"
    return value, "payload" + path


@given(spoiled())
def test_everything_else_is_refused_naming_the_path(case: tuple[Any, str]) -> None:
    value, path = case
    with pytest.raises(PayloadError) as refusal:
        codec.encode(value)
    assert str(refusal.value).startswith(f"{path}: ")


@pytest.mark.parametrize("key", [1, 1.5, None, True, b"k", ("a",), Text("k")])
def test_keys_are_plain_strings(key: Any) -> None:
    with pytest.raises(PayloadError, match=r"payload\['a'\]: key"):
        codec.encode({"a": {key: 1}})


@pytest.mark.parametrize("value", [Pair(1, 2), [Pair(1, 2)], {"a": (1,)}, [1, [(), 2]]])
def test_tuples_would_come_back_as_lists(value: Any) -> None:
    with pytest.raises(PayloadError):
        codec.encode(value)


@pytest.mark.parametrize("value", [Number.ONE, Text("x"), OrderedDict(a=1), [Number.ONE], {"a": Text("x")}])
def test_subclasses_come_back_equal_or_are_refused(value: Any) -> None:
    try:
        encoded = codec.encode(value)
    except PayloadError:
        return
    assert codec.decode(encoded) == value


def test_numbers_at_the_edges() -> None:
    for value in (2**53 + 1, -(2**63), 2**64, 10 ** (sys.get_int_max_str_digits() - 1), 5e-324, -0.0, 1e308):
        assert repr(codec.decode(codec.encode(value))) == repr(value)
    with pytest.raises(PayloadError, match="digits"):
        codec.encode([10 ** (sys.get_int_max_str_digits() + 1)])


def test_nesting_and_cycles() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert codec.decode(codec.encode(deep)) == deep
    with pytest.raises(PayloadError, match="deeper"):
        codec.encode([deep])
    cycle: dict[str, Any] = {}
    cycle["self"] = [cycle]
    with pytest.raises(PayloadError, match="itself"):
        codec.encode(cycle)
    # The same object twice is no cycle.
    shared = [1]
    assert codec.decode(codec.encode([shared, shared])) == [[1], [1]]


@pytest.mark.parametrize("stored", ["", "{", "nul", "[1,]", "1 2", "\ufeff1", "'a'", "[" * 100_000])
def test_text_that_is_no_json_is_a_payload_error(stored: str) -> None:
    with pytest.raises(PayloadError, match="JSON"):
        codec.decode(stored)
    assert isinstance(from_text(codec, stored), PayloadError)


def test_text_edited_by_hand_may_have_white_space() -> None:
    assert codec.decode(' {"a": [1, 2]}\n') == {"a": [1, 2]}


def test_size_counts_bytes() -> None:
    assert to_text(codec, "é" * 4, 10) == '"éééé"'
    with pytest.raises(PayloadTooLarge, match="12 bytes"):
        to_text(codec, "é" * 5, 10)


class Odd:
    def __init__(self, result: Any) -> None:
        self.result = result

    def encode(self, obj: Any) -> Any:
        return self.result

    def decode(self, text: str) -> Any:
        raise KeyError(text)


@pytest.mark.parametrize("result", [b"x", None, "a\0b", "\ud800"])
def test_a_codec_must_give_text_that_can_be_stored(result: Any) -> None:
    with pytest.raises(PayloadError):
        to_text(Odd(result), 1, 100)


def test_a_codec_that_fails_to_decode_gives_the_error_as_payload() -> None:
    error = from_text(Odd(""), "stored")
    assert isinstance(error, PayloadError)
    assert isinstance(error.__cause__, KeyError)
    assert "KeyError" in str(error)
