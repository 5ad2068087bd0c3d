from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import UserCodeError
from streamkit.operators import stateless
from streamkit.operators.stateless import DecodedKeys, Filter, FlatMap, Map, MapKeyed, Peek
from streamkit.operators.step import Step
from tests.operators.scope import Chain, steps_in


def test_map_replaces_the_value_and_keeps_key_and_time() -> None:
    chain = Chain(Map("double", lambda value: value * 2))
    chain.push(b"k", 21, 7)
    assert chain.out == [(b"k", 42, 7)]


def test_filter_lets_through_what_is_true() -> None:
    chain = Chain(Filter("odd", lambda value: value % 2))
    for number in range(5):
        chain.push(None, number, number)
    assert chain.out == [(None, 1, 1), (None, 3, 3)]


@pytest.mark.parametrize("make", [list, tuple, iter, set], ids=["list", "tuple", "iterator", "set"])
def test_flat_map_takes_any_iterable(make: Callable[[Any], Any]) -> None:
    chain = Chain(FlatMap("twice", lambda value: make([value])))
    chain.push(b"k", 1, 7)
    assert chain.out == [(b"k", 1, 7)]


def test_a_generator_that_raises_has_passed_on_nothing() -> None:
    def broken(value: int) -> Iterator[int]:
        yield value
        raise ValueError("half-way")

    chain = Chain(FlatMap("broken", broken))
    with pytest.raises(ValueError, match="half-way"):
        chain.push(b"k", 1, 7)
    assert chain.out == []


def test_peek_sees_the_value_and_passes_it_on() -> None:
    seen: list[int] = []
    chain = Chain(Peek("look", seen.append))
    chain.push(b"k", 1, 7)
    assert seen == chain.values == [1]


def test_map_keyed_decodes_the_key() -> None:
    chain = Chain(MapKeyed("pair", lambda key, value: (key, value), int))
    chain.push(b"12", "x", 7)
    chain.push(b"12", "y", 8)
    assert chain.out == [(b"12", (12, "x"), 7), (b"12", (12, "y"), 8)]


def test_map_keyed_refuses_a_record_without_a_key() -> None:
    chain = Chain(MapKeyed("pair", lambda key, value: (key, value)))
    with pytest.raises(UserCodeError) as caught:
        chain.push(None, "x", 7)
    assert caught.value.problem == "a record without a key reached a step that works by key"
    assert caught.value.where == 'step "pair"'
    assert "key_by()" in caught.value.hint


def test_decoded_keys_forget_everything_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless, "REMEMBERED_KEYS_MAX", 3)
    keys = DecodedKeys(str, "step")
    assert [keys[f"{n}".encode()] for n in range(10)] == [f"{n}" for n in range(10)]
    assert len(keys) <= 3


def test_the_failing_step_can_be_read_off_the_traceback() -> None:
    chain = Chain(
        Map("first", lambda value: value), Map("second", lambda value: 1 / value), Peek("third", print)
    )
    with pytest.raises(ZeroDivisionError) as caught:
        chain.push(b"k", 0, 7)
    assert steps_in(caught.value) == ["second"]


def test_only_flat_map_may_push_more_than_once() -> None:
    def same(value: Any) -> Any:
        return value

    steps: list[Step] = [
        Map("s", same),
        Filter("s", same),
        Peek("s", same),
        MapKeyed("s", lambda _, value: value),
    ]
    assert not any(step.has_effects for step in steps)
    assert FlatMap("s", same).has_effects


@given(st.lists(st.integers()))
def test_a_chain_of_steps_is_the_composition_of_their_functions(numbers: list[int]) -> None:
    chain = Chain(
        Map("plus", lambda n: n + 1),
        Filter("even", lambda n: n % 2 == 0),
        FlatMap("twice", lambda n: [n, -n]),
    )
    for number in numbers:
        chain.push(None, number, 0)
    assert chain.values == [m for n in numbers if (n + 1) % 2 == 0 for m in (n + 1, -(n + 1))]
