"""TypedCodec (P3): as strict as JsonCodec, field by field."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import PayloadError
from rota.typed import TypedCodec


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Line:
    name: str
    count: int = 1


UserId = NewType("UserId", int)


@dataclasses.dataclass(frozen=True)
class Order:
    number: int
    lines: list[Line]
    totals: dict[str, float]
    note: str | None
    state: Literal["new", "paid", 3, None]
    colour: Colour
    level: Level
    placed: datetime
    day: date
    token: uuid.UUID
    price: Decimal
    pair: tuple[int, str]
    many: tuple[bool, ...]
    first: Optional[Line]  # noqa: UP045
    either: Union[int, str, list[int]]  # noqa: UP007
    extra: dict[str, Any]
    user: UserId
    tagged: Annotated[int, "meaning"]
    rest: list[Line] = dataclasses.field(default_factory=list)


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
floats = st.floats(allow_nan=False, allow_infinity=False)
lines = st.builds(Line, text, st.integers())
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))])
orders = st.builds(
    Order,
    number=st.integers(),
    lines=st.lists(lines, max_size=2),
    totals=st.dictionaries(text, floats | st.integers(), max_size=2),
    note=st.none() | text,
    state=st.sampled_from(["new", "paid", 3, None]),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    placed=st.datetimes(timezones=zones),
    day=st.dates(),
    token=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    pair=st.tuples(st.integers(), text),
    many=st.lists(st.booleans(), max_size=3).map(tuple),
    first=st.none() | lines,
    either=st.integers() | text | st.lists(st.integers(), max_size=2),
    extra=st.dictionaries(text, st.none() | st.integers() | st.lists(text, max_size=1), max_size=2),
    user=st.integers(),
    tagged=st.integers(),
    rest=st.lists(lines, max_size=1),
)
codec = TypedCodec(Order)


@given(orders)
def test_what_goes_in_comes_out(order: Order) -> None:
    again = codec.decode(codec.encode(order))
    assert again == order
    # Equal is not enough: 1 == True == 1.0.
    for field in dataclasses.fields(Order):
        if field.name != "placed":
            assert repr(getattr(again, field.name)) == repr(getattr(order, field.name))


SAMPLE = Order(
    1,
    [Line("a")],
    {"x": 1.5},
    None,
    "new",
    Colour.RED,
    Level.LOW,
    datetime(2024, 1, 1, tzinfo=UTC),
    date(2024, 1, 1),
    uuid.UUID(int=5),
    Decimal("1.10"),
    (1, "b"),
    (True,),
    None,
    5,
    {},
    UserId(3),
    4,
)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("number", "1", "payload.number"),
        ("number", True, "payload.number"),
        ("number", 1.0, "payload.number"),
        ("lines", [Line("a"), Line(5)], r"payload.lines\[1\].name"),  # type: ignore[arg-type]
        ("lines", (Line("a"),), "payload.lines"),
        ("lines", [{"name": "a", "count": 1}], r"payload.lines\[0\]"),
        ("totals", {"x": float("nan")}, r"payload.totals\['x'\]"),
        ("totals", {1: 1.0}, "payload.totals"),
        ("note", 5, "payload.note"),
        ("note", "\ud800", "payload.note"),
        ("state", "lost", "payload.state"),
        ("state", True, "payload.state"),
        ("colour", "red", "payload.colour"),
        ("level", 1, "payload.level"),
        ("placed", datetime(2024, 1, 1), "payload.placed.*naive"),
        ("placed", "2024-01-01", "payload.placed"),
        ("day", datetime(2024, 1, 1, tzinfo=UTC), "payload.day"),
        ("token", "5", "payload.token"),
        ("price", Decimal("NaN"), "payload.price"),
        ("price", 1.1, "payload.price"),
        ("pair", (1, 2), r"payload.pair\[1\]"),
        ("pair", (1,), "payload.pair"),
        ("pair", [1, "b"], "payload.pair"),
        ("many", (True, 1), r"payload.many\[1\]"),
        ("first", 5, "payload.first"),
        ("first", Line(None), "payload.first.name"),  # type: ignore[arg-type]
        ("either", 1.5, "payload.either"),
        ("extra", {"a": {1, 2}}, r"\['extra'\]\['a'\]"),
    ],
)
def test_values_that_do_not_fit_are_refused_naming_the_path(field: str, value: Any, path: str) -> None:
    with pytest.raises(PayloadError, match=path):
        codec.encode(dataclasses.replace(SAMPLE, **{field: value}))


def test_an_object_of_another_type_is_refused() -> None:
    @dataclasses.dataclass
    class More(Line):
        extra: int = 0

    line = TypedCodec(Line)
    for other in ({"name": "a", "count": 1}, More("a"), Order, None, "a"):
        with pytest.raises(PayloadError, match="Line"):
            line.encode(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        ("{}", "name.*missing"),
        ('{"name": 1}', "payload.name"),
        ('{"name": "a", "count": "1"}', "payload.count"),
        ('{"name": "a", "other": 1}', "other"),
        ("[]", "Line"),
        ("null", "Line"),
        ("{", "JSON"),
    ],
)
def test_stored_text_that_does_not_fit_is_refused(stored: str, what: str) -> None:
    with pytest.raises(PayloadError, match=what):
        TypedCodec(Line).decode(stored)


def test_a_field_with_a_default_may_be_missing() -> None:
    """Fields can be added while jobs wait."""
    assert TypedCodec(Line).decode('{"name": "a"}') == Line("a", 1)


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree]
    parent: Tree | None = None


def test_dataclasses_may_refer_to_themselves() -> None:
    tree = Tree(1, [Tree(2, []), Tree(3, [Tree(4, [])])], Tree(0, []))
    assert TypedCodec(Tree).decode(TypedCodec(Tree).encode(tree)) == tree
    tree.children.append(tree)
    with pytest.raises(PayloadError):
        TypedCodec(Tree).encode(tree)


def test_a_constructor_that_refuses_is_a_payload_error() -> None:
    @dataclasses.dataclass
    class Positive:
        n: int

        def __post_init__(self) -> None:
            if self.n < 0:
                raise ValueError("n is negative")

    with pytest.raises(PayloadError, match="n is negative"):
        TypedCodec(Positive).decode('{"n": -1}')


def test_containers_of_dataclasses_are_types_too() -> None:
    many: TypedCodec[list[Line]] = TypedCodec(list[Line])
    assert many.decode(many.encode([Line("a"), Line("b", 2)])) == [Line("a"), Line("b", 2)]


X = TypeVar("X")


@dataclasses.dataclass
class Open(Generic[X]):
    value: X


def made(annotation: Any) -> type:
    return dataclasses.make_dataclass("Made", [("field", annotation)])


@pytest.mark.parametrize(
    "annotation",
    [
        set[int],
        bytes,
        object,
        list,
        dict,
        tuple,
        dict[int, str],
        complex,
        Open[int],
        int | Decimal | str,
        str | datetime,
    ],
)
def test_annotations_that_cannot_be_carried_are_refused_at_once(annotation: Any) -> None:
    with pytest.raises(TypeError, match=r"Made\.field|field"):
        TypedCodec(made(annotation))


def test_types_that_cannot_be_carried_are_refused_at_once() -> None:
    @dataclasses.dataclass
    class Hidden:
        n: int = dataclasses.field(init=False)

    class Plain:
        pass

    class Flags(enum.Flag):
        A = 1

    for odd in (Hidden, Plain, Open, made(Flags), "Line", made("Nowhere")):
        with pytest.raises(TypeError):
            TypedCodec(odd)  # type: ignore[arg-type]


def test_it_says_what_it_is() -> None:
    assert repr(TypedCodec(Line)) == "TypedCodec(Line)"


# -- Libraries -------------------------------------------------------------------------------------------------------


def test_no_library_is_imported_for_dataclasses() -> None:
    program = (
        "import sys, dataclasses, rota\n"
        "@dataclasses.dataclass\nclass D:\n    n: int\n"
        "rota.TypedCodec(D).encode(D(1))\n"
        "assert not {'msgspec', 'pydantic'} & set(sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_msgspec_structs() -> None:
    msgspec = pytest.importorskip("msgspec")
    Point = msgspec.defstruct(
        "Point", [("x", int), ("y", float), ("tags", list[str], msgspec.field(default_factory=list))]
    )
    points = TypedCodec(Point)
    assert points.decode(points.encode(Point(2**62, 1.5, ["é\0"]))) == Point(2**62, 1.5, ["é\0"])
    assert points.decode('{"x": 1, "y": 2.0}') == Point(1, 2.0)
    for wrong in (Point("1", 1.0), Point(1, float("nan")), {"x": 1}, Point(1, 1.0, ["\ud800"])):
        with pytest.raises(PayloadError):
            points.encode(wrong)
    for stored in ("{", "{}", '{"x": "1", "y": 2.0}'):
        with pytest.raises(PayloadError, match="Point"):
            points.decode(stored)


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")
    Model = pydantic.create_model("Model", n=(int, ...), when=(datetime | None, None), ratio=(float, 0.0))
    models = TypedCodec(Model)
    value = Model(n=2**70, when=datetime(2024, 1, 1, tzinfo=UTC))
    assert models.decode(models.encode(value)) == value
    for wrong in (Model.model_construct(n="x"), Model(n=1, ratio=float("nan")), {"n": 1}):
        with pytest.raises(PayloadError):
            models.encode(wrong)
    with pytest.raises(PayloadError, match="Model"):
        models.decode('{"n": "many"}')
