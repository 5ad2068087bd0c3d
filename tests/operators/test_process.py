from typing import Any, TypeVar

import pytest

from streamkit.errors import Misconfigured, UserCodeError
from streamkit.operators.process import Context, Operator, OperatorProcessor, ProcessStep, emitted_type
from streamkit.state.collection_views import map_of
from streamkit.state.views import value
from tests.operators.scope import Chain

R = TypeVar("R")


class Dedup(Operator[str, str, str]):
    seen = value(bool, False)

    def on_record(self, value: str, ctx: Context[str, str]) -> None:
        if not self.seen.get():
            self.seen.set(True)
            ctx.emit(value)


class Words(Operator[int, str, tuple[int, str, int]]):
    counts = map_of(str, int)
    total = value(int, 0)

    def open(self, ctx: Context[int, tuple[int, str, int]]) -> None:
        self.partition = ctx.partition

    def on_record(self, value: str, ctx: Context[int, tuple[int, str, int]]) -> None:
        self.total.set(self.total.get() + 1)
        self.counts[value] = self.counts.get(value, 0) + 1
        ctx.emit((ctx.key, value, self.counts[value]))
        ctx.emit((ctx.key, "total", self.total.get()), ctx.timestamp + self.partition)


class Echo(Operator[str, Any, Any]):
    def on_record(self, value: Any, ctx: Context[str, Any]) -> None:
        ctx.emit(ctx.key if value == "key" else value)


def step(operator: Operator[Any, Any, Any], key_type: Any = str) -> ProcessStep:
    return ProcessStep(type(operator).__name__, OperatorProcessor(operator), key_type)


def test_state_belongs_to_the_key_and_survives_a_restart() -> None:
    chain = Chain(step(Dedup()))
    for key in (b"a", b"b", b"a"):
        chain.push(key, "x", 1)
    chain.scope.end_span()
    again = chain.restarted()
    for key in (b"a", b"c"):
        again.push(key, "y", 2)
    assert [key for key, _, _ in chain.out + again.out] == [b"a", b"b", b"c"]


def test_the_context_gives_key_time_and_partition() -> None:
    chain = Chain(step(Words(), int), partition=3)
    chain.push(b"5", "hi", 100)
    chain.push(b"5", "hi", 200)
    assert chain.out == [
        (b"5", (5, "hi", 1), 100),
        (b"5", (5, "total", 1), 103),
        (b"5", (5, "hi", 2), 200),
        (b"5", (5, "total", 2), 203),
    ]


def test_each_task_has_an_operator_of_its_own() -> None:
    operator = Words()
    first, second = (Chain(step(operator, int), partition=p) for p in (1, 2))
    for chain in (first, second):
        chain.push(b"5", "hi", 0)
    assert [at for _, _, at in first.out + second.out] == [0, 1, 0, 2]
    assert not hasattr(operator, "partition")


def test_stores_are_named_for_step_and_attribute() -> None:
    assert [(spec.name, spec.kind) for spec in step(Words()).stores] == [
        ("Words.counts", "map"),
        ("Words.total", "value"),
    ]


def test_inherited_state_is_state() -> None:
    class Twice(Dedup):
        again = value(int, 0)

    assert [spec.name for spec in step(Twice()).stores] == ["Twice.seen", "Twice.again"]


def test_with_state_a_record_needs_a_key() -> None:
    with pytest.raises(UserCodeError, match="a record without a key"):
        Chain(step(Dedup())).push(None, "x", 1)


def test_without_state_a_record_needs_no_key_until_it_is_asked_for() -> None:
    chain = Chain(step(Echo()))
    chain.push(None, "x", 1)
    assert chain.out == [(None, "x", 1)]
    with pytest.raises(UserCodeError, match="a record without a key"):
        chain.push(None, "key", 1)


def test_state_outside_of_a_record_is_refused() -> None:
    class Early(Dedup):
        def open(self, ctx: Context[str, str]) -> None:  # noqa: ARG002
            self.seen.get()

    with pytest.raises(Misconfigured):
        Chain(step(Early()))


def test_the_emitted_type_is_read_off_the_class() -> None:
    class Open(Operator[str, R, R]):
        def on_record(self, value: R, ctx: Context[str, R]) -> None: ...

    class Closed(Open[int]):
        pass

    assert emitted_type(Dedup()) is str
    assert emitted_type(Closed()) is int
    assert emitted_type(Open()) is emitted_type(Echo()) is None
