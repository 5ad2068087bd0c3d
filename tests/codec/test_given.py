"""How errors name what somebody has given."""

from typing import Any

import pytest

from streamkit.codec.naming import did_you_mean, given_as, is_type, one


class Order:
    pass


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (None, "None"),
        ("card", "the str 'card'"),
        (5, "the int 5"),
        (Order, "the class Order"),
        (list[int], "the type list[int]"),
        (len, "the function len"),
        (lambda: 1, "a lambda"),
        ("x" * 100, "a str"),
    ],
)
def test_what_was_given_is_named(thing: Any, said: str) -> None:
    assert given_as(thing) == said


def test_a_type_has_its_article() -> None:
    assert [one(kind) for kind in (int, str, Order, type(None))] == ["an int", "a str", "an Order", "None"]


def test_a_type_is_told_from_a_value() -> None:
    assert all(map(is_type, (int, Order, list[int], int | None, Any)))
    assert not any(map(is_type, ("int", 5, None, [int])))


def test_the_nearest_name_is_a_hint() -> None:
    assert did_you_mean("crad", ["card", "amount"]) == "did you mean card?"
    assert did_you_mean("zzz", ["card"]) == ""
