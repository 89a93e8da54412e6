"""``TypedCodec`` (P3): payloads that are dataclasses, msgspec Structs or pydantic models, as strict JSON text.

Dataclasses are carried field by field as their annotations say, with the strictness of ``JsonCodec``: what comes out
equals what went in, or ``PayloadError`` names the path. Structs and models go through their own library, which is
imported only when such a type is given, and the text is read back before it is stored, since these libraries let some
values pass that they cannot give back (NaN becomes null).
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
import types
import uuid
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from rota.codecs import JsonCodec
from rota.errors import PayloadError

T = TypeVar("T")
_json = JsonCodec()

_ACCEPTED = (
    "dataclasses, msgspec Structs, pydantic models; inside dataclasses also str, int, float, bool, None, Any (strict "
    "JSON), list[X], dict[str, X], tuple[…], X | None, unions told apart by their JSON kind, Literal, Enum, datetime, "
    "date, UUID, Decimal"
)


class TypedCodec(Generic[T]):
    """A codec for payloads of one type (P3).

    Raises ``TypeError`` when it is made for a type, or a field, that it cannot carry exactly. ``encode`` raises
    ``PayloadError`` for an object that is not a ``T`` or has a value its annotation does not allow, ``decode`` for text
    that is no ``T``. A field with a default may be missing in the text, so that fields can be added while jobs wait.

    It binds payloads, not the results of jobs: a result that is no ``T`` is carried as plain JSON, unless it would come
    back as a ``T``.
    """

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._encode, self._decode = _library_pair(type_) or _own_pair(type_)
        self.for_results = ResultCodec(self)

    def encode(self, obj: T) -> str:
        """JSON text of ``obj``; ``PayloadError`` naming the path to what does not fit."""
        return self._encode(obj)

    def decode(self, text: str) -> T:
        """The ``T`` in ``text``; ``PayloadError`` naming the path to what does not fit."""
        result: T = self._decode(text)
        return result

    def __repr__(self) -> str:
        return f"TypedCodec({_name(self.type)})"


class ResultCodec:
    """Results where payloads are typed: of that type, or else plain JSON."""

    def __init__(self, typed: TypedCodec[Any]) -> None:
        self._typed = typed

    def encode(self, obj: Any) -> str:
        """Text of a result; ``PayloadError`` for one that would not come back as it is."""
        try:
            return self._typed.encode(obj)
        except PayloadError as refusal:
            try:
                text = _json.encode(obj)
            except PayloadError:
                raise refusal from None
            if self.decode(text) != obj:
                raise PayloadError(f"result: {obj!r:.80} would come back as a {_name(self._typed.type)}") from None
            return text

    def decode(self, text: str) -> Any:
        """The result in ``text``; ``PayloadError`` for text that is not even JSON."""
        try:
            return self._typed.decode(text)
        except PayloadError:
            return _json.decode(text)

    def __repr__(self) -> str:
        return f"{self._typed!r}.for_results"


_Pair = tuple[Callable[[Any], str], Callable[[str], Any]]

# -- Types with a library of their own -------------------------------------------------------------------------------


def _library_pair(type_: Any) -> _Pair | None:
    """Encode and decode of a Struct or a pydantic model, None for other types."""
    if not isinstance(type_, type):
        return None
    if hasattr(type_, "__struct_fields__"):
        return _struct_pair(type_)
    if hasattr(type_, "__pydantic_core_schema__") and hasattr(type_, "model_validate_json"):
        return _read_back(
            type_,
            lambda obj: str(obj.model_dump_json()),
            lambda text: type_.model_validate_json(text),
        )
    return None


def _struct_pair(type_: Any) -> _Pair:
    msgspec: Any = importlib.import_module("msgspec")
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(type_)
    return _read_back(type_, lambda obj: str(encoder.encode(obj), "utf-8"), lambda text: decoder.decode(text))


def _read_back(type_: type, dump: Callable[[Any], str], load: Callable[[str], Any]) -> _Pair:
    """Strictness over a library that is not strict: the text must give back an equal object."""

    def encode(obj: Any) -> str:
        if type(obj) is not type_:
            raise _refusal("payload", _name(type_), obj)
        try:
            text = dump(obj)
            same = load(text) == obj
        except Exception as error:
            raise PayloadError(
                f"payload: {_name(type_)} cannot be carried exactly: {error}, got {obj!r:.80}"
            ) from error
        if not same:
            raise PayloadError(f"payload: {_name(type_)} does not read back equal from its JSON, got {obj!r:.80}")
        return text

    def decode(text: str) -> Any:
        try:
            return load(text)
        except Exception as error:
            raise PayloadError(f"stored text is no {_name(type_)}: {error}") from error

    return encode, decode


# -- Dataclasses and what they are made of ---------------------------------------------------------------------------


class _Shape(NamedTuple):
    """How one annotation is carried: to and from plain JSON values, each with the path for the refusal."""

    dump: Callable[[Any, str], Any]
    load: Callable[[Any, str], Any]
    kinds: frozenset[str]
    """The JSON kinds it may appear as: unions are told apart by them."""
    verbatim: bool = False
    """Whether JSON's own value is the value: two such members of a union cannot be mistaken for each other."""


