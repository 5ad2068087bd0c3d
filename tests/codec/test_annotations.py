import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import pytest

from streamkit.codec.annotations import class_arguments, is_open, item_type, returned_type

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
