"""Operators for full control: a class with its own state, called once per record.

    class Dedup(Operator[str, Click, Click]):
        seen = value(bool, False)

        def on_record(self, value: Click, ctx: Context[str, Click]) -> None:
            if not self.seen.get():
                self.seen.set(True)
                ctx.emit(value)

State belongs to the key of the record. Agents (`operators/agent.py`) run on the same step.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from streamkit.codec.annotations import class_arguments, is_open
from streamkit.operators.stateless import DecodedKeys, missing_key
from streamkit.operators.step import Push, Scope
from streamkit.state.spec import StoreSpec
from streamkit.state.views import CurrentKey, Declaration

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

# What a record is handed to: (value, context). Its state is bound already.
Handler = Callable[[Any, "Context[Any, Any]"], None]


class Context(Generic[K, R]):
    """What an operator knows about the record in its hands, and how it answers. One per task, used for every record.

    Valid during `on_record`; in `open` only `partition` is.
    """

    __slots__ = ("_current", "_following", "_keys", "partition", "timestamp")

    def __init__(self, partition: int, current: CurrentKey, keys: DecodedKeys, following: Push) -> None:
        self.partition = partition
        self.timestamp = 0
        self._current = current
        self._keys = keys
        self._following = following

    @property
    def key(self) -> K:
        """The key of the record.

        Raises:
            UserCodeError: the record has none.
        """
        key: K = self._keys[self._current.key]
        return key

    def emit(self, value: R, timestamp: int | None = None) -> None:
        """Send a value downstream, under the key of the record and, unless another is given, its timestamp (ms)."""
        self._following(self._current.key, value, self.timestamp if timestamp is None else timestamp)


class Operator(ABC, Generic[K, T, R]):
    """A step that users write as a class: keys `K`, values `T` in, values `R` out.

    State is declared as class attributes (`value(...)`, `map_of(...)`) and belongs to the current key. Every task works
    on a shallow copy of the operator that was given to `process()`; other attributes are for what never changes, since
    nothing but declared state survives a restart.
    """

    def open(self, ctx: Context[K, R]) -> None:
        """Called once per task before the first record, and again when a task starts over."""

    @abstractmethod
    def on_record(self, value: T, ctx: Context[K, R]) -> None:
        """Handle one record: read and write the state of its key, emit any number of results."""


class Processor(Protocol):
    """What a ProcessStep runs: an operator class or an agent, seen from the engine's side."""

    def declarations(self) -> Mapping[str, Declaration]:
        """The state it declares, by name."""
        ...

    def start(self, views: Mapping[str, Any], ctx: Context[Any, Any]) -> Handler:
        """A handler of its own for one task, working on these views."""
        ...


class OperatorProcessor(msgspec.Struct, frozen=True):
    """An operator instance as a Processor."""

    operator: Operator[Any, Any, Any]

    def declarations(self) -> Mapping[str, Declaration]:
        """Class attributes, inherited ones first, in the order of writing."""
        found: dict[str, Declaration] = {}
        for cls in reversed(type(self.operator).__mro__):
            found |= {name: each for name, each in vars(cls).items() if isinstance(each, Declaration)}
        return found

    def start(self, views: Mapping[str, Any], ctx: Context[Any, Any]) -> Handler:
        """As `Processor.start`."""
        own = copy.copy(self.operator)
        for name, view in views.items():
            setattr(own, name, view)
        own.open(ctx)
        return own.on_record


class ProcessStep(msgspec.Struct, frozen=True):
    """Hand every record to an operator or an agent, whose state is kept under `<step>.<attribute>`."""

    name: str
    processor: Processor
    key_type: Any = str
    has_effects: bool = True

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """One store per declaration."""
        return tuple(self._specs().values())

    def bind(self, following: Push, scope: Scope) -> Push:
        """As `Step.bind`."""
        current = CurrentKey()
        declared = self.processor.declarations()
        views = {
            name: declared[name].bind(
                scope.value_cells(spec) if spec.kind == "value" else scope.map_cells(spec), current
            )
            for name, spec in self._specs().items()
        }
        ctx: Context[Any, Any] = Context(
            scope.partition, current, DecodedKeys(self.key_type, self.name), following
        )
        handle = self.processor.start(views, ctx)
        # Without state a record needs no key, unless the user asks for it.
        is_keyed = bool(views)

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            if key is None and is_keyed:
                raise missing_key(step)
            current.key = key
            ctx.timestamp = timestamp
            handle(value, ctx)

        return push

    def _specs(self) -> dict[str, StoreSpec]:
        return {name: each.spec(self.name, name) for name, each in self.processor.declarations().items()}


def emitted_type(operator: Operator[Any, Any, Any]) -> Any:
    """The type of what an operator emits, as its class says: the R of `Operator[K, T, R]`; None if it does not say."""
    arguments = class_arguments(type(operator), Operator)
    return None if not arguments or is_open(arguments[2]) or arguments[2] is Any else arguments[2]
