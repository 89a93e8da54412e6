"""public: the records callers see are data without behaviour."""

from __future__ import annotations

import dataclasses

import pytest

import rota
from rota import public

PUBLIC = (
    public.Item,
    public.JobRecord,
    public.Message,
    public.DeadJob,
    public.DeadMessage,
    public.Group,
    public.QueueStats,
    public.TransportStats,
    public.Explanation,
)


@pytest.mark.parametrize("record", PUBLIC)
def test_what_callers_see_is_frozen_slotted_and_exported(record: type) -> None:
    assert getattr(rota, record.__name__) is record
    assert dataclasses.is_dataclass(record)
    assert record.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not hasattr(object.__new__(record), "__dict__")
    own = {name for name in vars(record) if not name.startswith("_") and callable(getattr(record, name))}
    assert own == set(), "records have no behaviour"


def test_an_item_takes_its_options_by_name() -> None:
    item = rota.Item({"n": 1}, delay=5, key="k")
    assert (item.payload, item.delay, item.key, item.priority) == ({"n": 1}, 5, "k", 0)
    with pytest.raises(TypeError):
        rota.Item(1, "name")  # type: ignore[misc]


def test_an_item_has_the_options_of_enqueue() -> None:
    import inspect

    options = set(inspect.signature(rota.Queue.enqueue).parameters) - {"self", "payload", "tx"}
    assert {field.name for field in dataclasses.fields(rota.Item)} - {"payload"} == options
