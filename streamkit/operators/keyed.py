"""Steps that remember one value per key: reduce and aggregate, hence count, sum, min and max.

The state of a key is read and written through the dicts of its cells: a known key costs two dict operations.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import msgspec

from streamkit.operators.aggregators import Aggregator, Count, Fold
from streamkit.operators.stateless import missing_key
from streamkit.operators.step import MAIN, Ports, Push, Scope
from streamkit.state.spec import StoreSpec
from streamkit.state.value_cells import ValueCells

# "each": every record sends the new result on. "latest": a key sends its last result on once, at the end of the span.
Updates = Literal["each", "latest"]


class Reduce(msgspec.Struct, frozen=True):
    """Combine the values of a key into one of the same type: `fn(so far, value)`; the first value stands for itself.

    A result of None forgets the key.
    """

    kind: ClassVar[str] = "reduce"
    inputs: ClassVar[tuple[str, ...]] = (MAIN,)
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    # The function may work in place, and raise when it has.
    fails_clean: ClassVar[bool] = False

    name: str
    fn: Callable[[Any, Any], Any]
    value_type: Any
    updates: Updates = "each"
    has_effects: bool = True
    makes_of_many: ClassVar[bool] = True

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The value so far, under the name of the step."""
        return (StoreSpec(self.name, "value", self.value_type),)

    def bind(self, outputs: Ports, scope: Scope) -> Ports:
        """As `Step.bind`."""
        cells: ValueCells = scope.cells(self.stores[0])
        cache, dirty, load = cells.cache, cells.dirty, cells.load
        fn = self.fn
        following = _following(outputs[MAIN], scope, self)

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            known = cache.get(key)
            if known is None:
                if key is None:
                    raise missing_key(step)
                known = load(key)
            new = value if known is None else fn(known, value)
            cache[key] = new
            dirty[key] = None
            following(key, new, timestamp)

        return {MAIN: push}


class Aggregate(msgspec.Struct, frozen=True):
    """Fold the values of a key into an accumulator, and send on what the aggregator makes of it."""

    kind: ClassVar[str] = "aggregate"
    inputs: ClassVar[tuple[str, ...]] = (MAIN,)
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)

    name: str
    aggregator: Aggregator[Any, Any, Any]
    updates: Updates = "each"
    has_effects: bool = True
    makes_of_many: ClassVar[bool] = True

    @property
    def fails_clean(self) -> bool:
        """As `Step.fails_clean`. Any aggregator but ours may keep an accumulator that it changes in place."""
        return type(self.aggregator) in (Count, Fold)

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The accumulator, under the name of the step."""
        return (StoreSpec(self.name, "value", self.aggregator.accumulator_type),)

    def bind(self, outputs: Ports, scope: Scope) -> Ports:
        """As `Step.bind`."""
        following = _following(outputs[MAIN], scope, self)
        # The two most used have their arithmetic in the loop itself: one call less, or two, per record.
        if type(self.aggregator) is Count:
            return {MAIN: self._bind_count(following, scope)}
        if type(self.aggregator) is Fold:
            return {MAIN: self._bind_fold(following, scope, self.aggregator)}
        return {MAIN: self._bind_any(following, scope)}

    def _bind_count(self, following: Push, scope: Scope) -> Push:
        cells: ValueCells = scope.cells(self.stores[0])
        cache, dirty, load = cells.cache, cells.dirty, cells.load

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:  # noqa: ARG001
            known = cache.get(key)
            if known is None:
                if key is None:
                    raise missing_key(step)
                known = load(key) or 0
            cache[key] = new = known + 1
            dirty[key] = None
            following(key, new, timestamp)

        return push

    def _bind_fold(self, following: Push, scope: Scope, fold: Fold[Any, Any]) -> Push:
        cells: ValueCells = scope.cells(self.stores[0])
        cache, dirty, load = cells.cache, cells.dirty, cells.load
        fn, combine, first = fold.fn, fold.combine, fold.add

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            known = cache.get(key)
            if known is None:
                if key is None:
                    raise missing_key(step)
                known = load(key)
            new = first(None, value) if known is None else combine(known, fn(value))
            cache[key] = new
            dirty[key] = None
            following(key, new, timestamp)

        return push

    def _bind_any(self, following: Push, scope: Scope) -> Push:
        cells: ValueCells = scope.cells(self.stores[0])
        cache, dirty, load = cells.cache, cells.dirty, cells.load
        create, add, result = self.aggregator.create, self.aggregator.add, self.aggregator.result

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            known = cache.get(key)
            if known is None:
                if key is None:
                    raise missing_key(step)
                known = load(key)
                if known is None:
                    known = create()
            new = add(known, value)
            # Before the state is written: an accumulator that has no result was not wanted.
            visible = result(new)
            cache[key] = new
            dirty[key] = None
            following(key, visible, timestamp)

        return push


def _following(following: Push, scope: Scope, step: Reduce | Aggregate) -> Push:
    return following if step.updates == "each" else latest(following, scope, step.name)


def latest(following: Push, scope: Scope, step: str) -> Push:
    """A push that keeps only the last result of each key of this step and sends those on when the span ends.

    Keys go on in the order in which they first appeared. What is kept belongs to the span: when a span is dropped,
    its steps are bound anew.
    """
    held = Latest(step)
    pending = held.pending

    def keep(key: bytes | None, value: Any, timestamp: int) -> None:
        pending[key] = (value, timestamp)

    scope.at_span_end(held, following)
    return keep


class Latest:
    """The last result of each key; keeps the promises of `Held`."""

    __slots__ = ("_settled", "pending", "step")

    def __init__(self, step: str) -> None:
        self.step = step
        self.pending: dict[bytes | None, tuple[Any, int]] = {}
        self._settled: dict[bytes | None, tuple[Any, int]] = {}

    def take(self) -> list[tuple[bytes | None, Any, int]]:
        """As `Held.take`."""
        self.settle()
        taken = [(key, value, timestamp) for key, (value, timestamp) in self._settled.items()]
        self._settled.clear()
        return taken

    def settle(self) -> None:
        """As `Held.settle`."""
        self._settled.update(self.pending)
        self.pending.clear()

    def undo(self) -> None:
        """As `Held.undo`."""
        self.pending.clear()
