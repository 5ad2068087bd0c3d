import math
from typing import Any

import msgspec
import pytest

from streamkit.codec.values import internal_codec
from streamkit.errors import EncodeError, UserCodeError
from streamkit.operators.exchange import ShuffleStep, WriteStep
from tests.operators.scope import Chain


class Click(msgspec.Struct):
    page: str
    number: int = 0


def shuffle(key_type: object = str) -> ShuffleStep:
    return ShuffleStep("by_page", "p.by_page.shuffle.1", lambda click: click.page, key_type, Click)


def test_write_encodes_the_value_and_leaves_the_key_alone() -> None:
    chain = Chain(WriteStep("out", "clicks", Click))
    chain.push(b"\xff raw", Click("/"), 7)
    chain.push(None, Click("/a", 1), 8)
    assert chain.scope.written == {
        "clicks": [(b"\xff raw", b'{"page":"/","number":0}', 7), (None, b'{"page":"/a","number":1}', 8)]
    }
    assert chain.out == []


def test_write_makes_a_key_of_the_topics_type() -> None:
    chain = Chain(WriteStep("out", "clicks", Click, int, lambda click: click.number or None))
    chain.push(b"old", Click("/", 5), 7)
    chain.push(b"old", Click("/", 0), 8)
    assert [key for key, _, _ in chain.scope.written["clicks"]] == [b"5", None]


def test_none_is_a_tombstone_where_the_topic_allows_none() -> None:
    chain = Chain(WriteStep("out", "clicks", Click | None))
    chain.push(b"k", None, 7)
    assert chain.scope.written == {"clicks": [(b"k", None, 7)]}


def test_a_value_the_topic_cannot_hold_is_an_encode_error() -> None:
    chain = Chain(WriteStep("out", "texts", str))
    with pytest.raises(EncodeError) as caught:
        chain.push(b"k", 5, 7)
    assert caught.value.problem == 'topic "texts" takes a value of type str, got an int'
    assert caught.value.where == 'step "out"'
    assert "map() before write()" in caught.value.hint


class Price(msgspec.Struct):
    amount: float
    note: str | None = None


class Sale(msgspec.Struct):
    price: Price
    rate: float


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (float, math.nan),
        (float | None, -math.inf),
        (Price, Price(math.inf)),
        (Price | None, Price(math.nan)),
        (list[float], [1.0, math.nan]),
        (list[float] | None, [1.0, math.nan]),
        (Sale, Sale(Price(1.0), math.nan)),
        (Sale, Sale(Price(math.inf), 1.0)),
        (Price, Price(None)),  # type: ignore[arg-type]
    ],
)
def test_a_number_that_json_has_no_form_for_is_an_encode_error(value_type: Any, value: Any) -> None:
    for key_fn in (None, str):
        chain = Chain(WriteStep("out", "prices", value_type, str, key_fn))
        with pytest.raises(EncodeError, match='topic "prices" cannot take this value of type') as caught:
            chain.push(b"k", value, 7)
        assert "Expected `float`, got `null`" in caught.value.detail
        assert "nan and infinity cannot be written as JSON" in caught.value.hint
        assert chain.scope.written == {"prices": []}


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (float, 1.5),
        (float | None, None),
        (Price, Price(1.5)),
        (Price, Price(1.5, "null")),
        (Price, {"amount": 1.5}),
        (Price | None, None),
        (Sale, Sale(Price(1e308), 1e308)),
        (list[float] | None, None),
        (list[Price], [Price(1.5)]),
        (dict, {"x": math.nan}),
        (list[float | None], [math.nan]),
    ],
)
def test_what_is_read_back_with_a_null_in_it_is_written(value_type: Any, value: Any) -> None:
    chain = Chain(WriteStep("out", "prices", value_type))
    chain.push(b"k", value, 7)
    assert len(chain.scope.written["prices"]) == 1


