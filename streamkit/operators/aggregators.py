"""Aggregators: how many values of one key become one. What `aggregate()` takes."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamkit.codec.annotations import class_arguments, is_open, returned_type
from streamkit.codec.naming import one, type_name
from streamkit.errors import InvalidPipeline, UserCodeError

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

# What a sum, a minimum or a maximum may be if its function does not say: these come back from state as they went in.
NUMBER = int | float
SCALAR = int | float | str


class Aggregator(ABC, Generic[T, A, R]):
    """Folds values `T` into an accumulator `A`, of which `result` makes what downstream sees, `R`.

    The accumulator is kept in state, so its type must be known: it is read off `Aggregator[Order, Totals, float]`.
    None is no accumulator: it stands for a key that has not been seen. `add` may change the accumulator in place and
    return it.
    """

    @abstractmethod
    def create(self) -> A:
        """The accumulator of a key that has not been seen."""

    @abstractmethod
    def add(self, accumulator: A, value: T, /) -> A:
        """The accumulator with one more value in it."""

    @abstractmethod
    def result(self, accumulator: A, /) -> R:
        """What downstream sees of the accumulator; must not change it."""

    @property
    def name(self) -> str:
        """What a step is called that uses this aggregator, unless it is given a name."""
        return type(self).__name__

    @property
    def accumulator_type(self) -> Any:
        """The type of the accumulator, for its codec.

        Raises:
            InvalidPipeline: the class does not say.
        """
        arguments = class_arguments(type(self), Aggregator)
        if not arguments or is_open(arguments[1]):
            raise InvalidPipeline(
                f'aggregator "{type(self).__name__}" does not say of which type its accumulator is',
                hint=f"write class {type(self).__name__}(Aggregator[<value>, <accumulator>, <result>])",
            )
        return arguments[1]

    @property
    def result_type(self) -> Any:
        """The type of the results, or None if the class does not say."""
        arguments = class_arguments(type(self), Aggregator)
        return None if not arguments or is_open(arguments[2]) else arguments[2]


class Count(Aggregator[Any, int, int]):
    """How many values the key has had."""

    @property
    def name(self) -> str:
        """As `Aggregator.name`."""
        return "count"

    def create(self) -> int:
        """As `Aggregator.create`."""
        return 0

    def add(self, accumulator: int, value: Any, /) -> int:  # noqa: ARG002 - every value counts one
        """As `Aggregator.add`."""
        return accumulator + 1

    def result(self, accumulator: int, /) -> int:
        """As `Aggregator.result`."""
        return accumulator


class Fold(Aggregator[T, Any, R]):
    """Sum, minimum or maximum of `fn(value)`: the first is the accumulator, `combine` brings in the others."""

    def __init__(
        self, name: str, fn: Callable[[T], R], combine: Callable[[Any, Any], Any], number_type: Any
    ) -> None:
        self.fn = fn
        self.combine = combine
        self._name = name
        self._type = number_type
        # Without a declared type, the first value of each key is checked to be one that state gives back unchanged.
        self._is_checked = number_type in (NUMBER, SCALAR)

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

    def add(self, accumulator: Any, value: T, /) -> Any:
        """As `Aggregator.add`."""
        number = self.fn(value)
        if accumulator is not None:
            return self.combine(accumulator, number)
        if self._is_checked and not isinstance(number, self._type):
            raise UserCodeError(
                f"{self._name} met {one(type(number))} where it expected {type_name(self._type)}",
                hint=f"say of which type the results are: pass to={type_name(type(number))}, or annotate the function",
            )
        return number

    def result(self, accumulator: Any, /) -> Any:
        """As `Aggregator.result`."""
        return accumulator


def count() -> Aggregator[Any, int, int]:
    """How many values the key has had."""
    return Count()


def sum_of(fn: Callable[[T], R], *, to: Any = None) -> Aggregator[T, Any, R]:
    """The sum of `fn(value)`. `to`, or the annotation of `fn`, is needed if it is neither int nor float."""
    return Fold("sum", fn, operator.add, _declared(fn, to, NUMBER))


def min_of(fn: Callable[[T], R], *, to: Any = None) -> Aggregator[T, Any, R]:
    """The smallest `fn(value)`. `to`, or the annotation of `fn`, is needed if it is not int, float or str."""
    return Fold("min", fn, min, _declared(fn, to, SCALAR))


def max_of(fn: Callable[[T], R], *, to: Any = None) -> Aggregator[T, Any, R]:
    """The largest `fn(value)`. `to`, or the annotation of `fn`, is needed if it is not int, float or str."""
    return Fold("max", fn, max, _declared(fn, to, SCALAR))


def _declared(fn: Callable[..., Any], given: Any, otherwise: Any) -> Any:
    if given is not None:
        return given
    found = returned_type(fn)
    return otherwise if found is None else found
