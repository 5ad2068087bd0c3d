"""What functions and classes say about their types. Types choose codecs, so a pipeline reads them when it is built.

None means "it does not say": a lambda, a builtin, a function without annotations. `type(None)` is the type of None.
"""

import dataclasses
import dis
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_args, get_origin

import msgspec


def returned_type(function: Callable[..., Any]) -> Any:
    """The type that a function says it returns; None if it does not say. A class returns itself."""
    if isinstance(function, type):
        return None if function is type else function
    function = getattr(function, "func", function)  # functools.partial says what its function says
    if not isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        function = type(function).__call__
    try:
        found = typing.get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):
        # The annotation names something that exists only for the type checker, or in the scope of another function.
        return None
    return None if found is Any or is_open(found) else found


def field_type(function: Callable[..., Any], value_type: Any) -> Any:
    """The type of the field that a function without annotations returns, `lambda order: order.customer.id`.

    Read off its instructions: nothing is called. None if it does anything else, or the class does not say.
    """
    found = value_type if (path := _fields_named(function)) else None
    for field in path:
        try:
            found = typing.get_type_hints(found, include_extras=True).get(field)
        except (NameError, TypeError, AttributeError):
            return None
    return found


def missing_field(function: Callable[..., Any], value_type: Any) -> tuple[type, str] | None:
    """The class and the name, where a function without annotations asks for a field that its values do not have.

    None if it does not, or if only the values can tell: they may have attributes that no class declares.
    """
    found = value_type
    for field in _fields_named(function):
        if not _is_record(found):
            return None
        try:
            hints = typing.get_type_hints(found, include_extras=True)
        except (NameError, TypeError, AttributeError):
            return None
        if field not in hints:
            kinds = (found, *found.__subclasses__())
            may_have = any(hasattr(each, field) or hasattr(each, "__getattr__") for each in kinds)
            return None if may_have else (found, field)
        found = hints[field]
    return None


def fields_of(kind: type) -> list[str]:
    """The names of the fields of a record, in the order of writing."""
    if issubclass(kind, msgspec.Struct):
        return [each.name for each in msgspec.structs.fields(kind)]
    return [each.name for each in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def parameter_type(function: Callable[..., Any]) -> Any:
    """The type that a function says its first parameter has; None if it does not say."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        first = next(iter(inspect.signature(function).parameters), None)
    except (NameError, TypeError, AttributeError, ValueError):
        return None
    found = None if first is None else hints.get(first)
    return None if found is Any or is_open(found) else found


def _is_record(kind: Any) -> bool:
    is_class = isinstance(kind, type)
    return is_class and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind))


def _fields_named(function: Callable[..., Any]) -> list[str]:
    """`["customer", "id"]` of `lambda order: order.customer.id`; empty for everything else."""
    if not isinstance(function, types.FunctionType):
        return []
    first, *fields, last = [each for each in dis.get_instructions(function) if each.opname != "RESUME"]
    begins = first.opname.startswith("LOAD_FAST") and function.__code__.co_varnames[:1] == (first.argval,)
    is_path = begins and last.opname == "RETURN_VALUE" and all(each.opname == "LOAD_ATTR" for each in fields)
    return [each.argval for each in fields] if is_path else []


def item_type(collection: Any) -> Any:
    """X of `Iterable[X]`, `list[X]`, `Iterator[X]`, `tuple[X, ...]`; None if it does not say."""
    origin, args = get_origin(collection), get_args(collection)
    if origin is None or not args or not (isinstance(origin, type) and issubclass(origin, Iterable)):
        return None
    if origin is tuple and len(args) > 1 and args[1:] != (Ellipsis,):
        return args[0] if all(each == args[0] for each in args) else typing.Union[args]  # noqa: UP007
    return args[0]


def class_arguments(cls: type, generic: type) -> tuple[Any, ...]:
    """The arguments that `cls` gives to its generic ancestor: `(Order, Totals, float)`; empty if it gives none.

    One that is left open further down has a TypeVar in it; see `is_open`.
    """
    for declared in getattr(cls, "__orig_bases__", ()):
        origin, args = get_origin(declared), get_args(declared)
        if origin is generic:
            return args
        if isinstance(origin, type) and issubclass(origin, generic):
            filled = dict(zip(_parameters(origin), args, strict=False))
            return tuple(_filled(each, filled) for each in class_arguments(origin, generic))
    for parent in cls.__bases__:
        if parent is not generic and issubclass(parent, generic):
            return class_arguments(parent, generic)
    return ()


def is_open(annotation: Any) -> bool:
    """Whether a TypeVar is in it, so that only a call or a subclass would tell the type."""
    if isinstance(annotation, TypeVar):
        return True
    return any(is_open(each) for each in get_args(annotation) if not isinstance(each, str))


def _parameters(cls: Any) -> tuple[TypeVar, ...]:
    parameters: tuple[TypeVar, ...] = getattr(cls, "__parameters__", ())
    return parameters


def _filled(annotation: Any, known: dict[TypeVar, Any]) -> Any:
    """The annotation with its TypeVars replaced."""
    if isinstance(annotation, TypeVar):
        return known.get(annotation, annotation)
    parameters = _parameters(annotation)
    return annotation[tuple(known.get(each, each) for each in parameters)] if parameters else annotation
