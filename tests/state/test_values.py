import dataclasses
import datetime as dt
from typing import Any

import msgspec
import pytest

from streamkit.errors import EncodeError, InvalidPipeline, Misconfigured, StateCorrupt
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ValueFormat


class Basket(msgspec.Struct):
    items: list[str]
    total: float = 0.0


@dataclasses.dataclass
class Point:
    x: int
    y: int


def spec(value_type: Any, **given: Any) -> StoreSpec:
    return StoreSpec("totals", "value", value_type, **given)


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (int, 0),
        (int, -(2**63)),
        (int, 2**64 - 1),
        (float, 1.5),
        (str, "größe"),
        (bytes, b"\x00\xff"),
        (bool, False),
        (list[int], []),
        (dict[str, list[int]], {"b": [1], "a": []}),
        (set[str], {"a", "b"}),
        (tuple[int, str], (1, "a")),
        (Basket, Basket(["a"], 1.5)),
        (Point, Point(1, 2)),
        (dt.datetime, dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        (int | str, "a"),
    ],
)
def test_a_value_is_read_as_it_was_written(value_type: Any, value: Any) -> None:
    stored = ValueFormat(spec(value_type))
    data = stored.encode(value)
    assert data[0] == 1
    assert data == stored.header + stored.pack(value)
    assert stored.decode(data) == value
    assert type(stored.decode(data)) is type(value)


def test_a_dict_keeps_its_order() -> None:
    stored = ValueFormat(spec(dict[str, int]))
    assert list(stored.decode(stored.encode({"b": 1, "a": 2}))) == ["b", "a"]


@pytest.mark.parametrize("value", [object(), 2**70, "\ud800", {"a": [object()]}])
def test_a_value_without_a_form_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError, match='store "totals"') as caught:
        ValueFormat(spec(Any)).encode(value)
    assert caught.value.hint


def test_older_values_go_through_their_upcasters() -> None:
    first = ValueFormat(spec(dict[str, Any]))
    third = ValueFormat(
        spec(
            Basket,
            version=3,
            upcasters={
                1: lambda old: {"items": old["items"].split(",")},
                2: lambda old: {**old, "total": float(len(old["items"]))},
            },
        )
    )
    assert third.decode(first.encode({"items": "a,b"})) == Basket(["a", "b"], 2.0)
    assert third.decode(b"\x02" + msgspec.msgpack.encode({"items": ["a"]})) == Basket(["a"], 1.0)
    assert third.decode(third.encode(Basket(["a"], 7.0))) == Basket(["a"], 7.0)


def test_a_missing_upcaster_is_named() -> None:
    stored = ValueFormat(spec(int, version=3, upcasters={1: int}))
    with pytest.raises(Misconfigured, match="from version 2 to 3") as caught:
        stored.decode(b"\x01\x05")
    assert "upcasters={2:" in caught.value.hint


def test_an_upcaster_that_gives_the_wrong_type_is_noticed() -> None:
    with pytest.raises(Misconfigured, match="after its upcasters from version 1"):
        ValueFormat(spec(int, version=2, upcasters={1: str})).decode(b"\x01\x05")


def test_a_value_of_a_newer_pipeline_is_not_read() -> None:
    with pytest.raises(Misconfigured, match="holds version 3") as caught:
        ValueFormat(spec(int, version=2)).decode(b"\x03\x05")
    assert caught.value.hint


def test_a_changed_type_without_a_new_version_is_noticed() -> None:
    with pytest.raises(Misconfigured, match='store "totals" holds a value of another type') as caught:
        ValueFormat(spec(int)).decode(ValueFormat(spec(str)).encode("a"), b"ann")
    assert caught.value.where == "key b'ann'"
    assert "upcaster" in caught.value.hint


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x00\x05", b"\x01", b"\x01\xc1", b"\x01\x05\x05", b"\x02\xd9", b"\x03\xc1"]
)
def test_bytes_that_are_no_value_are_corrupt(data: bytes) -> None:
    with pytest.raises(StateCorrupt) as caught:
        ValueFormat(spec(int, version=1 if data[:1] == b"\x01" else 5)).decode(data)
    assert caught.value.hint


@pytest.mark.parametrize("version", [0, 256, -1])
def test_a_version_fits_in_a_byte(version: int) -> None:
    with pytest.raises(InvalidPipeline, match=f"version {version}"):
        ValueFormat(spec(int, version=version))


class Foreign:
    pass


@pytest.mark.parametrize("value_type", [Foreign, list[int] | set[int], Basket | Point])
def test_a_type_that_cannot_be_stored_is_refused_before_the_first_value(value_type: Any) -> None:
    with pytest.raises(InvalidPipeline, match="cannot be stored") as caught:
        ValueFormat(spec(value_type))
    assert caught.value.hint
