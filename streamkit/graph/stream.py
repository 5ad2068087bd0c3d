"""Stream and Keyed: what a user writes a pipeline with. They add nodes to it; nothing runs here.

A function may be a def, a lambda or a class; its return annotation tells the type of its results, or `to=` does. A
step is named after its function unless `name=` says otherwise.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, NoReturn, TypeVar

from streamkit.codec.annotations import item_type, returned_type
from streamkit.codec.naming import call_name
from streamkit.errors import InvalidPipeline
from streamkit.graph import windowed
from streamkit.graph.builder import Builder
from streamkit.graph.node import Node, Operation
from streamkit.model.topic import Topic
from streamkit.operators.aggregators import Aggregator, count, max_of, min_of, sum_of
from streamkit.operators.keyed import Aggregate, Reduce, Updates
from streamkit.operators.process import Operator, OperatorProcessor, ProcessStep, emitted_type
from streamkit.operators.stateless import Filter, FlatMap, Map, MapKeyed, Peek
from streamkit.windows.assigners import Assigner
from streamkit.windows.definition import windowing
from streamkit.windows.evictors import Evictor
from streamkit.windows.triggers import Trigger

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")
K2 = TypeVar("K2")


class Stream(Generic[T]):
    """Records with values of type `T`, in no particular place: what needs a key must call `key_by` first."""

    def __init__(self, builder: Builder, node: Node) -> None:
        self._builder = builder
        self._node = node

    def map(self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None) -> "Stream[R]":
        """Replace every value by `fn(value)`."""
        return Stream(self._builder, add_map(self._builder, self._node, fn, to, name))

    def filter(self, fn: Callable[[T], object], *, name: str | None = None) -> "Stream[T]":
        """Let through the values for which `fn(value)` is true."""
        return Stream(self._builder, add_filter(self._builder, self._node, fn, name))

    def flat_map(
        self, fn: Callable[[T], Iterable[R]], *, to: Any = None, name: str | None = None
    ) -> "Stream[R]":
        """Replace every value by the values of `fn(value)`; `to` is the type of one of them."""
        return Stream(self._builder, add_flat_map(self._builder, self._node, fn, to, name))

    def peek(self, fn: Callable[[T], object], *, name: str | None = None) -> "Stream[T]":
        """Call `fn(value)` for what it does; a pipeline may end here. It may see a record more than once."""
        return Stream(self._builder, add_peek(self._builder, self._node, fn, name))

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
        return add_key_by(self._builder, self._node, fn, key_type, name, partitions)

    def window_all(
        self,
        windows: Assigner,
        *,
        lateness: timedelta | None = None,
        trigger: Trigger[T] | None = None,
        evictor: Evictor[T] | None = None,
        late: Topic[T] | None = None,
        name: str | None = None,
    ) -> "windowed.Windowed[str, T]":
        """Put all records together in windows, whatever their key: a shuffle to one task, as `Keyed.window`."""
        shuffle = "window_all" if name is None else f"{name}_all"
        everyone = add_key_by(self._builder, self._node, lambda _: "all", str, shuffle, 1)
        return everyone.window(
            windows, lateness=lateness, trigger=trigger, evictor=evictor, late=late, name=name
        )

    def union(self, *others: "Stream[T] | Keyed[Any, T]") -> "Stream[T]":
        """All records of several streams, in no particular order between them, without a key to count on."""
        return Stream(self._builder, add_union(self._builder, self, others))

    def write(
        self, topic: Topic[T], *, key: Callable[[T], object] | None = None, name: str | None = None
    ) -> None:
        """Write every record to a topic, with the key it has or the one that `key(value)` makes."""
        self._builder.write(self._node, topic, key, name)


class Keyed(Generic[K, T]):
    """Records with values of type `T`, each in the task that owns its key of type `K`. Every step keeps the key."""

    def __init__(self, builder: Builder, node: Node, origin: int) -> None:
        self._builder = builder
        self._node = node
        # The shuffle or source by which the records were placed: two streams share owners only if they share this.
        self._origin = origin

    def map(self, fn: Callable[[T], R], *, to: Any = None, name: str | None = None) -> "Keyed[K, R]":
        """Replace every value by `fn(value)`."""
        return self._then(add_map(self._builder, self._node, fn, to, name))

    def map_keyed(self, fn: Callable[[K, T], R], *, to: Any = None, name: str | None = None) -> "Keyed[K, R]":
        """Replace every value by `fn(key, value)`."""
        step = MapKeyed(name or call_name(fn) or "map_keyed", fn, self._node.key_type)
        return self._then(_add(self._builder, self._node, step, to or returned_type(fn), name))

    def filter(self, fn: Callable[[T], object], *, name: str | None = None) -> "Keyed[K, T]":
        """Let through the values for which `fn(value)` is true."""
        return self._then(add_filter(self._builder, self._node, fn, name))

    def flat_map(
        self, fn: Callable[[T], Iterable[R]], *, to: Any = None, name: str | None = None
    ) -> "Keyed[K, R]":
        """Replace every value by the values of `fn(value)`; `to` is the type of one of them."""
        return self._then(add_flat_map(self._builder, self._node, fn, to, name))

    def peek(self, fn: Callable[[T], object], *, name: str | None = None) -> "Keyed[K, T]":
        """Call `fn(value)` for what it does; a pipeline may end here. It may see a record more than once."""
        return self._then(add_peek(self._builder, self._node, fn, name))

    def process(self, operator: Operator[K, T, R], *, name: str | None = None) -> "Keyed[K, R]":
        """Hand every record to an operator class with its own state; a pipeline may end here."""
        step = ProcessStep(name or type(operator).__name__, OperatorProcessor(operator), self._node.key_type)
        return self._then(_add(self._builder, self._node, step, emitted_type(operator), name))

    def reduce(
        self, fn: Callable[[T, T], T], *, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, T]":
        """Combine the values of a key into one: `fn(so far, value)`. The result so far is state.

        With updates="latest" a key sends on only its last result of each span: fewer records, the same last one.
        """
        chosen = name or call_name(fn) or "reduce"
        value_type = self._builder.known_type(self._node, needed_by=chosen)
        step = Reduce(chosen, fn, value_type, _updates(updates))
        return self._then(_add(self._builder, self._node, step, value_type, name))

    def aggregate(
        self, aggregator: Aggregator[T, Any, R], *, name: str | None = None, updates: Updates = "each"
    ) -> "Keyed[K, R]":
        """Fold the values of a key, as the aggregator says. The accumulator is state; `updates` as in `reduce`."""
        step = Aggregate(name or aggregator.name, aggregator, _updates(updates))
        return self._then(_add(self._builder, self._node, step, aggregator.result_type, name))

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
    ) -> "windowed.Windowed[K, T]":
        """Put the records of a key together in windows: `tumbling(minutes(1))`, `session(seconds(30))` and others.

        Windows stay open for `lateness` of event time after their end, and send their result on again for each record
        that comes then. Records that come later still are counted, or written to the topic `late` as they are.
        `trigger` says when results are sent on, `evictor` which elements are thrown away before.
        """
        chosen = windowing(
            windows, lateness=lateness, trigger=trigger, evictor=evictor, sends_late=late is not None
        )
        return windowed.Windowed(self._builder, self._node, self._origin, chosen, late, name)

    def key_by(
        self,
        fn: Callable[[T], K2],
        *,
        key_type: Any = None,
        name: str | None = None,
        partitions: int | None = None,
    ) -> "Keyed[K2, T]":
        """Bring the records together by another key: a shuffle, as `Stream.key_by`."""
        return add_key_by(self._builder, self._node, fn, key_type, name, partitions)

    def union(self, *others: "Keyed[K, T]") -> "Keyed[K, T]":
        """All records of several branches of the same keyed stream.

        Branches of different shuffles have different owners for the same key, so uniting those raises: unite the
        streams before `key_by`, or give up the key with `unkeyed`.
        """
        for other in others:
            if other._origin != self._origin:  # noqa: SLF001 - one of us
                raise InvalidPipeline(
                    "a union of keyed streams needs all of them to come from the same key_by",
                    detail="the records of one key are in different tasks",
                    hint="call union() before key_by(), or a.unkeyed().union(b) if the key no longer matters",
                )
        return self._then(add_union(self._builder, self, others))

    def unkeyed(self) -> Stream[T]:
        """The same records as a stream whose keys are not counted on; nothing moves."""
        return Stream(self._builder, self._node)

    def write(
        self, topic: Topic[T], *, key: Callable[[T], object] | None = None, name: str | None = None
    ) -> None:
        """Write every record to a topic, with its key or the one that `key(value)` makes."""
        self._builder.write(self._node, topic, key, name)

    def _then(self, node: Node) -> "Keyed[K, Any]":
        return Keyed(self._builder, node, self._origin)


# What Stream and Keyed have in common.


def add_map(builder: Builder, parent: Node, fn: Callable[..., Any], to: Any, name: str | None) -> Operation:
    """Add a map."""
    step = Map(name or call_name(fn) or "map", fn)
    return _add(builder, parent, step, to or returned_type(fn), name)


def add_filter(builder: Builder, parent: Node, fn: Callable[..., Any], name: str | None) -> Operation:
    """Add a filter."""
    step = Filter(name or call_name(fn) or "filter", fn)
    return _add(builder, parent, step, parent.value_type, name)


def add_flat_map(
    builder: Builder, parent: Node, fn: Callable[..., Any], to: Any, name: str | None
) -> Operation:
    """Add a flat_map."""
    step = FlatMap(name or call_name(fn) or "flat_map", fn)
    return _add(builder, parent, step, to or item_type(returned_type(fn)), name)


def add_peek(builder: Builder, parent: Node, fn: Callable[..., Any], name: str | None) -> Operation:
    """Add a peek."""
    step = Peek(name or call_name(fn) or "peek", fn)
    return _add(builder, parent, step, parent.value_type, name)


def add_key_by(
    builder: Builder,
    parent: Node,
    fn: Callable[..., Any],
    key_type: Any,
    name: str | None,
    partitions: int | None,
) -> Keyed[Any, Any]:
    """Add a shuffle."""
    node = builder.shuffle(parent, fn, key_type=key_type, name=name, partitions=partitions)
    return Keyed(builder, node, node.id)


def add_union(builder: Builder, first: Any, others: Iterable[Any]) -> Node:
    """Add a union of streams of one pipeline."""
    streams = (first, *others)
    if any(each._builder is not builder for each in streams):  # noqa: SLF001 - one of us
        raise InvalidPipeline(
            "a union needs streams of the same pipeline",
            hint="let one pipeline write to a topic and the other read it",
        )
    return builder.union(tuple(each._node for each in streams))  # noqa: SLF001


def _add(builder: Builder, parent: Node, step: Any, value_type: Any, name: str | None) -> Operation:
    return builder.operate(parent, step, value_type=value_type, is_named=name is not None)


def _updates(chosen: str) -> Any:
    if chosen not in ("each", "latest"):
        raise InvalidPipeline(
            f'updates is "each" or "latest", got {chosen!r}',
            hint='"each" sends every new result on, "latest" only the last of each key and span',
        )
    return chosen


_KEYED_ONLY = sorted(name for name in vars(Keyed) if not name.startswith("_") and not hasattr(Stream, name))


def _explain_missing(stream: Stream[Any], name: str) -> NoReturn:
    if name in _KEYED_ONLY and name != "unkeyed":
        raise InvalidPipeline(
            f"{name} needs a key: call key_by first",
            hint=f"stream.key_by(lambda value: ...).{name}(...)",
        )
    raise AttributeError(f"{type(stream).__name__!r} object has no attribute {name!r}")


# Set from outside the class: a __getattr__ inside it would make the type checker believe in every name.
for _hook in ("__getattr__",):
    setattr(Stream, _hook, _explain_missing)
