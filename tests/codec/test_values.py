import contextlib
import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.codec.codec import DECODE_ERRORS, ENCODE_ERRORS, Codec
from streamkit.codec.values import internal_codec, key_codec, value_codec
from streamkit.errors import InvalidPipeline


class Click(msgspec.Struct):
    page: str
    tags: list[str] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    name: str


class Tree(msgspec.Struct):
    children: "list[Tree]" = []


class Custom:
    pass


class Holder(msgspec.Struct):
    inner: list[Custom]


EXAMPLES: list[tuple[Any, Any, bytes]] = [
    (Click, Click("/", ["a"]), b'{"page":"/","tags":["a"]}'),
    (Point, Point(1, 2), b'{"x":1,"y":2}'),
    (Row, {"name": "n"}, b'{"name":"n"}'),
    (list[int], [1, 2], b"[1,2]"),
    (int, 5, b"5"),
    (float, 0.5, b"0.5"),
    (bool, True, b"true"),
    (dict, {"a": [1, None]}, b'{"a":[1,null]}'),
    (Any, [1, "x"], b'[1,"x"]'),
    (str, 'é "plain"', 'é "plain"'.encode()),
    (bytes, b"\x00\xff", b"\x00\xff"),
    (Tree, Tree([Tree()]), b'{"children":[{"children":[]}]}'),
]
TYPES = [each[0] for each in EXAMPLES]


@pytest.mark.parametrize(("kind", "value", "data"), EXAMPLES, ids=str)
def test_values_at_the_edge_are_what_other_programs_expect(kind: Any, value: Any, data: bytes) -> None:
    codec = value_codec(kind)
    assert codec.encode(value) == data
    assert codec.decode(data) == value
    assert type(codec.decode(data)) is type(value)


@pytest.mark.parametrize(("kind", "value", "data"), EXAMPLES, ids=str)
def test_values_inside_come_back_as_they_went(kind: Any, value: Any, data: bytes) -> None:
    codec = internal_codec(kind)
    again = codec.decode(codec.encode(value))
    assert (again, type(again)) == (value, type(value)), data


@pytest.mark.parametrize("kind", [None, *TYPES], ids=str)
@pytest.mark.parametrize("make", [value_codec, internal_codec, key_codec])
def test_whatever_the_bytes_are_only_decode_errors_are_raised(
    make: Callable[[Any], Codec], kind: Any
) -> None:
    codec = make(kind)

    @settings(max_examples=25)
    @given(st.binary())
    def check(data: bytes) -> None:
        with contextlib.suppress(*DECODE_ERRORS):
            codec.decode(data)

    check()
    for deep in (b"[" * 100_000, b"\x91" * 100_000, b'{"children":[' * 100_000):
        with contextlib.suppress(*DECODE_ERRORS):
            codec.decode(deep)


def test_values_that_cannot_be_written_raise_encode_errors() -> None:
    cases: list[tuple[Codec, Any]] = [
        (value_codec(str), 5),
        (value_codec(bytes), "text"),
        (value_codec(str), "\ud800"),
        (value_codec(dict), {"a": Custom()}),
        (value_codec(list[int]), [Custom()]),
        (internal_codec(int), 2**70),
        (key_codec(int), "5"),
        (key_codec(int), 5.5),
        (key_codec(str), 5),
    ]
    for codec, value in cases:
        with pytest.raises(ENCODE_ERRORS):
            codec.encode(value)


def test_no_python_frame_is_paid_where_c_code_does_it() -> None:
    codecs = [
        *map(value_codec, TYPES),
        *map(internal_codec, TYPES),
        key_codec(str),
        key_codec(bytes),
        key_codec(Point),
    ]
    for codec in codecs:
        for function in (codec.encode, codec.decode):
            assert not hasattr(function, "__code__"), codec.type_name


def test_optional_lets_a_record_without_a_value_pass() -> None:
    assert [value_codec(kind).nullable for kind in (Click, Click | None, str | None, bytes | None)] == [
        False,
        True,
        True,
        True,
    ]
    assert value_codec(str | None).decode(b"x") == "x"
    assert value_codec(bytes | None).encode(b"x") == b"x"
    assert value_codec(Click | None).type_name == "Click | None"


def test_inside_none_is_a_value() -> None:
    codec = internal_codec(int | None)
    assert codec.decode(codec.encode(None)) is None


@given(st.integers())
def test_int_keys_are_decimal_text(number: int) -> None:
    data = key_codec(int).encode(number)
    assert data == str(number).encode()
    if abs(number) < 2**63:
        assert key_codec(int).decode(data) == number


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_keys_are_utf_8(text: str) -> None:
    codec = key_codec(str)
    assert codec.encode(text) == text.encode()
    assert codec.decode(codec.encode(text)) == text


@given(st.dictionaries(st.text("abc"), st.integers(-9, 9)), st.randoms())
def test_equal_keys_give_equal_bytes(mapping: dict[str, int], random: Any) -> None:
    items = list(mapping.items())
    random.shuffle(items)
    codec = key_codec(dict[str, int])
    assert codec.encode(dict(items)) == codec.encode(mapping)


def test_composite_keys_are_compact_json() -> None:
    assert key_codec(tuple[str, int]).encode(("a", 1)) == b'["a",1]'
    assert key_codec(Point).encode(Point(2, 1)) == b'{"x":2,"y":1}'
    assert key_codec(tuple[str, int]).decode(b'["a",1]') == ("a", 1)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert key_codec(datetime).decode(key_codec(datetime).encode(moment)) == moment


def test_a_free_dict_takes_dates_and_uuids() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    data = value_codec(dict).encode({"at": moment, "id": uuid.UUID(int=1)})
    assert value_codec(dict).decode(data) == {
        "at": "2026-01-01T00:00:00+00:00",
        "id": "00000000-0000-0000-0000-000000000001",
    }


@pytest.mark.parametrize(
    "kind", [Custom, list[Custom], Holder, dict[str, Custom], int | list[int] | set[int]], ids=str
)
@pytest.mark.parametrize("make", [value_codec, internal_codec, key_codec])
def test_a_type_without_an_encoding_is_refused_when_the_pipeline_is_built(
    make: Callable[[Any], Codec], kind: Any
) -> None:
    with pytest.raises(InvalidPipeline, match="cannot be written to bytes") as caught:
        make(kind)
    assert caught.value.detail
    assert "msgspec.Struct" in caught.value.hint
