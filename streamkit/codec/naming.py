"""Names for types that are the same in every process, every Python version and every spelling."""

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_UNIONS = (Union, types.UnionType)


def type_name(annotation: Any) -> str:
    """How a type is written in plans, errors and fingerprints: `Click`, `list[int]`, `str | None`.

    Without the module: a class keeps its name when its file moves or is run as a script. Constraints (`Annotated`)
    are left out, and `None` comes last whatever the order in the source.
    """
    annotation = plain_type(annotation)
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is Ellipsis:
        return "..."
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in _UNIONS:
        members = [type_name(each) for each in args if each is not types.NoneType]
        return " | ".join([*members, "None"] if types.NoneType in args else members)
    if origin is Literal:
        return f"Literal[{', '.join(repr(each) for each in args)}]"
    name = getattr(origin or annotation, "__qualname__", None) or str(origin or annotation).removeprefix(
        "typing."
    )
    return f"{name}[{', '.join(type_name(each) for each in args)}]" if args else str(name)


def plain_type(annotation: Any) -> Any:
    """The type without `Annotated`, `NewType` and `type X = ...` around it."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # Python 3.12 and later
            annotation = annotation.__value__
        else:
            return annotation


def without_none(annotation: Any) -> tuple[Any, bool]:
    """The type without `| None`, and whether that was there."""
    annotation = plain_type(annotation)
    if get_origin(annotation) not in _UNIONS:
        return annotation, annotation is None or annotation is types.NoneType
    members = tuple(each for each in get_args(annotation) if each is not types.NoneType)
    # `typing.Union` of a tuple keeps the order and collapses a single member to itself.
    return typing.Union[members], len(members) < len(get_args(annotation))  # noqa: UP007


def call_name(function: Callable[..., Any]) -> str | None:
    """What a function is called in its source; None for a lambda and for what has no name of its own."""
    inner = getattr(function, "func", function)  # functools.partial is named after what it calls
    name: str | None = getattr(inner, "__name__", None)
    return None if name is None or name == "<lambda>" else name
