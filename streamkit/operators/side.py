"""Side outputs: a second stream that an operator makes beside its results, with values of a type of its own.

ALERTS = side("alerts", Alert)

class Watch(Operator[str, Payment, Total]):
    sides = (ALERTS,)

    def on_record(self, value: Payment, ctx: Context[str, Total]) -> None:
        ctx.emit_to(ALERTS, Alert(ctx.key))

totals = payments.process(Watch())
alerts = totals.side(ALERTS)
"""

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from streamkit.codec.naming import given_as, is_type, type_name
from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.operators.step import Ports, Push

S = TypeVar("S")

# It stands in plans and charts, beside those of steps.
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Side(msgspec.Struct, Generic[S], frozen=True):
    """A side output with values of type `S`; its name is that of the port by which they leave the step."""

    name: str
    value_type: Any


def side(name: str, value: type[S]) -> Side[S]:
    """Declare a side output: its name, and the type of its values.

    An operator that has it in `sides` sends to it with `ctx.emit_to`, and `side` of its results gives the stream.

    Raises:
        InvalidPipeline: the name is no name, or the type no type.
    """
    if isinstance(value, str) and is_type(name):
        raise InvalidPipeline(
            "the arguments of side() are swapped: the name comes first, then the type",
            hint=f'write sk.side("{value}", {type_name(name)})',
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidPipeline(
            f"a side output cannot be named {name!r}",
            hint='use letters, digits, ".", "-" and "_", for example sk.side("alerts", Alert)',
        )
    if not is_type(value):
        raise InvalidPipeline(
            f'side output "{name}" has values of a type, got {given_as(value)}',
            hint=f'write the type of its values: sk.side("{name}", Alert)',
        )
    return Side(name, value)


def declared_sides(owner: Any, taken: tuple[str, ...]) -> tuple[Side[Any], ...]:
    """What an operator has in `sides`; `taken` are the ports that its step has anyway.

    Raises:
        InvalidPipeline: something else is there, or two would leave by one port.
    """
    sides, kind = owner.sides, type(owner).__name__
    if not isinstance(sides, tuple) or not all(isinstance(each, Side) for each in sides):
        raise InvalidPipeline(
            f'"{kind}.sides" is a tuple of side outputs, got {sides!r}',
            hint="write sides = (ALERTS,) with the comma; an attribute for something else needs another name",
        )
    names = [each.name for each in sides]
    for name in names:
        if name in taken:
            raise InvalidPipeline(
                f'"{kind}" has more than one output "{name}"',
                detail=f"the outputs of every operator of this kind: {', '.join(taken)}",
                hint="give the side output another name",
            )
        if names.count(name) > 1:
            raise InvalidPipeline(
                f'two side outputs of "{kind}" are named "{name}"', hint="give one of them another name"
            )
    return sides


def listeners(sides: tuple[Side[Any], ...], outputs: Ports) -> dict[Side[Any], Push]:
    """What takes the values of each side output."""
    return {each: outputs.get(each.name, _nobody) for each in sides}


def listener(listening: Mapping[Side[Any], Push], asked: Side[Any], value: Any) -> Push:
    """What takes the values of this side output; `value` is the one that is sent, which may be in the wrong place.

    Raises:
        UserCodeError: it is not declared.
    """
    try:
        return listening[asked]
    except (KeyError, TypeError):  # TypeError: it has no hash, so it is no side output
        raise UserCodeError(**_wrong_side(asked, tuple(listening), value)) from None


def require_side(asked: Any, declared: tuple[Side[Any], ...]) -> None:
    """Refuse a stream of a side output that the operator before does not have.

    Raises:
        InvalidPipeline: it is not declared.
    """
    if not isinstance(asked, Side) or asked not in declared:
        raise InvalidPipeline(**_wrong_side(asked, declared))


def _wrong_side(asked: Any, declared: tuple[Side[Any], ...], value: Any = None) -> dict[str, str]:
    """What is said about something that is given as a side output and is none of those that are declared."""
    names = ", ".join(each.name for each in declared) or "none"
    if not isinstance(asked, Side):
        if isinstance(value, Side):
            return {
                "problem": "the arguments are swapped: the side output comes first, then the value",
                "hint": "write ctx.emit_to(ALERTS, value)",
            }
        return {
            "problem": f"a side output is a sk.side(...), got {given_as(asked)}",
            "detail": f"declared here: {names}",
            "hint": "give it the Side itself, not its name: what sk.side(...) returned",
        }
    twin = next((each for each in declared if each.name == asked.name), None)
    if twin is not None:
        return {
            "problem": f'a side of the name "{asked.name}" is declared with type {type_name(twin.value_type)};'
            f" this one has {type_name(asked.value_type)}",
            "hint": "make each side output once, and use that object in sides = (...), emit_to() and side()",
        }
    return {
        "problem": f'side output "{asked.name}" is not declared here',
        "detail": f"declared: {names}",
        "hint": "put it into the attribute sides of the operator class, as sides = (ALERTS,); agents have no side outputs",
    }


def _nobody(key: bytes | None, value: Any, timestamp: int) -> None:
    """No stream begins at this side output."""