def _own_pair(type_: Any) -> _Pair:
    shape = _shape(type_, _name(type_), {})

    def encode(obj: Any) -> str:
        try:
            plain = shape.dump(obj, "payload")
        except RecursionError:
            raise PayloadError("payload: nested too deep, or it contains itself") from None
        return _json.encode(plain)

    def decode(text: str) -> Any:
        return shape.load(_json.decode(text), "payload")

    return encode, decode


def _shape(annotation: Any, where: str, known: dict[Any, list[_Shape]]) -> _Shape:
    """The shape of an annotation; ``known`` holds dataclasses under way, so that they may refer to themselves."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], where, known)
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    if origin is Literal:
        return _literal(arguments, where)
    if origin in (Union, types.UnionType):
        return _union([_shape(member, where, known) for member in arguments], annotation, where)
    if origin is list and len(arguments) == 1:
        return _list(_shape(arguments[0], f"{where}[]", known), annotation)
    if origin is dict and len(arguments) == 2 and arguments[0] is str:
        return _dict(_shape(arguments[1], f"{where}[…]", known), annotation)
    if origin is tuple and arguments:
        return _tuple(arguments, annotation, where, known)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation, where)
    if isinstance(annotation, type) and origin is None and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, where, known)
    supertype = getattr(annotation, "__supertype__", None)
    if supertype is not None:
        return _shape(supertype, where, known)
    raise TypeError(f"{where}: {annotation!r} cannot be carried exactly by TypedCodec. Accepted: {_ACCEPTED}")


def _dataclass(type_: Any, where: str, known: dict[Any, list[_Shape]]) -> _Shape:
    if type_ in known:
        # It refers to itself: its shape is there by the time a value is carried.
        later = known[type_]
        return _Shape(lambda v, p: later[0].dump(v, p), lambda v, p: later[0].load(v, p), frozenset({"dict"}))
    if getattr(type_, "__parameters__", ()):
        raise TypeError(f"{where}: generic dataclass {_name(type_)} has open type parameters: give it a concrete type")
    under_way = known[type_] = []
    try:
        hints = get_type_hints(type_, include_extras=True)
    except Exception as error:
        raise TypeError(f"{where}: the annotations of {_name(type_)} cannot be resolved: {error}") from error
    fields: dict[str, _Shape] = {}
    required: set[str] = set()
    for field in dataclasses.fields(type_):
        if not field.init:
            raise TypeError(f"{where}.{field.name}: a field with init=False cannot be given back")
        fields[field.name] = _shape(hints[field.name], f"{where}.{field.name}", known)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.add(field.name)
    if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
        raise TypeError(f"{where}: {_name(type_)} has an InitVar, which is not kept and cannot be given back")

    def dump(value: Any, path: str) -> dict[str, Any]:
        # A subclass would come back without what it adds.
        if type(value) is not type_:
            raise _refusal(path, _name(type_), value)
        return {name: shape.dump(getattr(value, name), f"{path}.{name}") for name, shape in fields.items()}

    def load(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _refusal(path, _name(type_), value)
        for name in value:
            if name not in fields:
                raise PayloadError(f"{path}.{name}: {_name(type_)} has no such field")
        for name in required:
            if name not in value:
                raise PayloadError(f"{path}.{name}: missing, {_name(type_)} has no default for it")
        given = {name: fields[name].load(item, f"{path}.{name}") for name, item in value.items()}
        try:
            return type_(**given)
        except Exception as error:
            raise PayloadError(f"{path}: {_name(type_)} refused its fields: {type(error).__name__}: {error}") from error

    under_way.append(_Shape(dump, load, frozenset({"dict"})))
    return under_way[0]


def _list(item: _Shape, annotation: Any) -> _Shape:
    def each(carry: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def convert(value: Any, path: str) -> list[Any]:
            if type(value) is not list:
                raise _refusal(path, annotation, value)
            return [carry(element, f"{path}[{index}]") for index, element in enumerate(value)]

        return convert

    return _Shape(each(item.dump), each(item.load), frozenset({"list"}))


def _dict(item: _Shape, annotation: Any) -> _Shape:
    def each(carry: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def convert(value: Any, path: str) -> dict[str, Any]:
            if type(value) is not dict:
                raise _refusal(path, annotation, value)
            for key in value:
                if type(key) is not str:
                    raise PayloadError(f"{path}: key {key!r} is a {type(key).__name__}, not a str")
            return {key: carry(element, f"{path}[{key!r}]") for key, element in value.items()}

        return convert

    return _Shape(each(item.dump), each(item.load), frozenset({"dict"}))


def _tuple(arguments: tuple[Any, ...], annotation: Any, where: str, known: dict[Any, list[_Shape]]) -> _Shape:
    endless = len(arguments) == 2 and arguments[1] is Ellipsis
    shapes = [_shape(part, f"{where}[{i}]", known) for i, part in enumerate(arguments[:1] if endless else arguments)]

    def parts(value: Any, path: str, kind: type) -> list[tuple[_Shape, Any, str]]:
        if (
            type(value) is not kind
            or not isinstance(value, tuple | list)
            or (not endless and len(value) != len(shapes))
        ):
            raise _refusal(path, annotation, value)
        return [(shapes[0 if endless else i], part, f"{path}[{i}]") for i, part in enumerate(value)]

    def dump(value: Any, path: str) -> list[Any]:
        return [shape.dump(part, at) for shape, part, at in parts(value, path, tuple)]

    def load(value: Any, path: str) -> tuple[Any, ...]:
        return tuple(shape.load(part, at) for shape, part, at in parts(value, path, list))

    return _Shape(dump, load, frozenset({"list"}))


def _union(members: list[_Shape], annotation: Any, where: str) -> _Shape:
    seen: dict[str, _Shape] = {}
    for member in members:
        for kind in member.kinds:
            other = seen.setdefault(kind, member)
            if other is not member and not (other.verbatim and member.verbatim):
                raise TypeError(f"{where}: the members of {annotation!r} cannot be told apart (both JSON {kind})")

    def first(pick: Callable[[_Shape], Callable[[Any, str], Any]]) -> Callable[[Any, str], Any]:
        carriers = [pick(member) for member in members]

        def convert(value: Any, path: str) -> Any:
            deepest: PayloadError | None = None
            for carry in carriers:
                try:
                    return carry(value, path)
                except PayloadError as error:
                    # The member that got past its own outside knows best what is wrong.
                    if not str(error).startswith(f"{path}: "):
                        deepest = error
            raise deepest or _refusal(path, annotation, value)

        return convert

    kinds = frozenset(kind for member in members for kind in member.kinds)
    verbatim = all(member.verbatim for member in members)
    return _Shape(first(lambda m: m.dump), first(lambda m: m.load), kinds, verbatim)


def _literal(values: tuple[Any, ...], where: str) -> _Shape:
    for value in values:
        if type(value) not in (str, int, bool, type(None)):
            raise TypeError(f"{where}: Literal[{value!r}] is no JSON value")
    # 1 == True, so the type is part of the value.
    allowed = {(type(value), value) for value in values}

    def carry(value: Any, path: str) -> Any:
        if type(value) not in (str, int, bool, type(None)) or (type(value), value) not in allowed:
            raise _refusal(path, f"one of {', '.join(map(repr, values))}", value)
        return value

    return _Shape(carry, carry, frozenset(_KINDS[type(value)] for value in values), True)


def _enum(type_: type[enum.Enum], where: str) -> _Shape:
    if issubclass(type_, enum.Flag) or any(type(member.value) not in (str, int) for member in type_):
        raise TypeError(f"{where}: {_name(type_)} must be an Enum (no Flag) whose values are str or int")
    members = {(type(member.value), member.value): member for member in type_}

    def dump(value: Any, path: str) -> Any:
        if type(value) is not type_:
            raise _refusal(path, _name(type_), value)
        return value.value

    def load(value: Any, path: str) -> Any:
        if type(value) not in (str, int) or (type(value), value) not in members:
            raise _refusal(path, f"a value of {_name(type_)}", value)
        return members[type(value), value]

    return _Shape(dump, load, frozenset(_KINDS[type(member.value)] for member in type_))


def _refusal(path: str, wanted: Any, value: Any) -> PayloadError:
    return PayloadError(f"{path}: expected {wanted}, got {value!r:.80}")


def _name(type_: Any) -> str:
    return getattr(type_, "__qualname__", None) or repr(type_)


# -- Leaves ----------------------------------------------------------------------------------------------------------

_KINDS = {str: "str", int: "number", float: "number", bool: "bool", type(None): "null"}


def _plain(*accepted: type) -> _Shape:
    wanted = " or ".join(_name(kind) for kind in accepted)

    def carry(value: Any, path: str) -> Any:
        if type(value) not in accepted:
            raise _refusal(path, wanted, value)
        if type(value) is float and not math.isfinite(value):
            raise PayloadError(f"{path}: {value!r} is not a finite number")
        if type(value) is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise PayloadError(f"{path}: {value!r} has a lone surrogate") from None
        return value

    return _Shape(carry, carry, frozenset(_KINDS[kind] for kind in accepted), True)


def _as_text(type_: type, write: Callable[[Any], str], read: Callable[[str], Any]) -> _Shape:
    """A type carried as text, if the text gives back an equal value (a datetime of a zone's fold may not)."""

    def dump(value: Any, path: str) -> str:
        if type(value) is not type_:
            raise _refusal(path, _name(type_), value)
        if isinstance(value, datetime) and value.utcoffset() is None:
            raise PayloadError(f"{path}: {value!r} is a naive datetime: make it aware, for example with .astimezone()")
        if isinstance(value, Decimal) and not value.is_finite():
            raise PayloadError(f"{path}: {value!r} is not a finite number")
        text = write(value)
        if read(text) != value:
            raise PayloadError(f"{path}: {value!r} does not read back equal from {text!r}")
        return text

    def load(value: Any, path: str) -> Any:
        if type(value) is not str:
            raise _refusal(path, f"text of a {_name(type_)}", value)
        try:
            result = read(value)
        except (ValueError, InvalidOperation):
            raise _refusal(path, f"text of a {_name(type_)}", value) from None
        return result

    return _Shape(dump, load, frozenset({"str"}))


def _anything(value: Any, path: str) -> Any:
    """``Any`` is left to strict JSON, which refuses what it cannot carry."""
    return value


_LEAVES: dict[Any, _Shape] = {
    str: _plain(str),
    int: _plain(int),
    # An int in a float field is carried as the int it is: exact beyond 2**53 too.
    float: _plain(float, int),
    bool: _plain(bool),
    None: _plain(type(None)),
    type(None): _plain(type(None)),
    Any: _Shape(_anything, _anything, frozenset({"str", "number", "bool", "null", "list", "dict"}), True),
    datetime: _as_text(datetime, datetime.isoformat, datetime.fromisoformat),
    date: _as_text(date, date.isoformat, date.fromisoformat),
    uuid.UUID: _as_text(uuid.UUID, str, uuid.UUID),
    Decimal: _as_text(Decimal, str, Decimal),
}
