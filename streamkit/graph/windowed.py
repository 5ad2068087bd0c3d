"""Windowed: a keyed stream whose records are put together in windows, waiting to be told what to make of each.

Every method adds one window step, and gives a keyed stream of its results. They go on with the last millisecond of
their window as timestamp.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from streamkit.codec.annotations import returned_type
from streamkit.codec.naming import call_name
from streamkit.errors import InvalidPipeline

# Keyed makes a Windowed and a Windowed makes a Keyed: the two modules know each other, by their names only.
from streamkit.graph import stream
from streamkit.graph.builder import Builder
from streamkit.graph.node import Node
from streamkit.model.topic import Topic
from streamkit.operators.aggregators import Aggregator, count, max_of, min_of, sum_of
from streamkit.windows.assigners import Session
from streamkit.windows.contents import Reducing, require_merge
from streamkit.windows.definition import Emit, Windowing, emitting
from streamkit.windows.late import LATE
from streamkit.windows.process import WindowProcess, emitted_type, require_process
from streamkit.windows.step import WindowStep
from streamkit.windows.window import Window

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")
M = TypeVar("M")

# What makes the records that go on of the results R of a fold: into(key, window, result), or a class with its own state.
Into = Callable[[K, Window, R], M] | WindowProcess[K, R, M]


class Windowed(Generic[K, T]):
    """Records of type `T` with keys of type `K`, in windows.

    In all methods `into` makes the record that goes on, `into(key, window, result)`; without it the result does. With
    emit="update" every record sends the new result of its windows on, instead of each window once it closes.
    """

    def __init__(
        self,
        builder: Builder,
        node: Node,
        origin: int,
        windows: Windowing,
        late: Topic[T] | None,
        name: str | None,
    ) -> None:
        self._builder = builder
        self._node = node
        self._origin = origin
        self._windows = windows
        self._late = late
        self._name = name
        self._is_used = False

    @overload
    def reduce(
        self, fn: Callable[[T, T], T], *, to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, T]": ...
    @overload
    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        into: Into[K, T, M],
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, M]": ...
    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        into: Any = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, Any]":
        """Combine the values of a window into one: `fn(so far, value)`, which must not change what it is given."""
        chosen = name or self._name or call_name(fn) or "reduce"
        value_type = self._builder.known_type(self._node, needed_by=chosen)
        return self.aggregate(Reducing(chosen, fn, value_type), into=into, to=to, name=name, emit=emit)

    @overload
    def aggregate(
        self,
        aggregator: Aggregator[T, Any, R],
        *,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, R]": ...
    @overload
    def aggregate(
        self,
        aggregator: Aggregator[T, Any, R],
        *,
        into: Into[K, R, M],
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, M]": ...
    def aggregate(
        self,
        aggregator: Aggregator[T, Any, Any],
        *,
        into: Any = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, Any]":
        """Fold the values of a window, as the aggregator says. For sessions it needs a method `merge`.

        `into` makes what goes on out of key, window and result; without it the result itself goes on. `to` is the
        type of what goes on, for where no annotation says it: of the result, or with `into` of what that returns.
        """
        process = into if isinstance(into, WindowProcess) else None
        made = into if process is None else None
        step = WindowStep(
            name=name or self._name or aggregator.name,
            windows=emitting(self._windows, emit),
            fold=aggregator,
            into=made,
            process=process,
            key_type=self._node.key_type,
            value_type=self._node.value_type,
        )
        if isinstance(self._windows.assigner, Session):
            require_merge(aggregator)
        if made is not None:
            found = returned_type(made)
        else:
            found = aggregator.result_type if process is None else emitted_type(process)
        return self._then(step, to or found, is_named=bool(name or self._name))

    @overload
    def count(
        self, *, to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, int]": ...
    @overload
    def count(
        self, *, into: Into[K, int, M], to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, M]": ...
    def count(
        self, *, into: Any = None, to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, Any]":
        """How many records the window has."""
        return self.aggregate(count(), into=into, to=to, name=name, emit=emit)

    @overload
    def sum(
        self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, R]": ...
    @overload
    def sum(
        self,
        fn: Callable[[T], R],
        *,
        into: Into[K, R, M],
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, M]": ...
    def sum(
        self,
        fn: Callable[[T], Any],
        *,
        into: Any = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, Any]":
        """The sum of `fn(value)` over the records of the window.

        `into` and `to` are those of `aggregate`; both may be left out, and both may be given.
        """
        fold = sum_of(fn, to=None if into else to)
        return self.aggregate(fold, into=into, to=to, name=name, emit=emit)

    @overload
    def min(
        self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, R]": ...
    @overload
    def min(
        self,
        fn: Callable[[T], R],
        *,
        into: Into[K, R, M],
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, M]": ...
    def min(
        self,
        fn: Callable[[T], Any],
        *,
        into: Any = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, Any]":
        """The smallest `fn(value)` over the records of the window.

        `into` and `to` are those of `aggregate`; both may be left out, and both may be given.
        """
        fold = min_of(fn, to=None if into else to)
        return self.aggregate(fold, into=into, to=to, name=name, emit=emit)

    @overload
    def max(
        self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None, emit: Emit = "close"
    ) -> "stream.Keyed[K, R]": ...
    @overload
    def max(
        self,
        fn: Callable[[T], R],
        *,
        into: Into[K, R, M],
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, M]": ...
    def max(
        self,
        fn: Callable[[T], Any],
        *,
        into: Any = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, Any]":
        """The largest `fn(value)` over the records of the window.

        `into` and `to` are those of `aggregate`; both may be left out, and both may be given.
        """
        fold = max_of(fn, to=None if into else to)
        return self.aggregate(fold, into=into, to=to, name=name, emit=emit)

    def process(
        self,
        process: WindowProcess[K, T, R],
        *,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "stream.Keyed[K, R]":
        """Hand all elements of a window to a class with its own state; they are kept until the window closes."""
        step = WindowStep(
            name=name or self._name or type(process).__name__,
            windows=emitting(self._windows, emit),
            process=process,
            key_type=self._node.key_type,
            value_type=self._node.value_type,
        )
        return self._then(step, to or emitted_type(process), is_named=bool(name or self._name))

    def _then(self, step: WindowStep, value_type: Any, *, is_named: bool) -> "stream.Keyed[K, Any]":
        builder, parent = self._builder, self._node
        if step.keeps_elements or not step.windows.is_default:  # a trigger may remember a record
            builder.known_type(parent, needed_by=step.name)
        if step.process is not None:
            require_process(step.process, step.windows.assigner)
        node = builder.operate(parent, step, value_type=value_type, is_named=is_named)
        if self._late is not None:
            self._require_first_use()
            late = builder.side(node, LATE, value_type=parent.value_type)
            builder.write(late, self._late, is_late=True)
        return stream.Keyed(builder, node, self._origin)

    def _require_first_use(self) -> None:
        if self._is_used:
            raise InvalidPipeline(
                "two results of the same windows would write each late record twice",
                hint="call window(...) once for each result, and give late= to one of them",
            )
        self._is_used = True
