"""Two ways to drive a model: Hypothesis (which shrinks what it finds), and seeded walks (which go far, cheaply).

Both draw the arguments of a move from the same choices. Hypothesis picks rules evenly and switches some off in each
trace, so the everyday moves are given to it several times over; a walk weighs them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule


@dataclass(frozen=True)
class Many:
    """A list of up to ``most`` draws."""

    choices: Any
    most: int


def drawn(choices: Any) -> st.SearchStrategy[Any]:
    """The choices as a strategy: a tuple is one of, a dict is one of each, Many is a list."""
    if isinstance(choices, Many):
        return st.lists(drawn(choices.choices), max_size=choices.most)
    if isinstance(choices, Mapping):
        return st.fixed_dictionaries({name: drawn(each) for name, each in choices.items()})
    return st.sampled_from(choices)


def picked(choices: Any, chance: random.Random) -> Any:
    """The same, by a seeded source."""
    if isinstance(choices, Many):
        return [picked(choices.choices, chance) for _ in range(chance.randint(0, choices.most))]
    if isinstance(choices, Mapping):
        return {name: picked(each, chance) for name, each in choices.items()}
    return chance.choice(choices)


def often(times: int, act: Callable[..., Any], choices: Mapping[str, Any]) -> list[Any]:
    """The same rule several times over."""
    return [rule(**{name: drawn(each) for name, each in choices.items()})(act) for _ in range(times)]


Move = tuple[int, str, Mapping[str, Any]]


def walk(
    machine: type[RuleBasedStateMachine], begin: Mapping[str, Any], moves: tuple[Move, ...], seed: int, steps: int
) -> None:
    """One long weighted trace, compared after every move (on a server: some). A failure tells the moves."""
    chance = random.Random(seed)
    trace = machine()
    log: list[str] = []
    try:
        trace.begin(**picked(begin, chance))
        weights = [weight for weight, _, _ in moves]
        for _ in range(steps):
            _, name, choices = chance.choices(moves, weights)[0]
            arguments = picked(choices, chance)
            log.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")
            getattr(trace, name)(**arguments)
            trace.everything_is_as_the_oracle_says()
    except Exception as error:
        error.add_note(f"walk {seed}, after:\n" + "\n".join(log[-25:]))
        raise
    finally:
        trace.teardown()
