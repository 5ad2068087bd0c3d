"""What a step is given: functions that can be called as the step will call them, for values of the type that comes.

A mistake is raised where the step is written. What cannot be known for sure is let through: the records will tell.
"""

import inspect
from collections.abc import Callable
from typing import Any

from streamkit.codec.annotations import class_arguments, fields_of, is_open, missing_field, parameter_type
from streamkit.codec.naming import call_name, did_you_mean, given_as, type_name, without_none
from streamkit.errors import InvalidPipeline
from streamkit.graph.writable import may_be
from streamkit.operators.agent import AgentProcessor
from streamkit.operators.aggregators import Aggregator, Fold
from streamkit.operators.exchange import WriteStep
from streamkit.operators.keyed import Aggregate, Reduce
from streamkit.operators.process import Operator, OperatorProcessor, ProcessStep
from streamkit.operators.stateless import Filter, FlatMap, Map, MapKeyed, Peek
from streamkit.operators.step import Step
from streamkit.windows.contents import Reducing
from streamkit.windows.process import WindowProcess
from streamkit.windows.step import WindowStep

VALUE = ("value",)
KEY_AND_VALUE = ("key", "value")
PAIR = ("so_far", "value")
RESULT = ("key", "window", "result")
RECORD = ("value", "ctx")
# What the function of a step is called with, where that is more than a value.
_TAKES: dict[type, tuple[str, ...]] = {MapKeyed: KEY_AND_VALUE, Reduce: PAIR}


def require_functions(step: Step, value_type: Any) -> None:
    """Refuse a step whose functions cannot be called, or are for other values than those that come.

    Raises:
        InvalidPipeline: a function is none, takes other arguments, or values of another type.
    """
    match step:
        case Map() | Filter() | FlatMap() | Peek() | MapKeyed() | Reduce():
            arguments = _TAKES.get(type(step), VALUE)
            require_function(step.fn, arguments, of=f"{step.kind}()", value_type=value_type)
        case WriteStep() if step.key_fn is not None:
            require_function(step.key_fn, VALUE, of="write(key=...)", value_type=value_type)
        case Aggregate():
            _require_fold(step.aggregator, value_type)
        case WindowStep():
            _require_window(step, value_type)
        case ProcessStep(processor=OperatorProcessor() as processor):
            _require_operator(processor.operator, value_type)
        case ProcessStep(processor=AgentProcessor() as processor):
            name = f'agent "{call_name(processor.function)}"'
            _require_type(name, parameter_type(processor.function), value_type)
        case _:
            pass


def require_function(given: Any, arguments: tuple[str, ...], *, of: str, value_type: Any = None) -> None:
    """Refuse what cannot be called with so many arguments; `of` says who calls it, `value_type` what for.

    Raises:
        InvalidPipeline: it is no function, takes others, or asks for a field that the values do not have.
    """
    example = f"lambda {', '.join(arguments)}: ..."
    if not callable(given):
        if isinstance(given, str) and given.isidentifier() and arguments[-1] == "value":
            example = f"{example[:-3]}value.{given}"
        raise InvalidPipeline(
            f"{of} takes a function, got {given_as(given)}", hint=f"write {example} instead"
        )
    _require_arguments(given, arguments, what=given_as(given), of=of, hint=f"write {example} instead")
    if value_type is not None and arguments == VALUE:
        _require_fields(given, value_type, of=of)


def require_aggregator(given: Any) -> None:
    """Refuse what is no aggregator.

    Raises:
        InvalidPipeline: it is something else.
    """
    if not isinstance(given, Aggregator):
        raise InvalidPipeline(
            f"aggregate() takes an aggregator, got {given_as(given)}",
            hint=_instance_of(given, Aggregator, "aggregate")
            or "subclass sk.Aggregator and pass an instance; for a sum write sum(lambda value: ...)",
        )


def require_operator(given: Any) -> None:
    """Refuse what is no operator.

    Raises:
        InvalidPipeline: it is something else.
    """
    if isinstance(given, Operator):
        return
    hint = "subclass sk.Operator and pass an instance: process(Op()); a function with a context is a @pipeline.agent(...)"
    if isinstance(given, WindowProcess):
        hint = "a WindowProcess is for windows: call window(...) first"
    raise InvalidPipeline(
        f"process() takes an operator, got {given_as(given)}",
        hint=_instance_of(given, Operator, "process") or hint,
    )


