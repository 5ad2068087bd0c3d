"""Stream, Keyed and Windowed: what a user writes a pipeline with. They add nodes to it; nothing runs here.

A function may be a def, a lambda or a class; its return annotation tells the type of its results, or `to=` does. A
step is named after its function unless `name=` says otherwise. The three are in one file because each gives the others;
what a stream gives of itself, with a key or without, is in `graph/any_stream.py`.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar, Unpack, overload

from streamkit.codec.annotations import returned_type
from streamkit.codec.naming import call_name
from streamkit.graph import steps
from streamkit.graph.any_stream import AnyStream
from streamkit.graph.builder import Builder
from streamkit.graph.functions import require_aggregator, require_operator
from streamkit.graph.node import Node
from streamkit.graph.windowed import How, Into, WindowSteps
from streamkit.model.topic import Topic
from streamkit.operators.aggregators import Aggregator, count, max_of, min_of, sum_of
from streamkit.operators.keyed import Aggregate, Reduce, Updates
from streamkit.operators.process import Operator, ProcessStep, emitted_type, operator_processor
from streamkit.operators.side import Side
from streamkit.operators.stateless import MapKeyed
from streamkit.windows.assigners import Assigner
from streamkit.windows.definition import Emit, windowing
from streamkit.windows.evictors import Evictor
from streamkit.windows.process import WindowProcess
from streamkit.windows.triggers import Trigger

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
M = TypeVar("M")
K2 = TypeVar("K2")


class Stream(AnyStream[T]):
    """Records with values of type `T`, in no particular place: what needs a key must call `key_by` first."""

    def map(self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None) -> "Stream[R]":
        """Replace every value by `fn(value)`."""
        return Stream(self._builder, steps.add_map(self._builder, self._node, fn, to, name))

    def flat_map(
        self, fn: Callable[[T], Iterable[R]], *, to: Any = None, name: str | None = None
    ) -> "Stream[R]":
        """Replace every value by the values of `fn(value)`; `to` is the type of one of them."""
        return Stream(self._builder, steps.add_flat_map(self._builder, self._node, fn, to, name))

    def key_by(
        self,
        fn: Callable[[T], K],
        *,
        key_type: Any = None,
        name: str | None = None,
        partitions: int | None = None,
    ) -> "Keyed[K, T]":
        """Bring the records of one key together: a shuffle. From here on the pipeline runs in another stage.

        The type of the keys is `key_type`, or what `fn` says it returns, or that of the field which a lambda names,
        else `str`. `partitions` is how many tasks share the keys; by default as many as there are upstream.
        """
        node = self._builder.shuffle(self._node, fn, key_type=key_type, name=name, partitions=partitions)
        return Keyed(self._builder, node, node.id)

    def window_all(
        self,
        windows: Assigner,
        *,
        lateness: timedelta | None = None,
        trigger: Trigger[T] | None = None,
        evictor: Evictor[T] | None = None,
        late: Topic[T] | None = None,
        name: str | None = None,
    ) -> "Windowed[str, T]":
        """Put all records together in windows, whatever their key: a shuffle to one task, as `Keyed.window`."""
        shuffle = "window_all" if name is None else f"{name}_all"
        everyone = self.key_by(lambda _: "all", key_type=str, name=shuffle, partitions=1)
        return everyone.window(
            windows, lateness=lateness, trigger=trigger, evictor=evictor, late=late, name=name
        )

    def union(self, *others: "Stream[T] | Keyed[Any, T]") -> "Stream[T]":
        """All records of several streams, in no particular order between them, without a key to count on."""
        return Stream(self._builder, steps.add_union(self._builder, self, others))


class Keyed(AnyStream[T], Generic[K, T]):
    """Records with values of type `T`, each in the task that owns its key of type `K`. Every step keeps the key."""

    def __init__(self, builder: Builder, node: Node, origin: int) -> None:
        super().__init__(builder, node)
        # The shuffle or source by which the records were placed: two streams share owners only if they share this.
        self._origin = origin

    def map(self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None) -> "Keyed[K, R]":
        """Replace every value by `fn(value)`."""
        return self._then(steps.add_map(self._builder, self._node, fn, to, name))

    def map_keyed(self, fn: Callable[[K, T], R], *, to: Any = None, name: str | None = None) -> "Keyed[K, R]":
        """Replace every value by `fn(key, value)`."""
        step = MapKeyed(name or call_name(fn) or "map_keyed", fn, self._node.key_type)
        return self._then(steps.add(self._builder, self._node, step, to or returned_type(fn), name))

    def flat_map(
        self, fn: Callable[[T], Iterable[R]], *, to: Any = None, name: str | None = None
    ) -> "Keyed[K, R]":
        """Replace every value by the values of `fn(value)`; `to` is the type of one of them."""
        return self._then(steps.add_flat_map(self._builder, self._node, fn, to, name))

    def process(self, operator: Operator[K, T, R], *, name: str | None = None) -> "Keyed[K, R]":
        """Hand every record to an operator class with its own state; a pipeline may end here."""
        require_operator(operator)
        step = ProcessStep(name or type(operator).__name__, operator_processor(operator), self._node.key_type)
        return self._then(steps.add(self._builder, self._node, step, emitted_type(operator), name))

    def side(self, side: Side[S]) -> "Keyed[K, S]":
        """What the operator before sends out by a side output with `ctx.emit_to`; it has this output in `sides`."""
        return self._then(steps.add_side(self._builder, self._node, side))

    def reduce(
        self, fn: Callable[[T, T], T], *, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, T]":
        """Combine the values of a key into one: `fn(so far, value)`. The result so far is state.

        With updates="latest" a key sends on only its last result of each span: fewer records, the same last one.
        """
        chosen = name or call_name(fn) or "reduce"
        value_type = self._builder.known_type(self._node, needed_by=chosen)
        step = Reduce(chosen, fn, value_type, steps.chosen_updates(updates))
        return self._then(steps.add(self._builder, self._node, step, value_type, name))

    def aggregate(
        self, aggregator: Aggregator[T, Any, R], *, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, R]":
        """Fold the values of a key, as the aggregator says. The accumulator is state; `updates` as in `reduce`."""
        require_aggregator(aggregator)
        step = Aggregate(name or aggregator.name, aggregator, steps.chosen_updates(updates))
        return self._then(steps.add(self._builder, self._node, step, aggregator.result_type, name))

    def count(self, *, name: str | None = None, updates: Updates = "each") -> "Keyed[K, int]":
        """How many records the key has had."""
        return self.aggregate(count(), name=name, updates=updates)

    def sum(
        self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, R]":
        """The sum of `fn(value)` over the records of the key."""
        return self.aggregate(sum_of(fn, to=to), name=name, updates=updates)

    def min(
        self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, R]":
        """The smallest `fn(value)` over the records of the key."""
        return self.aggregate(min_of(fn, to=to), name=name, updates=updates)

    def max(
        self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, R]":
        """The largest `fn(value)` over the records of the key."""
        return self.aggregate(max_of(fn, to=to), name=name, updates=updates)

    def window(
        self,
        windows: Assigner,
        *,
        lateness: timedelta | None = None,
        trigger: Trigger[T] | None = None,
        evictor: Evictor[T] | None = None,
        late: Topic[T] | None = None,
        name: str | None = None,
    ) -> "Windowed[K, T]":
        """Put the records of a key together in windows: `tumbling(minutes(1))`, `session(seconds(30))` and others.

        Windows stay open for `lateness` of event time after their end, and send their result on again for each record
        that comes then. Records that come later still are counted, or written to the topic `late` as they are.
        `trigger` says when results are sent on, `evictor` which elements are thrown away before.
        """
        chosen = windowing(
            windows, lateness=lateness, trigger=trigger, evictor=evictor, sends_late=late is not None
        )
        return Windowed(WindowSteps(self._builder, self._node, chosen, late, name), self._origin)

    def key_by(
        self,
        fn: Callable[[T], K2],
        *,
        key_type: Any = None,
        name: str | None = None,
        partitions: int | None = None,
    ) -> "Keyed[K2, T]":
        """Bring the records together by another key: a shuffle, as `Stream.key_by`."""
        node = self._builder.shuffle(self._node, fn, key_type=key_type, name=name, partitions=partitions)
        return Keyed(self._builder, node, node.id)

    def union(self, *others: "Keyed[K, T]") -> "Keyed[K, T]":
        """All records of several branches of the same keyed stream.

        Branches of different shuffles have different owners for the same key, so uniting those raises: unite the
        streams before `key_by`, or give up the key with `unkeyed`.
        """
        steps.require_same_origin(self, others)
        return self._then(steps.add_union(self._builder, self, others))

    def unkeyed(self) -> Stream[T]:
        """The same records as a stream whose keys are not counted on; nothing moves."""
        return Stream(self._builder, self._node)

    def _then(self, node: Node) -> "Keyed[K, Any]":
        return Keyed(self._builder, node, self._origin)


class Windowed(Generic[K, T]):
    """Records of type `T` with keys of type `K`, in windows. Every method gives a keyed stream of one result of these.

    In all methods `into` makes the record that goes on, `into(key, window, result)`; without it the result does. With
    emit="update" every record sends the new result of its windows on, instead of each window once it closes. Results
    have the last millisecond of their window as timestamp.
    """

    def __init__(self, steps: WindowSteps, origin: int) -> None:
        self._steps = steps
        self._origin = origin

    @overload
    def reduce(self, fn: Callable[[T, T], T], **how: Unpack[How]) -> "Keyed[K, T]": ...
    @overload
    def reduce(
        self, fn: Callable[[T, T], T], *, into: Into[K, T, M], **how: Unpack[How]
    ) -> "Keyed[K, M]": ...
    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        into: Into[K, Any, Any] | None = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, Any]":
        """Combine the values of a window into one: `fn(so far, value)`, which must not change what it is given."""
        return self._fold(self._steps.reducing(fn, name), into, to, name, emit)

    @overload
    def aggregate(self, aggregator: Aggregator[T, Any, R], **how: Unpack[How]) -> "Keyed[K, R]": ...
    @overload
    def aggregate(
        self, aggregator: Aggregator[T, Any, R], *, into: Into[K, R, M], **how: Unpack[How]
    ) -> "Keyed[K, M]": ...
    def aggregate(
        self,
        aggregator: Aggregator[T, Any, Any],
        *,
        into: Into[K, Any, Any] | None = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, Any]":
        """Fold the values of a window, as the aggregator says. For sessions it needs a method `merge`.

        `into` makes what goes on out of key, window and result; without it the result itself goes on. `to` is the
        type of what goes on, for where no annotation says it: of the result, or with `into` of what that returns.
        """
        return self._fold(aggregator, into, to, name, emit)

    @overload
    def count(self, **how: Unpack[How]) -> "Keyed[K, int]": ...
    @overload
    def count(self, *, into: Into[K, int, M], **how: Unpack[How]) -> "Keyed[K, M]": ...
    def count(
        self,
        *,
        into: Into[K, Any, Any] | None = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, Any]":
        """How many records the window has."""
        return self._fold(count(), into, to, name, emit)

    @overload
    def sum(self, fn: Callable[[T], R], **how: Unpack[How]) -> "Keyed[K, R]": ...
    @overload
    def sum(self, fn: Callable[[T], R], *, into: Into[K, R, M], **how: Unpack[How]) -> "Keyed[K, M]": ...
    def sum(
        self,
        fn: Callable[[T], Any],
        *,
        into: Into[K, Any, Any] | None = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, Any]":
        """The sum of `fn(value)` over the records of the window.

        `into` and `to` are those of `aggregate`; both may be left out, and both may be given.
        """
        return self._fold(sum_of(fn, to=None if into else to), into, to, name, emit)

    @overload
    def min(self, fn: Callable[[T], R], **how: Unpack[How]) -> "Keyed[K, R]": ...
    @overload
    def min(self, fn: Callable[[T], R], *, into: Into[K, R, M], **how: Unpack[How]) -> "Keyed[K, M]": ...
    def min(
        self,
        fn: Callable[[T], Any],
        *,
        into: Into[K, Any, Any] | None = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, Any]":
        """The smallest `fn(value)` over the records of the window.

        `into` and `to` are those of `aggregate`; both may be left out, and both may be given.
        """
        return self._fold(min_of(fn, to=None if into else to), into, to, name, emit)

    @overload
    def max(self, fn: Callable[[T], R], **how: Unpack[How]) -> "Keyed[K, R]": ...
    @overload
    def max(self, fn: Callable[[T], R], *, into: Into[K, R, M], **how: Unpack[How]) -> "Keyed[K, M]": ...
    def max(
        self,
        fn: Callable[[T], Any],
        *,
        into: Into[K, Any, Any] | None = None,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, Any]":
        """The largest `fn(value)` over the records of the window.

        `into` and `to` are those of `aggregate`; both may be left out, and both may be given.
        """
        return self._fold(max_of(fn, to=None if into else to), into, to, name, emit)

    def process(
        self,
        process: WindowProcess[K, T, R],
        *,
        to: Any = None,
        name: str | None = None,
        emit: Emit = "close",
    ) -> "Keyed[K, R]":
        """Hand all elements of a window to a class with its own state; they are kept until the window closes."""
        return self._then(self._steps.process(process, to, name, emit))

    def _fold(
        self,
        fold: Aggregator[T, Any, Any],
        into: Into[K, Any, Any] | None,
        to: Any,
        name: str | None,
        emit: Emit,
    ) -> "Keyed[K, Any]":
        return self._then(self._steps.fold(fold, into, to, name, emit))

    def _then(self, node: Node) -> "Keyed[K, Any]":
        return Keyed(self._steps.builder, node, self._origin)


steps.explain_names(Stream, Keyed, Windowed)
