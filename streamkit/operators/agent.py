"""Agents: functions that handle one record per call, compiled to the same step as an operator class.

State is declared as the default of a parameter, which is also its documentation and, in a unit test, the place
where a stand-in is given:

    async def dedup(click: Click, ctx: Context[str, Click], seen: ValueState[bool] = value(bool, False)) -> None:

An agent has no local variables that live longer than a call, so its state can be kept, moved and replayed.
"""

import dis
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from streamkit.codec.naming import given_as
from streamkit.errors import Bug, InvalidPipeline, UserCodeError
from streamkit.operators.process import Context, Handler, Handlers, Timer
from streamkit.state.holder import written_as
from streamkit.state.views import Declaration


class AgentProcessor(msgspec.Struct, frozen=True):
    """An agent function as a Processor."""

    # Any, for the type checker would take a function in a class for a method.
    function: Any

    def declarations(self) -> Mapping[str, Declaration]:
        """The parameters whose default is a declaration of state."""
        parameters = inspect.signature(self.function).parameters.values()
        return {each.name: each.default for each in parameters if isinstance(each.default, Declaration)}

    @property
    def has_timers(self) -> bool:
        """A function has no second entrance for timers."""
        return False

    @property
    def sides(self) -> tuple[()]:
        """A function has no results that a second stream could begin at."""
        return ()

    @property
    def keyless(self) -> str:
        """As `Processor.keyless`."""
        return "the topic holds records with a null key: let the agent have a key, @pipeline.agent(topic, key=...)"

    def start(self, views: Mapping[str, Any], ctx: Context[Any, Any]) -> Handlers:  # noqa: ARG002
        """A copy of the function whose defaults are the views of one task: state costs nothing to hand over."""
        own: Any = _with_defaults(self.function, views)
        handle = _without_suspension(own) if inspect.iscoroutinefunction(own) else own
        return Handlers(handle, _no_timer)


def agent_processor(function: Callable[..., Any]) -> AgentProcessor:
    """Check that a function can be an agent.

    Raises:
        InvalidPipeline: it is no function, yields, or has parameters that nobody would fill.
    """
    if not isinstance(function, types.FunctionType):
        raise InvalidPipeline(
            f"an agent is a function, got {given_as(function)}",
            hint="write def or async def with @pipeline.agent(...); for a class use process()",
        )
    where = f'agent "{function.__name__}"'
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidPipeline(
            "an agent does not yield",
            where=where,
            hint="send results with ctx.emit(value), as often as needed",
        )
    parameters = list(inspect.signature(function).parameters.values())
    unfilled = [each.name for each in parameters[2:] if not isinstance(each.default, Declaration)]
    if len(parameters) < 2 or unfilled:
        got = ", ".join(each.name for each in parameters)
        raise InvalidPipeline(
            f"an agent takes a value, a context and declared state, got ({got})",
            where=where,
            hint="write def agent(value, ctx, seen=value(bool, False))",
        )
    _require_unassigned(function, where)
    return AgentProcessor(function)


def _require_unassigned(function: types.FunctionType, where: str) -> None:
    """Refuse an assignment to a parameter that holds state: it would be a local variable, gone after the call."""
    states = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    for name in _assigned(function):
        state = states.get(name)
        if isinstance(state, Declaration):
            raise InvalidPipeline(
                f'"{name}" is state: write {written_as(state, name)}',
                where=where,
                hint="an assignment makes a variable that is forgotten after the record; state is changed by its methods",
            )


def _assigned(function: types.FunctionType) -> Iterator[str]:
    """The local variables that a function gives a value to."""
    for each in dis.get_instructions(function):
        if each.opname.startswith(("STORE_FAST", "STORE_DEREF")):
            # Newer Pythons join two instructions: the first stores, the second may only load.
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            yield from names[:1] if each.opname.endswith("_LOAD_FAST") else names


def _no_timer(timer: Timer, ctx: Context[Any, Any]) -> None:  # noqa: ARG001
    raise Bug("a timer came due in an agent, which cannot set any")


def _with_defaults(function: types.FunctionType, views: Mapping[str, Any]) -> types.FunctionType:
    code = function.__code__
    own = types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    # Positional defaults belong to the last positional parameters; agents have none that is not a declaration.
    positional = code.co_varnames[2 : code.co_argcount]
    own.__defaults__ = tuple(views[name] for name in positional)
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    own.__kwdefaults__ = {name: views[name] for name in keyword_only}
    own.__qualname__, own.__module__ = function.__qualname__, function.__module__
    return own


def _without_suspension(function: Callable[[Any, Context[Any, Any]], Any]) -> Handler:
    """Drive a coroutine to its end in one go: inside a span nothing may wait."""

    def handle(value: Any, ctx: Context[Any, Any]) -> object:
        coroutine = function(value, ctx)
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return ended.value
        coroutine.close()
        raise UserCodeError(
            "an agent waited for something, and inside a span nothing may wait",
            where=f'agent "{getattr(function, "__name__", "")}"',
            hint="awaiting I/O inside an agent is not supported: fetch what it needs before, or keep it in state",
        )

    return handle
