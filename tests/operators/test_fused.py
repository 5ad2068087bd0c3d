"""Fused steps do what the same steps do one by one, and name the one that failed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.operators.exchange import WriteStep
from streamkit.operators.fused import InlineStep, fuse_loop, fuse_push
from streamkit.operators.stateless import Filter, FlatMap, Map, MapKeyed, Peek
from streamkit.operators.step import Statements
from tests.operators.scope import Chain, StepScope, steps_in

STEPS: dict[str, InlineStep] = {
    "double": Map("double", lambda value: value * 2),
    "odd": Filter("odd", lambda value: value % 2),
    "third": Filter("third", lambda value: value % 3 == 0),
    "fork": FlatMap("fork", lambda value: [value, value + 1]),
    "lazily": FlatMap("lazily", lambda value: iter(range(value % 4))),
    "peek": Peek("peek", lambda _: None),
    "keyed": MapKeyed("keyed", lambda key, value: value + len(key)),
}


class Record:
    def __init__(self, key: bytes, value: int, timestamp: int) -> None:
        self.key, self.value, self.timestamp = key, value, timestamp


TAKE_APART = Statements("decode", ("key, value, timestamp = record.key, record.value, record.timestamp",), {})


@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), max_size=6),
    values=st.lists(st.integers(0, 50), max_size=8),
)
def test_fused_steps_do_what_single_steps_do(names: list[str], values: list[int]) -> None:
    steps = [STEPS[name] for name in names]
    one_by_one = Chain(*steps)
    scope = StepScope()
    fused: list[Any] = []
    looped: list[Any] = []
    push = fuse_push([step.code(scope) for step in steps], lambda *result: fused.append(result))
    loop = fuse_loop(TAKE_APART, [step.code(scope) for step in steps], lambda *result: looped.append(result))
    for place, value in enumerate(values):
        one_by_one.push(b"key", value, place)
        push(b"key", value, place)
    loop([Record(b"key", value, place) for place, value in enumerate(values)])
    assert fused == one_by_one.out
    assert looped == one_by_one.out


def test_each_line_knows_its_step() -> None:
    scope = StepScope()
    steps: list[InlineStep] = [
        FlatMap("fork", lambda value: [value, value - 1]),
        Filter("all", lambda _: True),
        Map("divide", lambda value: 1 / value),
        WriteStep("write", "out", float),
    ]
    push = fuse_push([step.code(scope) for step in steps], None)
    with pytest.raises(ZeroDivisionError) as caught:
        push(b"k", 1, 7)
    assert steps_in(caught.value) == ["divide"]
    assert scope.written["out"] == [(b"k", b"1.0", 7)]


def test_what_follows_is_blamed_for_itself() -> None:
    scope = StepScope()
    later = Chain(Map("later", lambda value: 1 / value))
    push = fuse_push([Map("first", lambda value: value).code(scope)], later.push)
    with pytest.raises(ZeroDivisionError) as caught:
        push(b"k", 0, 7)
    assert steps_in(caught.value) == ["later"]


def test_steps_with_the_same_names_inside_do_not_mix() -> None:
    scope = StepScope()
    out: list[Any] = []
    steps = [Map("a", lambda value: value + 1), Map("b", lambda value: value * 10)]
    fuse_push([step.code(scope) for step in steps], lambda _, value, __: out.append(value))(b"k", 1, 0)
    assert out == [20]


def test_an_attribute_is_not_taken_for_a_name() -> None:
    code = Statements("s", ("value = fn(value.fn)",), {"fn": lambda value: value + 1})

    class Holder:
        fn = 41

    out: list[Any] = []
    fuse_push([code], lambda _, value, __: out.append(value))(b"k", Holder(), 0)
    assert out == [42]


def test_nothing_follows_an_end() -> None:
    scope = StepScope()
    chain = Chain(WriteStep("write", "out", int), scope=scope)
    chain.push(b"k", 5, 7)
    assert chain.out == []
    assert scope.written["out"] == [(b"k", b"5", 7)]
