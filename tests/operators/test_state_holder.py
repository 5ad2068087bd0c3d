"""State is changed by its methods: an assignment in its place is refused where it stands."""

from dataclasses import dataclass
from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.operators.agent import agent_processor
from streamkit.operators.process import OperatorProcessor, ProcessStep
from streamkit.testing import Harness
from tests.operators.scope import Chain

WORDS, LENGTHS = sk.topic("words", str), sk.topic("lengths", int)


class Assigning(sk.Operator[str, str, str]):
    one = sk.value(int, 0)
    many = sk.map_of(str, int)
    row = sk.list_of(int)

    def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
        setattr(self, value, 5)
        ctx.emit(value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("one", "self.one.set(...)"),
        ("many", "self.many[key] = ... or self.many.put(key, ...)"),
        ("row", "self.row.replace(...)"),
    ],
)
def test_an_assignment_to_state_is_an_error_of_the_record(name: str, instead: str) -> None:
    chain = Chain(ProcessStep("s", OperatorProcessor(Assigning())))
    with pytest.raises(UserCodeError) as caught:
        chain.push(b"k", name, 1)
    assert caught.value.problem == f'"Assigning.{name}" is state: write {instead}'


def test_other_attributes_are_the_operators_own() -> None:
    chain = Chain(ProcessStep("s", OperatorProcessor(Assigning())))
    chain.push(b"k", "anything", 1)
    assert chain.values == ["anything"]


def test_an_assignment_to_state_of_a_window_process_is_an_error_of_the_record() -> None:
    class Longest(sk.WindowProcess[str, str, int]):
        longest = sk.value(int, 0)

        def process(
            self,
            key: str,  # noqa: ARG002
            window: sk.Window,  # noqa: ARG002
            elements: list[str],
            ctx: sk.WindowContext[int],  # noqa: ARG002
        ) -> None:
            self.longest = max(map(len, elements))  # type: ignore[assignment]

    p = sk.pipeline("p")
    p.read_keyed(WORDS).window(sk.counting(1)).process(Longest()).write(LENGTHS)
    with Harness(p, partitions=1) as harness:
        harness.send(WORDS, "one", key="k")
        harness.run()
        (letter,) = harness.dead_letters()
    assert b'"Longest.longest" is state: write self.longest.set(...)' in (
        letter.headers["streamkit.error"] or b""
    )


def test_state_that_is_made_in_init_is_refused_there() -> None:
    class Late(sk.Operator[str, str, str]):
        def __init__(self) -> None:
            self.seen = sk.value(bool, False)

        def on_record(self, value: str, ctx: sk.Context[str, str]) -> None: ...

    with pytest.raises(
        InvalidPipeline, match=r'"Late.seen" .* declare it in the class body.* seen = sk.value'
    ):
        Late()


def test_a_dataclass_may_declare_state_and_a_test_may_put_a_stand_in() -> None:
    @dataclass
    class Settled(sk.Operator[str, str, str]):
        limit: int
        seen: sk.ValueState[int] = sk.value(int, 0)

        def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
            self.seen.set(self.seen.get() + 1)
            if self.seen.get() <= self.limit:
                ctx.emit(value)

    chain = Chain(ProcessStep("s", OperatorProcessor(Settled(1))))
    for _ in range(2):
        chain.push(b"k", "x", 1)
    assert chain.values == ["x"]

    stand_in: Any = object()
    operator = Assigning()
    operator.one = stand_in
    assert operator.one is stand_in


def test_an_agent_that_assigns_to_its_state_is_refused() -> None:
    def counts(value: str, ctx: sk.Context[str, int], seen: sk.ValueState[int] = sk.value(int, 0)) -> None:
        seen = seen.get() + 1  # type: ignore[assignment]

    with pytest.raises(InvalidPipeline, match=r'"seen" is state: write seen.set\(...\); at agent "counts"'):
        agent_processor(counts)
