"""Steps are plain calls. What would only make a coroutine, which nobody awaits, is refused when it is written."""

import inspect
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import msgspec

from streamkit.codec.naming import call_name
from streamkit.errors import InvalidPipeline
from streamkit.operators.agent import AgentProcessor
from streamkit.operators.aggregators import Aggregator
from streamkit.operators.process import Operator
from streamkit.windows.evictors import Evictor
from streamkit.windows.process import WindowProcess
from streamkit.windows.triggers import Trigger

# What a user writes as a class; all its methods are called as plain functions.
_CLASSES = (Operator, Aggregator, WindowProcess, Trigger, Evictor)


def require_plain(part: Any, *, of: str) -> None:
    """Refuse `async def` in a step or in a function that a step is given; `of` says whose it is.

    Raises:
        InvalidPipeline: it is there.
    """
    for function in _functions(part):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            name = f'"{call_name(function) or "a function"}"'
            what = "is an async def" if of.endswith(name) else f"is given {name}, an async def"
            raise InvalidPipeline(
                f"{of} {what}, and a step cannot wait",
                detail="calling it would make a coroutine that nobody awaits, and no result",
                hint="write def without async; for calls to other services write to a topic, and let a program that "
                "reads it make them",
            )


def _functions(part: Any) -> Iterator[Any]:
    """All functions of the user's in a step, however deep."""
    if isinstance(part, AgentProcessor):
        return  # an agent may be an async def, and is run as one
    if isinstance(part, partial):
        part = part.func
    if isinstance(part, FunctionType | MethodType):
        yield part
    elif isinstance(part, msgspec.Struct):
        for field in part.__struct_fields__:
            yield from _functions(getattr(part, field))
    elif isinstance(part, _CLASSES):
        yield from (each for each in vars(part).values() if isinstance(each, FunctionType))
        yield from (
            each for _, each in inspect.getmembers_static(type(part)) if isinstance(each, FunctionType)
        )
    elif callable(part) and not isinstance(part, type):
        yield type(part).__call__
