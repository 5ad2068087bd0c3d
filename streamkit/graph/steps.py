"""The steps that Stream and Keyed add to a graph, with the names and types that their functions tell."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from streamkit.codec.annotations import item_type, returned_type
from streamkit.codec.naming import call_name, did_you_mean, given_as
from streamkit.errors import InvalidPipeline
from streamkit.graph.builder import Builder
from streamkit.graph.node import Node, Operation
from streamkit.operators.side import Side, require_side
from streamkit.operators.stateless import Filter, FlatMap, Map, Peek

# What other libraries have as a method, and how it is written here.
_ELSEWHERE = {
    "join": "a join is a union of two keyed streams of one type and a process() that keeps what has come of each",
    "to": "did you mean write?",
    "foreach": "did you mean peek?",
    "group_by": "did you mean key_by?",
}


def add_map(builder: Builder, parent: Node, fn: Callable[..., Any], to: Any, name: str | None) -> Operation:
    """Add a map."""
    step = Map(name or call_name(fn) or "map", fn)
    return add(builder, parent, step, to or returned_type(fn), name)


def add_filter(builder: Builder, parent: Node, fn: Callable[..., Any], name: str | None) -> Operation:
    """Add a filter."""
    step = Filter(name or call_name(fn) or "filter", fn)
    return add(builder, parent, step, parent.value_type, name)


def add_flat_map(
    builder: Builder, parent: Node, fn: Callable[..., Any], to: Any, name: str | None
) -> Operation:
    """Add a flat_map."""
    step = FlatMap(name or call_name(fn) or "flat_map", fn)
    return add(builder, parent, step, to or item_type(returned_type(fn)), name)


def add_peek(builder: Builder, parent: Node, fn: Callable[..., Any], name: str | None) -> Operation:
    """Add a peek."""
    step = Peek(name or call_name(fn) or "peek", fn)
    return add(builder, parent, step, parent.value_type, name)


def add_union(builder: Builder, first: Any, others: Iterable[Any]) -> Node:
    """Add a union of streams of one pipeline."""
    others = tuple(others)
    streams = (first, *others)
    for each in others:
        if not hasattr(each, "_builder"):
            raise InvalidPipeline(
                f"union() takes streams, got {given_as(each)}",
                hint="write first.union(second), where both are what read(), map() or filter() returned",
            )
    if any(each._builder is not builder for each in streams):  # noqa: SLF001 - one of us
        raise InvalidPipeline(
            "a union needs streams of the same pipeline",
            hint="let one pipeline write to a topic and the other read it",
        )
    return builder.union(tuple(each._node for each in streams))  # noqa: SLF001


def add_side(builder: Builder, parent: Node, side: Side[Any]) -> Node:
    """Begin a stream at a side output of the step that was added last."""
    if not isinstance(parent, Operation) or not hasattr(parent.step, "sides"):
        raise InvalidPipeline(
            f'what comes before has no side output "{getattr(side, "name", side)}"',
            hint="call side() on what process() returned, and name the side output in its class: sides = (ALERTS,)",
        )
    require_side(side, parent.step.sides)
    return builder.side(parent, side.name, value_type=side.value_type)


def add(builder: Builder, parent: Node, step: Any, value_type: Any, name: str | None) -> Operation:
    """Add a step; its name is fixed if the user has given one."""
    return builder.operate(parent, step, value_type=value_type, is_named=name is not None)


def chosen_updates(chosen: str) -> Any:
    """What `updates=` says, if it is one of the two."""
    if chosen not in ("each", "latest"):
        raise InvalidPipeline(
            f'updates is "each" or "latest", got {chosen!r}',
            hint='"each" sends every new result on, "latest" only the last of each key and span',
        )
    return chosen


def require_same_origin(first: Any, others: Iterable[Any]) -> None:
    """Refuse a union of keyed streams whose keys have different owners."""
    if any(each._origin != first._origin for each in others):  # noqa: SLF001 - one of us
        raise InvalidPipeline(
            "a union of keyed streams needs all of them to come from the same key_by",
            detail="the records of one key are in different tasks",
            hint="call union() before key_by(), or a.unkeyed().union(b) if the key no longer matters",
        )


def explain_names(stream: type, keyed: type, windowed: type) -> None:
    """Let streams say what to do when they are asked for what they do not have, or only a keyed one has."""
    public = (name for name in dir(keyed) if not name.startswith("_"))
    keyed_only = sorted(name for name in public if not hasattr(stream, name) and name != "unkeyed")

    def explain(asked: Any, name: str) -> NoReturn:
        if name in keyed_only:
            raise InvalidPipeline(
                f"{name} needs a key: call key_by first",
                hint=f"stream.key_by(lambda value: ...).{name}(...)",
            )
        raise _no_method(asked, name)

    def explain_name(asked: Any, name: str) -> NoReturn:
        raise _no_method(asked, name)

    # Set from outside the class: a __getattr__ inside it would make the type checker believe in every name.
    setattr(stream, "__getattr__", explain)  # noqa: B010 - a plain assignment is refused by the type checker
    setattr(keyed, "__getattr__", explain_name)  # noqa: B010
    setattr(windowed, "__getattr__", explain_name)  # noqa: B010


def _no_method(asked: Any, name: str) -> AttributeError:
    """For a name that no stream has; Python itself must take it for an attribute that is not there."""
    problem = f"{type(asked).__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(problem)
    public = [each for each in dir(type(asked)) if not each.startswith("_")]
    hint = _ELSEWHERE.get(name) or did_you_mean(name, public) or f"there are: {', '.join(public)}"
    return AttributeError(f"{problem}; {hint}")
