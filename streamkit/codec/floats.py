"""Floats in JSON: it has no form for nan and inf, and the encoder writes null, which no reader takes for a float.

What could hold such a null is read back, so a quick look says which values could not. Fields are multiplied by zero, which
gives zero unless one is no number (20 ns). Where there may be any number of floats, as in a list, the bytes are searched for a
null (55 to 80 ns), if they have an "l" at all.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import inspect

from streamkit.codec.codec import DECODE_ERRORS, Codec
from streamkit.codec.naming import without_none

find_null = re.compile(b"null").search
# Without this byte there is no null: a third of the time of a search (18 ns).
L_OF_NULL = ord("l")

_RECORDS = (inspect.StructType, inspect.DataclassType)


def float_fields(value_type: Any) -> list[str] | None:
    """Where values of a topic's type hold floats: ".price.amount", or "" for a float itself.

    None if fields cannot say it. Floats that may be None are left out: they are read back as that.
    """
    inner, _ = without_none(value_type)
    found = list(_fields(inspect.type_info(inner), "", ()))
    return None if None in found else [each for each in found if each is not None]


def reading_back(codec: Codec, refuse: Callable[[Any, Exception], Exception]) -> Callable[[Any, bytes], None]:
    """A look at the bytes of a value: what its own type cannot read is refused."""

    def read_back(value: Any, data: bytes) -> None:
        try:
            codec.decode(data)
        except DECODE_ERRORS as error:
            raise refuse(value, error) from error

    return read_back


def _fields(node: Any, path: str, above: tuple[Any, ...]) -> Iterator[str | None]:
    """The paths of floats below a record; None for those that have none."""
    if isinstance(node, inspect.FloatType):
        yield path
    elif isinstance(node, _RECORDS) and not any(node is each for each in above):
        for field in node.fields:
            yield from _fields(field.type, f"{path}.{field.name}", (*above, node))
    elif _holds_float(node, set()):
        yield None


def _holds_float(node: Any, seen: set[int]) -> bool:
    if id(node) in seen:  # types may contain themselves
        return False
    seen.add(id(node))
    if isinstance(node, inspect.FloatType):
        return True
    if isinstance(node, inspect.UnionType):
        takes_null = any(isinstance(each, inspect.NoneType) for each in node.types)
        parts = tuple(each for each in node.types if not (takes_null and isinstance(each, inspect.FloatType)))
    elif isinstance(node, tuple):
        parts = node
    elif isinstance(node, inspect.Type | inspect.Field):
        parts = tuple(getattr(node, name) for name in node.__struct_fields__)
    else:
        return False
    return any(_holds_float(part, seen) for part in parts)
