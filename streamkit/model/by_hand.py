"""Values as a person wrote them, in a file or a variable, read into the fields of a struct; and what is wrong, in words.

The struct's annotations say what a field may be, bounds included (`msgspec.Meta`): no other list of them is kept.
"""

import difflib
import functools
import typing
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from streamkit.errors import Misconfigured

# A line of an error is read at a glance; what is longer was no number and no choice anyway.
SHOWN_MAX = 60

_Numbers = inspect.IntType | inspect.FloatType


class Written(NamedTuple):
    """A value, the name that the person gave it, and the file that it stands in."""

    name: str
    value: object
    where: str = ""


def read_value(struct: type[msgspec.Struct], field: str, written: Written, *, is_text: bool = True) -> Any:
    """The value as the field wants it. With `is_text` numbers and truths may be written as text, as in a variable.

    Raises:
        Misconfigured: it cannot be such a value, or is out of bounds.
    """
    try:
        return msgspec.convert(written.value, _annotations(struct)[field], strict=not is_text)
    except msgspec.ValidationError:
        wanted = wanted_of(struct, field)
        raise Misconfigured(
            f"{written.name} is {shown(written.value)}; it must be {wanted}",
            where=written.where,
            hint=_near_choice(struct, field, written.value),
        ) from None


def require_bounds(struct: msgspec.Struct) -> None:
    """Refuse numbers out of bounds, however the struct was made; NaN is outside of all.

    Raises:
        Misconfigured: one is.
    """
    for field, numbers in _numbers(type(struct)).items():
        value = getattr(struct, field)
        if isinstance(value, int | float) and not (_least(numbers) <= value <= _most(numbers)):
            raise Misconfigured(f"{field} is {value}; it must be {wanted_of(type(struct), field)}")


def unknown(what: str, name: str, known: Iterable[str], *, where: str = "") -> Misconfigured:
    """The error for a name that means nothing, with the known one that was probably meant, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"leave it out; there are: {', '.join(names)}"
    return Misconfigured(f"{name} is not a {what}", where=where, hint=hint)


def wanted_of(struct: type[msgspec.Struct], field: str) -> str:
    """What a value of this field must be, in words."""
    wanted = _wanted(struct, field)
    match wanted:
        case inspect.LiteralType(values=choices):
            *others, last = (f'"{each}"' for each in choices)
            return f"{', '.join(others)} or {last}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return f"{_kind(field, wanted)} between {_plain(_least(wanted))} and {_plain(_most(wanted))}"
        case inspect.StrType():
            return "text"
        case _:
            return "a table"


def shown(value: object) -> str:
    """A value as it was written, near enough."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


@functools.cache
def _annotations(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(struct, include_extras=True)


@functools.cache
def _wanted(struct: type[msgspec.Struct], field: str) -> inspect.Type:
    """The type of a field; of one that may be left out, the other type."""
    found = inspect.type_info(_annotations(struct)[field])
    if isinstance(found, inspect.UnionType):
        return next(each for each in found.types if not isinstance(each, inspect.NoneType))
    return found


@functools.cache
def _numbers(struct: type[msgspec.Struct]) -> dict[str, _Numbers]:
    fields = {field: _wanted(struct, field) for field in struct.__struct_fields__}
    return {field: each for field, each in fields.items() if isinstance(each, _Numbers)}


def _least(numbers: _Numbers) -> float:
    return -float("inf") if numbers.ge is None else numbers.ge


def _most(numbers: _Numbers) -> float:
    return float("inf") if numbers.le is None else numbers.le


def _kind(field: str, numbers: _Numbers) -> str:
    if field.endswith("_s"):
        return "a number of seconds"
    whole = "a whole number" if isinstance(numbers, inspect.IntType) else "a number"
    return f"{whole} of bytes" if "bytes" in field.split("_") else whole


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _near_choice(struct: type[msgspec.Struct], field: str, value: object) -> str:
    wanted = _wanted(struct, field)
    if not isinstance(wanted, inspect.LiteralType):
        return ""
    near = difflib.get_close_matches(str(value), [str(each) for each in wanted.values], n=1)
    return f"did you mean {near[0]}?" if near else ""
