"""Codecs (P1-P3): objects to text and back, strictly. No pickle, anywhere.

A codec has ``encode(obj) -> str`` and ``decode(str) -> obj``; ``encode`` raises ``PayloadError`` for what it cannot
carry exactly, naming the path to the value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from json import encoder as _json_encoder
from typing import Any, Protocol, runtime_checkable

from rota.errors import PayloadError, PayloadTooLarge

MAX_PAYLOAD_BYTES = 1 << 20
# Deeper nesting would meet the interpreter's recursion limit on one side and not on the other.
MAX_DEPTH = 200

_SCALARS = frozenset({str, int, float, bool, type(None)})


@runtime_checkable
class Codec(Protocol):
    """Turns payloads into text and back (P3)."""

    def encode(self, obj: Any, /) -> str: ...

    def decode(self, text: str, /) -> Any: ...


class JsonCodec:
    """Strict JSON (P1): what comes out equals what went in, or the payload is refused."""

    def encode(self, obj: Any) -> str:
        """JSON text of ``obj``. Raises ``PayloadError`` naming the path to what JSON cannot carry exactly."""
        if type(obj) not in _SCALARS and not _exact(obj, MAX_DEPTH):
            raise _refusal(obj)
        try:
            text = _encode(obj)
        except (TypeError, ValueError, RecursionError):
            raise _refusal(obj) from None
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise _refusal(obj) from None
        return text

    def decode(self, text: str) -> Any:
        """The object in ``text``. Raises ``PayloadError`` for text that is not JSON."""
        try:
            value, end = _scan(text, 0)
            if end == len(text):
                return value
        except StopIteration:
            pass
        except (ValueError, RecursionError) as error:
            raise PayloadError(f"stored text is not JSON that can be read: {error}") from error
        return self._decode_untidy(text)

    def _decode_untidy(self, text: str) -> Any:
        """Text with white space around it (someone edited it by hand), or no JSON at all."""
        try:
            return _decoder.decode(text)
        except (ValueError, RecursionError) as error:
            raise PayloadError(f"stored text is not JSON that can be read: {error}") from error

    def __repr__(self) -> str:
        return "JsonCodec()"


def to_text(codec: Codec, obj: Any, limit: int) -> str:
    """Encode ``obj`` and check the size (P2): ``PayloadError`` or ``PayloadTooLarge``, nothing is stored."""
    text = codec.encode(obj)
    if type(text) is not str:
        raise PayloadError(f"{codec!r}.encode must return a str, got {type(text).__name__}")
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise PayloadError(
                f"{codec!r}.encode returned text with a lone surrogate, which no engine can store"
            ) from None
    if size > limit:
        raise PayloadTooLarge(f"payload has {size} bytes encoded, at most {limit} are accepted (max_payload_bytes)")
    if "\0" in text:
        raise PayloadError(f"{codec!r}.encode returned text with NUL, which not every engine can store")
    return text


def from_text(codec: Codec, text: str) -> Any:
    """Decode ``text``; a payload that cannot be decoded is delivered as the ``PayloadError`` itself (P3)."""
    try:
        return codec.decode(text)
    except PayloadError as error:
        return error
    except Exception as error:
        refusal = PayloadError(f"{codec!r} cannot decode the stored payload: {type(error).__name__}: {error}")
        refusal.__cause__ = error
        return refusal


def decoded(codec: Codec | None, stored: Any) -> Any:
    """A payload as it was published: decoded afresh (P1), or the very object where there is no codec (T8)."""
    return stored if codec is None else from_text(codec, stored)


# -- Strict JSON -----------------------------------------------------------------------------------------------------


def _refuse_unknown(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


def _kept_encoder() -> Callable[[Any], str]:
    """The C encoder, made once: json.dumps with these options would make it anew at each call."""
    make = getattr(_json_encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    quote = _json_encoder.encode_basestring
    chunks = make(None, _refuse_unknown, quote, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode = _kept_encoder()
_decoder = json.JSONDecoder()
# Made by JSONDecoder.__init__; the type stubs do not know it.
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]


def _exact(value: Any, depth: int) -> bool:
    """Whether containers are lists and dicts with str keys, not too deep. Leaves are left to the encoder."""
    if depth <= 0:
        return False
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                return False
            if type(item) not in _SCALARS and not _exact(item, depth - 1):
                return False
        return True
    if isinstance(value, list):
        return all(type(item) in _SCALARS or _exact(item, depth - 1) for item in value)
    return not isinstance(value, tuple)


def _refusal(value: Any) -> PayloadError:
    path, why = _find(value, "payload", MAX_DEPTH, set()) or ("payload", "it cannot be encoded as JSON")
    return PayloadError(f"{path}: {why}. Accepted: dict with str keys, list, str, int, finite float, bool, None")


def _find(value: Any, path: str, depth: int, inside: set[int]) -> tuple[str, str] | None:
    """The first value that strict JSON cannot carry, as (path, why)."""
    if isinstance(value, dict | list):
        if id(value) in inside:
            return path, "it contains itself"
        if depth <= 0:
            return path, f"nested deeper than {MAX_DEPTH}"
        inside = inside | {id(value)}
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                return path, f"key {key!r} is a {type(key).__name__}, not a str"
            if not _is_text(key):
                return path, f"key {key!r} has a lone surrogate"
            found = _find(item, f"{path}[{key!r}]", depth - 1, inside)
            if found:
                return found
        return None
    if isinstance(value, list):
        for index, item in enumerate(value):
            found = _find(item, f"{path}[{index}]", depth - 1, inside)
            if found:
                return found
        return None
    return _find_in_leaf(value, path)


def _find_in_leaf(value: Any, path: str) -> tuple[str, str] | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if _is_text(value) else (path, f"{value!r} has a lone surrogate")
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, f"{value!r} is not a finite number")
    if isinstance(value, int):
        try:
            str(int(value))
        except ValueError:
            return path, "the integer has more digits than the interpreter converts (sys.set_int_max_str_digits)"
        return None
    return path, f"{type(value).__name__} cannot be carried exactly, got {value!r:.80}"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
