"""Contents: what is kept of a window until it fires, an accumulator or its elements.

An accumulator takes each record in at once and stays small. Elements, (timestamp, value) in the order in which they
came, are kept where a function wants to see all of them or an evictor may throw some away again.
"""

import operator
from collections.abc import Callable
from typing import Any

from streamkit.errors import InvalidPipeline
from streamkit.model.counts import OPEN_WINDOWS
from streamkit.operators.aggregators import Aggregator, Count, Fold
from streamkit.operators.step import Scope
from streamkit.state.value_cells import ValueCells

# A timestamp in ms and a value.
Element = tuple[int, Any]
# Called with contents or None, a value and its timestamp: the contents with the value in them.
Add = Callable[[Any, Any, int], Any]
# Called with the contents of a window and those of a later one: the contents of both.
Merge = Callable[[Any, Any], Any]


class Reducing(Aggregator[Any, Any, Any]):
    """Two values into one of the same type; the first stands for itself. A result of None forgets what was there."""

    def __init__(self, name: str, fn: Callable[[Any, Any], Any], value_type: Any) -> None:
        self.fn = fn
        self._name = name
        self._type = value_type

    @property
    def name(self) -> str:
        """As `Aggregator.name`."""
        return self._name

    @property
    def accumulator_type(self) -> Any:
        """As `Aggregator.accumulator_type`."""
        return self._type

    @property
    def result_type(self) -> Any:
        """As `Aggregator.result_type`."""
        return self._type

    def create(self) -> None:
        """Nothing: the first value is the first accumulator."""

    def add(self, accumulator: Any, value: Any, /) -> Any:
        """As `Aggregator.add`."""
        return value if accumulator is None else self.fn(accumulator, value)

    def result(self, accumulator: Any, /) -> Any:
        """As `Aggregator.result`."""
        return accumulator


def elements_type(value_type: Any) -> Any:
    """The type of the elements of a window, for their codec."""
    return list[tuple[int, value_type]]


def adding_to_accumulator(fold: Aggregator[Any, Any, Any]) -> Add:
    """How a record gets into an accumulator."""
    create, add = fold.create, fold.add

    def add_value(contents: Any, value: Any, timestamp: int) -> Any:  # noqa: ARG001 - accumulators know no time
        return add(create() if contents is None else contents, value)

    return add_value


def add_element(contents: list[Element] | None, value: Any, timestamp: int) -> list[Element]:
    """How a record gets among the elements; the list is changed in place."""
    if contents is None:
        return [(timestamp, value)]
    contents.append((timestamp, value))
    return contents


def merge_of(fold: Aggregator[Any, Any, Any]) -> Merge | None:
    """How two accumulators become one, for windows that grow together; None if the aggregator does not say."""
    if type(fold) is Count:
        return operator.add
    if isinstance(fold, Fold):
        return fold.combine
    if isinstance(fold, Reducing):
        return fold.fn
    merge: Merge | None = getattr(fold, "merge", None)
    return merge


def require_merge(fold: Aggregator[Any, Any, Any]) -> None:
    """Refuse an aggregator that cannot follow when two windows become one.

    Raises:
        InvalidPipeline: it has no `merge`.
    """
    if merge_of(fold) is None:
        kind = type(fold).__name__
        raise InvalidPipeline(
            f'aggregator "{kind}" does not say how two accumulators become one, and sessions grow together',
            hint=f"give {kind} a method merge(self, accumulator, other) that returns the accumulator of both",
        )


def fold_elements(add: Add, elements: list[Element]) -> Any:
    """The accumulator of these elements; None for none."""
    contents = None
    for timestamp, value in elements:
        contents = add(contents, value, timestamp)
    return contents


class OpenContents:
    """The contents of the windows of a step in one task; counts how many windows hold something."""

    def __init__(self, cells: ValueCells, scope: Scope) -> None:
        self.get = cells.get
        self._put = cells.put
        self._count = scope.count

    def replace(self, pair: tuple[bytes, bytes], known: Any, new: Any) -> None:
        """Put `new` in the place of `known`, which is what `get` has returned; None is an empty window."""
        opened = (new is not None) - (known is not None)
        if opened:
            self._count(OPEN_WINDOWS, opened)
        self._put(pair, new)
