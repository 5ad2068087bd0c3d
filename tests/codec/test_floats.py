"""JSON writes floats that are no number as null, and not every type takes one."""

import dataclasses
from typing import Annotated, Any, Optional, TypedDict

import msgspec
import pytest

from streamkit.codec.floats import float_fields


class Price(msgspec.Struct):
    amount: float


class Maybe(msgspec.Struct):
    amount: float | None = None


class Basket(msgspec.Struct):
    prices: dict[str, list[Price]]


class Tree(msgspec.Struct):
    below: list["Tree"]
    note: Optional[str] = None  # noqa: UP045 - the older spelling


@dataclasses.dataclass
class Point:
    x: float


class Loose(TypedDict):
    x: float


class Chained(msgspec.Struct):
    amount: float
    following: Optional["Chained"] = None


class Line(msgspec.Struct):
    price: Price
    rate: float = 1.0


@pytest.mark.parametrize(
    ("value_type", "fields"),
    [
        (float, [""]),
        (float | None, [""]),
        (Annotated[float, msgspec.Meta(ge=0)], [""]),
        (Price | None, [".amount"]),
        (Point, [".x"]),
        (Line, [".price.amount", ".rate"]),
    ],
)
def test_floats_are_found_by_their_fields(value_type: Any, fields: list[str]) -> None:
    assert float_fields(value_type) == fields


@pytest.mark.parametrize(
    "value_type",
    [
        list[float],
        Basket,
        Loose,
        Chained,
        int | float,
    ],
)
def test_floats_that_no_field_leads_to_are_searched_for(value_type: Any) -> None:
    assert float_fields(value_type) is None


@pytest.mark.parametrize(
    "value_type", [int, str, dict, Any, Maybe, Tree, list[float | None], dict[str, Any], bytes | None]
)
def test_a_type_without_such_floats_is_not_looked_at(value_type: Any) -> None:
    assert float_fields(value_type) == []
