"""Side outputs: a second stream that an operator makes beside its results, with values of a type of its own.

ALERTS = side("alerts", Alert)

class Watch(Operator[str, Payment, Total]):
    sides = (ALERTS,)

    def on_record(self, value: Payment, ctx: Context[str, Total]) -> None:
        ctx.emit_to(ALERTS, Alert(ctx.key))

totals = payments.process(Watch())
alerts = totals.side(ALERTS)
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.operators.step import Ports, Push

S = TypeVar("S")


class Side(msgspec.Struct, Generic[S], frozen=True):
    """A side output with values of type `S`; its name is that of the port by which they leave the step."""

    name: str
    value_type: Any


def side(name: str, value: type[S]) -> Side[S]:
    """Declare a side output: its name, and the type of its values.

    An operator that has it in `sides` sends to it with `ctx.emit_to`, and `side` of its results gives the stream.
    """
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
    names = [*taken, *(each.name for each in sides)]
    for name in names[len(taken) :]:
        if names.count(name) > 1:
            raise InvalidPipeline(
                f'"{kind}" has more than one output "{name}"',
                detail=f"the outputs of every operator of this kind: {', '.join(taken)}",
                hint="give the side output another name",
            )
    return sides


def listeners(sides: tuple[Side[Any], ...], outputs: Ports) -> dict[Side[Any], Push]:
    """What takes the values of each side output."""
    return {each: outputs.get(each.name, _nobody) for each in sides}


def listener(listening: Mapping[Side[Any], Push], asked: Side[Any]) -> Push:
    """What takes the values of this side output.

    Raises:
        UserCodeError: it is not declared.
    """
    push = listening.get(asked)
    if push is None:
        name = getattr(asked, "name", asked)
        raise UserCodeError(
            f'side output "{name}" is not declared here',
            detail=f"declared: {', '.join(each.name for each in listening) or 'none'}",
            hint="put it into the attribute sides of the operator class, as sides = (ALERTS,); agents have no side outputs",
        )
    return push


def _nobody(key: bytes | None, value: Any, timestamp: int) -> None:
    """No stream begins at this side output."""
