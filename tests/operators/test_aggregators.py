from decimal import Decimal
from typing import Any, Generic, TypeVar

import pytest

from streamkit.errors import InvalidPipeline
from streamkit.operators.aggregators import NUMBER, SCALAR, Aggregator, count, max_of, min_of, sum_of

T = TypeVar("T")


class Untyped(Aggregator):  # type: ignore[type-arg]
    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any, /) -> Any:
        return [*accumulator, value]

    def result(self, accumulator: Any, /) -> Any:
        return accumulator


class Collect(Aggregator[T, list[T], list[T]], Generic[T]):
    def create(self) -> list[T]:
        return []

    def add(self, accumulator: list[T], value: T, /) -> list[T]:
        return [*accumulator, value]

    def result(self, accumulator: list[T], /) -> list[T]:
        return accumulator


class CollectText(Collect[str]):
    pass


def price(_: object) -> Decimal:
    return Decimal(1)


def test_the_type_of_a_fold_comes_from_the_function_or_the_argument_or_is_a_plain_scalar() -> None:
    assert sum_of(price).accumulator_type is Decimal
    assert sum_of(lambda value: value, to=Decimal).accumulator_type is Decimal
    assert sum_of(lambda value: value).accumulator_type == NUMBER
    assert (
        min_of(lambda value: value).accumulator_type == max_of(lambda value: value).accumulator_type == SCALAR
    )


def test_each_has_a_name() -> None:
    assert [each.name for each in (count(), sum_of(price), min_of(price), max_of(price), CollectText())] == [
        "count",
        "sum",
        "min",
        "max",
        "CollectText",
    ]


def test_types_are_read_off_the_class() -> None:
    assert (count().accumulator_type, count().result_type) == (int, int)
    assert (CollectText().accumulator_type, CollectText().result_type) == (list[str], list[str])


def test_an_aggregator_that_does_not_say_its_types_is_refused() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        _ = Untyped().accumulator_type
    assert caught.value.problem == 'aggregator "Untyped" does not say of which type its accumulator is'
    assert caught.value.hint == "write class Untyped(Aggregator[<value>, <accumulator>, <result>])"
    assert Untyped().result_type is None
