"""URLs of stores that are refused, and why."""

from __future__ import annotations

import pytest

import rota


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:///x.db?what", "the options of 'sqlite:///x.db.what' cannot be read"),
        ("sqlite:///x.db?durability=full&durability=normal", "names durability twice"),
        ("memory://?max_items=5&max_items=6", "names max_items twice: '5' and '6'"),
        ("memory://?max_items=many", "must be a number"),
        ("memory://?speed=high", "takes no option 'speed'"),
    ],
)
def test_options_that_cannot_be_understood(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        rota.open(url)


def test_the_same_said_twice_is_no_contradiction() -> None:
    rota.open("memory://?max_items=5&max_items=5").close()
