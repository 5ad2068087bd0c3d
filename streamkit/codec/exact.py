"""Exact classes: a cheap look at a value before it is written, so that one of another type is noticed where it comes from.

An encoder writes what it is given, whatever the declared type; only a reader would notice. To compare the class costs a
few nanoseconds. Where it is another one, the bytes are read back: what comes back is of the type, whatever it was. What is
inside a value of the right class is not looked at on its way to a topic, but for floats (`codec/floats.py`); state is read
back whole, except where the class says all (`state/values.py`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, get_origin

import msgspec
from msgspec import inspect

from streamkit.codec.codec import DECODE_ERRORS, ENCODE_ERRORS, Codec
from streamkit.codec.naming import without_none

# Classes without parts: a value of one is what its type says, if the type says no more than the class.
_WITHOUT_PARTS = (bool, int, float, str, bytes)
_PLAIN = (*_WITHOUT_PARTS, list, tuple, set, frozenset)


def exact_class(value_type: Any) -> type | None:
    """The class that values of a type have, if there is one that tells; None where only a codec could."""
    inner, _ = without_none(value_type)
    found = get_origin(inner) or inner
    if not isinstance(found, type):
        return None
    is_record = issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found)
    return found if is_record or found in _PLAIN else None


def plain_class(value_type: Any) -> type | None:
    """The class whose values are of a type for sure; None where one has parts, or bounds, that could be wrong."""
    inner, _ = without_none(value_type)
    if inner not in _WITHOUT_PARTS:
        return None
    is_bare = inspect.type_info(value_type) in (inspect.type_info(inner), inspect.type_info(inner | None))
    return inner if is_bare else None


def checking(codec: Codec, refuse: Callable[[Any, Exception], Exception]) -> Callable[[Any], None]:
    """A look at a value of another class: what can be read back is of the declared type, the rest is refused."""

    def check(value: Any) -> None:
        if value is None and codec.nullable:
            return
        try:
            codec.decode(codec.encode(value))
        except (*ENCODE_ERRORS, *DECODE_ERRORS) as error:
            raise refuse(value, error) from error

    return check
