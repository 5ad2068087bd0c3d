import functools
import typing
from typing import Annotated, Any, Literal, NewType, Optional

import msgspec
import pytest

from streamkit.codec.naming import call_name, type_name, without_none

UserId = NewType("UserId", int)


class Click(msgspec.Struct):
    page: str


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (int, "int"),
        (Click, "Click"),
        (None, "None"),
        (type(None), "None"),
        (Any, "Any"),
        (list[int], "list[int]"),
        (typing.List[int], "list[int]"),  # noqa: UP006
        (dict[str, list[Click]], "dict[str, list[Click]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Optional[int], "int | None"),  # noqa: UP045
        (None | int, "int | None"),
        (typing.Union[int, str], "int | str"),  # noqa: UP007
        (Annotated[int, msgspec.Meta(ge=0)], "int"),
        (UserId, "int"),
        (Literal["a", 1], "Literal['a', 1]"),
    ],
    ids=str,
)
def test_a_type_has_one_name_however_it_is_spelled(kind: Any, name: str) -> None:
    assert type_name(kind) == name


def test_a_local_class_is_named_with_its_place() -> None:
    class Local:
        pass

    assert type_name(Local) == "test_a_local_class_is_named_with_its_place.<locals>.Local"


def test_none_can_be_taken_away() -> None:
    assert without_none(int | None) == (int, True)
    assert without_none(int | str | None) == (int | str, True)
    assert without_none(int) == (int, False)


def test_a_lambda_has_no_name() -> None:
    def named() -> None: ...

    assert call_name(named) == call_name(functools.partial(named)) == "named"
    assert call_name(Click) == "Click"
    assert call_name(lambda: None) is None
    assert call_name(functools.partial(lambda: None)) is None
