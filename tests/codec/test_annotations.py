import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from streamkit.codec.annotations import class_arguments, field_type, is_open, item_type, returned_type

T = TypeVar("T")
U = TypeVar("U")


def to_int(_: object) -> int:
    return 1


def to_none(_: object) -> None: ...


def to_any(_: object) -> Any: ...


def silent(_):  # type: ignore[no-untyped-def]
    return 1


def same(value: T) -> T:
    return value


def many(value: T) -> list[T]:
    return [value]


def lost(_: object) -> "Missing":  # type: ignore[name-defined]  # noqa: F821
    ...


class Caller:
    def __call__(self, _: object) -> str:
        return ""

    def method(self, _: object) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (to_int, int),
        (functools.partial(to_int), int),
        (Caller(), str),
        (Caller().method, bytes),
        (Caller, Caller),
        (int, int),
        (to_none, type(None)),
        (to_any, None),
        (silent, None),
        (lambda value: value, None),
        (same, None),
        (many, None),
        (lost, None),
        (len, None),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_a_function_says_what_it_returns_or_nothing(function: Callable[..., Any], kind: Any) -> None:
    assert returned_type(function) is kind


@pytest.mark.parametrize(
    ("collection", "kind"),
    [
        (list[int], int),
        (Iterable[str], str),
        (Iterator[bytes], bytes),
        (tuple[int, ...], int),
        (tuple[int, int], int),
        (tuple[int, str], int | str),
        (list, None),
        (int, None),
        (None, None),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_a_collection_says_what_is_in_it(collection: Any, kind: Any) -> None:
    assert item_type(collection) == kind


class Root(Generic[T, U]):
    pass


class Half(Root[T, list[T]]):
    pass


class Whole(Half[int]):
    pass


class Below(Whole):
    pass


def test_arguments_are_followed_through_the_ancestors() -> None:
    assert class_arguments(Below, Root) == class_arguments(Whole, Root) == (int, list[int])
    assert is_open(class_arguments(Half, Root)[1])
    assert class_arguments(Root, Root) == ()


class Customer(msgspec.Struct):
    id: int


class Order(msgspec.Struct):
    customer: Customer
    amount: "float"

    @property
    def half(self) -> float:
        return self.amount / 2


def by_amount(order):  # type: ignore[no-untyped-def]
    return order.amount


LIMIT = Order(Customer(1), 2.0)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda order: order.customer.id, int),
        (lambda order: order.amount, float),
        (lambda order: order.customer, Customer),
        (by_amount, float),
        (lambda order: order.half, None),
        (lambda order: order.nothing.id, None),
        (lambda order: order.amount + 1, None),
        (lambda order: order, None),
        (lambda _order: LIMIT.amount, None),
        (lambda: 1, None),
        (len, None),
    ],
)
def test_a_function_that_names_a_field_has_the_type_of_the_field(
    function: Callable[..., Any], kind: Any
) -> None:
    assert field_type(function, Order) is kind


def test_a_field_of_a_value_without_annotations_says_nothing() -> None:
    assert field_type(lambda order: order.amount, dict) is None
    assert field_type(lambda order: order.amount, None) is None
