"""Names for types that are the same in every process, every Python version and every spelling."""

import difflib
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

_UNIONS = (Union, types.UnionType)
# What is longer is not shown in an error.
SHOWN_MAX = 80


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


def is_union(annotation: Any) -> bool:
    """Whether it is `X | Y` or `Union[X, Y]`."""
    return get_origin(annotation) in _UNIONS


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


def given_as(thing: Any) -> str:
    """What somebody has given, for an error about it: `the str 'card'`, `the class Op`, `the function by_card`, `None`."""
    if thing is None:
        return "None"
    if isinstance(thing, type):
        return f"the class {type_name(thing)}"
    if isinstance(thing, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "a lambda" if thing.__name__ == "<lambda>" else f"the function {thing.__name__}"
    if is_type(thing):
        return f"the type {type_name(thing)}"
    shown, kind = repr(thing), type_name(type(thing))
    if len(shown) > SHOWN_MAX:
        return one(type(thing))
    return shown if kind in shown else f"the {kind} {shown}"


def one(kind: Any) -> str:
    """The name of a type with its article: `an int`, `a Payment`, `None`."""
    name = type_name(kind)
    return name if name == "None" else f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"


def is_type(thing: Any) -> bool:
    """Whether this can stand where a type is wanted: a class, `list[int]`, `str | None`, `Any`, a NewType."""
    return isinstance(thing, type | types.GenericAlias | types.UnionType | TypeVar | typing.NewType) or type(
        thing
    ).__module__ in ("typing", "typing_extensions")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint for a name that does not exist: the one among `names` that is most like it; "" if none is."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]}?" if near else ""
