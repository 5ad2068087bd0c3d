"""From a type to its codec: one for the topics that others read, one for our own, one for keys.

Topics at the edge speak what other programs expect: JSON, text or raw bytes. Shuffles and state are ours alone and
speak MessagePack, which is smaller and faster to read back into the declared type.
"""

from typing import Any

import msgspec
import orjson
from msgspec import inspect

from streamkit.codec.codec import Codec
from streamkit.codec.naming import plain_type, type_name, without_none
from streamkit.errors import InvalidPipeline

# `bytes.__bytes__` is the identity on bytes and refuses everything else; like `str.encode`, it is C all the way.
_TEXT = (str.encode, bytes.decode)
_RAW = (bytes.__bytes__, bytes.__bytes__)


def value_codec(value_type: Any) -> Codec:
    """How values of a topic are written and read.

    `str` is UTF-8 text, `bytes` stay as they are, `dict` and `Any` are any JSON value, everything else is JSON checked
    against the type. `X | None` is the codec of X that lets a record without a value pass as None.

    Raises:
        InvalidPipeline: the type cannot be written as JSON.
    """
    inner, nullable = without_none(value_type)
    name = type_name(value_type)
    if inner is str:
        return Codec(name, *_TEXT, nullable)
    if inner is bytes:
        return Codec(name, *_RAW, nullable)
    if inner is dict or inner is Any:
        # orjson because it also writes what people put into free dicts: dates, enums, UUIDs, numpy numbers.
        return Codec(name, orjson.dumps, orjson.loads, nullable)
    _require_supported(inner)
    return Codec(name, msgspec.json.Encoder().encode, msgspec.json.Decoder(inner).decode, nullable)


def internal_codec(value_type: Any) -> Codec:
    """How values travel through shuffles and rest in state; None is a value like any other.

    Raises:
        InvalidPipeline: the type cannot be written as MessagePack.
    """
    _require_supported(value_type)
    decode = msgspec.msgpack.Decoder(value_type).decode
    return Codec(type_name(value_type), msgspec.msgpack.Encoder().encode, decode, nullable=True)


def key_codec(key_type: Any) -> Codec:
    """How keys are written: text as UTF-8, bytes as they are, `int` as decimal text, the rest as compact JSON.

    Equal keys give equal bytes: fields, dict keys and sets are sorted.

    Raises:
        InvalidPipeline: the type cannot be written as JSON.
    """
    key_type = plain_type(key_type)
    name = type_name(key_type)
    if key_type is str:
        return Codec(name, *_TEXT)
    if key_type is bytes:
        return Codec(name, *_RAW)
    if key_type is int:
        return Codec(name, _decimal, msgspec.json.Decoder(int).decode)
    _require_supported(key_type)
    encode = msgspec.json.Encoder(order="sorted").encode
    return Codec(name, encode, msgspec.json.Decoder(key_type).decode)


def _decimal(number: int) -> bytes:
    # Not "%d", which cuts off a fraction, and not JSON, which takes a text for what it is: both would put records
    # under a key that nobody meant. This refuses everything but an int.
    return int.__repr__(number).encode()


def _require_supported(value_type: Any) -> None:
    """Find out now, not at the first record, that a type or a part of it has no encoding."""
    try:
        custom = _first_custom(inspect.type_info(value_type), set())
        reason = (
            f'a value of type "{type_name(custom)}" has no fields that could be written' if custom else ""
        )
    except (TypeError, NameError) as error:
        reason = str(error)
    if isinstance(value_type, str):
        reason = "a type is wanted, and this is a text: write the type itself, without quotes"
    if reason:
        raise InvalidPipeline(
            f'type "{type_name(value_type)}" cannot be written to bytes',
            detail=reason,
            hint="use a msgspec.Struct, a dataclass, a TypedDict, or builtins such as list[int] and dict",
        )


def _first_custom(node: Any, seen: set[int]) -> Any:
    """The first type in this tree of types that msgspec has no encoding for; None if there is none."""
    if id(node) in seen:  # types may contain themselves
        return None
    seen.add(id(node))
    if isinstance(node, inspect.CustomType):
        return node.cls
    if isinstance(node, tuple):
        parts = node
    elif isinstance(node, inspect.Type | inspect.Field):
        parts = tuple(getattr(node, name) for name in node.__struct_fields__)
    else:
        return None
    found = (_first_custom(part, seen) for part in parts)
    return next((each for each in found if each is not None), None)