@pytest.mark.parametrize(
    ("value_type", "value", "cause"),
    [
        (str, "\ud800", "surrogates not allowed"),
        (dict, {"a": b"x"}, "Type is not JSON serializable: bytes"),
    ],
)
def test_a_value_of_the_right_type_that_cannot_be_written_says_why(
    value_type: Any, value: Any, cause: str
) -> None:
    chain = Chain(WriteStep("out", "texts", value_type))
    with pytest.raises(EncodeError) as caught:
        chain.push(b"k", value, 7)
    assert caught.value.problem == f'topic "texts" cannot take this value of type {value_type.__name__}'
    assert cause in caught.value.detail
    assert caught.value.hint == ""


def test_a_key_of_the_right_type_that_cannot_be_written_says_why() -> None:
    chain = Chain(WriteStep("out", "clicks", Click, str, lambda click: click.page))
    with pytest.raises(EncodeError, match='topic "clicks" cannot take this key of type str') as caught:
        chain.push(b"k", Click("\ud800"), 7)
    assert "surrogates not allowed" in caught.value.detail
    chain = Chain(shuffle())
    with pytest.raises(EncodeError) as caught:
        chain.push(None, Click("\ud800"), 7)
    assert caught.value.problem == "key_by cannot send on this key of type str"
    assert "surrogates not allowed" in caught.value.detail
    assert caught.value.hint == ""


def test_a_key_the_topic_cannot_hold_is_an_encode_error() -> None:
    chain = Chain(WriteStep("out", "clicks", Click, int, lambda click: click.page))
    with pytest.raises(EncodeError, match='topic "clicks" takes a key of type int, got a str'):
        chain.push(b"k", Click("/"), 7)


def test_shuffle_sends_key_value_and_time() -> None:
    chain = Chain(shuffle())
    chain.push(None, Click("/é", 3), 7)
    [(key, data, timestamp)] = chain.scope.written["p.by_page.shuffle.1"]
    assert (key, timestamp) == ("/é".encode(), 7)
    assert data is not None
    assert internal_codec(Click).decode(data) == Click("/é", 3)


def test_a_key_of_another_type_than_expected_says_what_to_pass() -> None:
    chain = Chain(ShuffleStep("key_by", "t", lambda click: click.number, str, Click))
    with pytest.raises(EncodeError) as caught:
        chain.push(None, Click("/", 3), 7)
    assert caught.value.problem == "key_by expects keys of type str, got an int"
    assert caught.value.hint == "pass key_type=int to key_by, or annotate the return type of its function"


def test_an_int_key_is_never_a_text_or_a_fraction() -> None:
    for key in ("3", 3.5):
        chain = Chain(ShuffleStep("key_by", "t", {"/": key}.get, int, str))
        with pytest.raises(EncodeError, match="key_by expects keys of type int"):
            chain.push(None, "/", 7)
        assert chain.scope.written == {"t": []}


def test_none_is_no_key() -> None:
    chain = Chain(ShuffleStep("key_by", "t", lambda _: None, str, Click))
    with pytest.raises(UserCodeError, match="key_by got None as the key of a record"):
        chain.push(None, Click("/"), 7)


def test_a_value_that_cannot_travel_is_an_encode_error() -> None:
    chain = Chain(ShuffleStep("key_by", "t", lambda _: "k", str, int))
    with pytest.raises(EncodeError, match="key_by cannot send on a value of type int; at step"):
        chain.push(None, 2**70, 7)


@pytest.mark.parametrize(("value_type", "value"), [(Click, 5), (Click, None), (str, 5), (list[int], {})])
def test_a_value_of_another_type_is_told_without_what_the_codec_says(value_type: Any, value: Any) -> None:
    for step in (
        WriteStep("out", "topic", value_type),
        ShuffleStep("key_by", "t", lambda _: "k", str, value_type),
    ):
        if value is None and step.kind == "key_by":
            continue  # None travels
        with pytest.raises(EncodeError) as caught:
            Chain(step).push(b"k", value, 7)
        assert caught.value.detail == ""


def test_a_key_of_another_type_is_told_without_what_the_encoder_says() -> None:
    chain = Chain(ShuffleStep("key_by", "t", lambda click: click.number, str, Click))
    with pytest.raises(EncodeError) as caught:
        chain.push(None, Click("/", 3), 7)
    assert caught.value.detail == ""
