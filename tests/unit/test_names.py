"""names: what is a name, what is refused, and that what is refused says why (case 034)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import names

fine = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=255)


@given(fine)
def test_every_plain_string_is_a_name(value: str) -> None:
    assert names.name(value, "queue name") == value


@given(st.characters(categories=("Cc", "Cs")), st.text(max_size=5), st.text(max_size=5))
def test_controls_and_surrogates_are_refused_anywhere(bad: str, before: str, after: str) -> None:
    with pytest.raises(ValueError, match="group_id"):
        names.name(before + bad + after, "group_id")


@pytest.mark.parametrize("value", ["", "x" * 256, "é" * 256, "a\0b", "\n", "tab\t", "\x7f", "\x85", "\ud800"])
def test_what_is_refused_says_which_rule(value: str) -> None:
    with pytest.raises(ValueError, match=r"key must (not be empty|have at most 255|not contain)"):
        names.name(value, "key")


def test_the_longest_name_counts_characters_not_bytes() -> None:
    assert names.name("😀" * 255, "x") == "😀" * 255


@pytest.mark.parametrize("value", [None, 1, b"x", ["x"], True])
def test_names_are_strings(value: Any) -> None:
    with pytest.raises(TypeError, match="worker_id must be a str"):
        names.name(value, "worker_id")


def test_a_subclass_of_str_becomes_a_plain_string() -> None:
    class Loud(str):
        def __str__(self) -> str:
            return "something else"

    result = names.name(Loud("quiet"), "x")
    assert type(result) is str
    assert result == "quiet"


@pytest.mark.parametrize("value", ["'; DROP TABLE jobs; --", "MyQueue", "%s {0} $1", "a b", "é", "e\u0301", "\u00a0"])
def test_hostile_names_are_names(value: str) -> None:
    assert names.name(value, "x") == value


def test_headers_are_copied() -> None:
    given_ = {"trace": "1\n2", "": ""}
    with pytest.raises(ValueError, match="header name"):
        names.headers(given_)
    del given_[""]
    copy = names.headers(given_)
    assert copy == given_
    assert copy is not given_
    assert names.headers(None) is None
    assert names.headers({}) is None


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"a": 1}, TypeError),
        ({1: "a"}, TypeError),
        ({"a": "\0"}, ValueError),
        ({"a": "\ud800"}, ValueError),
        ([], TypeError),
        ([("a", "b")], TypeError),
        ("ab", TypeError),
        ("", TypeError),
    ],
)
def test_other_headers_are_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        names.headers(value)


def test_channel_payloads() -> None:
    assert names.channel_payload(None) is None
    assert names.channel_payload("é" * 3_500) == "é" * 3_500
    for value in ("é" * 3_500 + "x", "x" * 7_001, "\0", "\udc00"):
        with pytest.raises(ValueError, match="payload"):
            names.channel_payload(value)
    with pytest.raises(TypeError):
        names.channel_payload(b"x")  # type: ignore[arg-type]


def test_new_worker_ids_are_names_and_differ() -> None:
    made = {names.new_worker_id() for _ in range(100)}
    assert len(made) == 100
    for value in made:
        assert names.name(value, "worker_id") == value
        assert re.fullmatch(r".+-\d+-[0-9a-f]{8}", value)