def _instance_of(given: Any, wanted: type, call: str) -> str:
    is_class = isinstance(given, type) and issubclass(given, wanted)
    return f"write {call}({given.__name__}())" if is_class else ""


def _require_operator(operator: Operator[Any, Any, Any], value_type: Any) -> None:
    kind = type(operator).__name__
    _require_method(kind, operator.on_record, RECORD)
    _require_method(kind, operator.on_timer, ("timer", "ctx"))
    _require_method(kind, operator.open, ("ctx",))
    _require_type(f'operator "{kind}"', _argument(operator, Operator, 1), value_type)


def _require_window(step: WindowStep, value_type: Any) -> None:
    if step.fold is not None:
        _require_fold(step.fold, value_type)
        value_type = step.fold.result_type
    if step.into is not None:
        require_function(step.into, RESULT, of="into")
    if step.process is not None:
        kind = type(step.process).__name__
        _require_method(kind, step.process.process, ("key", "window", "elements", "ctx"))
        _require_method(kind, step.process.clear, ("ctx",))
        _require_type(f'window process "{kind}"', _argument(step.process, WindowProcess, 1), value_type)


def _require_fold(aggregator: Aggregator[Any, Any, Any], value_type: Any) -> None:
    if isinstance(aggregator, Fold):
        require_function(aggregator.fn, VALUE, of=f"{aggregator.name}()", value_type=value_type)
    elif isinstance(aggregator, Reducing):
        require_function(aggregator.fn, PAIR, of="reduce()")
    else:
        kind = type(aggregator).__name__
        _require_method(kind, aggregator.create, ())
        _require_method(kind, aggregator.add, ("accumulator", "value"))
        _require_method(kind, aggregator.result, ("accumulator",))
        _require_type(f'aggregator "{kind}"', _argument(aggregator, Aggregator, 0), value_type)


def _require_method(kind: str, method: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    name = getattr(method, "__name__", "")
    of = f'"{kind}.{name}"'
    if inspect.isgeneratorfunction(method):
        raise InvalidPipeline(
            f"{of} does not yield: what it yields would go nowhere",
            hint="send results with ctx.emit(value), as often as needed",
        )
    takes = ", ".join(("self", *arguments))
    _require_arguments(method, arguments, what="it", of=of, hint=f"write def {name}({takes})")


def _require_arguments(
    function: Callable[..., Any], arguments: tuple[str, ...], *, what: str, of: str, hint: str
) -> None:
    """Refuse a function that cannot be called with these; a class, or what does not say what it takes, is let through."""
    if isinstance(function, type):
        return
    try:
        # Not what a decorated function says: what stands around it is called.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        takes = ", ".join(str(each).partition(":")[0] for each in signature.parameters.values())
        called = f"is called with ({', '.join(arguments)})"
        raise InvalidPipeline(
            f"{of} {called}, and takes ({takes})"
            if what == "it"
            else f"the function of {of} {called}, and {what} takes ({takes})",
            hint=hint,
        ) from None


def _require_fields(function: Callable[..., Any], value_type: Any, *, of: str) -> None:
    found = missing_field(function, value_type)
    if found is None:
        return
    kind, field = found
    names = fields_of(kind)
    raise InvalidPipeline(
        f'{of} asks for the field "{field}", and {type_name(kind)} has none of this name',
        hint=did_you_mean(field, names) or f"its fields are {', '.join(names)}",
    )


def _require_type(who: str, wanted: Any, given: Any) -> None:
    if wanted is None or given is None or may_be(given, wanted):
        return
    raise InvalidPipeline(
        f"{who} takes values of type {type_name(wanted)}, the stream has {type_name(without_none(given)[0])}",
        hint="convert them with map() before, or declare it for the type that comes",
    )


def _argument(thing: object, generic: type, place: int) -> Any:
    """What a class says for one of the parameters of its generic ancestor; None if it does not say."""
    arguments = class_arguments(type(thing), generic)
    return None if not arguments or is_open(arguments[place]) else arguments[place]
