from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import UserCodeError
from streamkit.operators.aggregators import Aggregator, count, max_of, min_of, sum_of
from streamkit.operators.keyed import Aggregate, Reduce
from streamkit.operators.stateless import Map
from tests.operators.scope import Chain

KEYS = st.sampled_from([b"a", b"b", b"c"])


class Totals(msgspec.Struct):
    number: int
    total: float


class Average(Aggregator[float, Totals, float]):
    def create(self) -> Totals:
        return Totals(0, 0.0)

    def add(self, accumulator: Totals, value: float, /) -> Totals:
        return Totals(accumulator.number + 1, accumulator.total + value)

    def result(self, accumulator: Totals, /) -> float:
        return accumulator.total / accumulator.number


def test_reduce_keeps_one_value_per_key_and_sends_each_new_one_on() -> None:
    chain = Chain(Reduce("longest", lambda old, new: max(old, new, key=len), str))
    for key, value in ((b"a", "x"), (b"b", "long"), (b"a", "xyz"), (b"a", "y")):
        chain.push(key, value, 7)
    assert chain.out == [(b"a", "x", 7), (b"b", "long", 7), (b"a", "xyz", 7), (b"a", "xyz", 7)]


def test_a_reduce_that_raises_leaves_the_state_as_it_was() -> None:
    chain = Chain(Reduce("divide", lambda old, new: old // new, int))
    chain.push(b"a", 8, 1)
    with pytest.raises(ZeroDivisionError):
        chain.push(b"a", 0, 2)
    chain.push(b"a", 2, 3)
    assert chain.values == [8, 4]


def test_a_reduce_to_none_forgets_the_key() -> None:
    step = Reduce("until_zero", lambda old, new: (old + new) or None, int)
    chain = Chain(step)
    for number in (1, -1, 5):
        chain.push(b"a", number, 1)
    assert chain.values == [1, None, 5]


@given(st.lists(KEYS), st.integers(0, 20))
def test_count_counts_across_restarts(keys: list[bytes], restart_at: int) -> None:
    step = Aggregate("count", count())
    before, after = keys[:restart_at], keys[restart_at:]
    first = Chain(step)
    for key in before:
        first.push(key, None, 0)
    first.scope.end_span()
    second = first.restarted()
    for key in after:
        second.push(key, None, 0)
    seen: Counter[bytes] = Counter()
    for owner, value, _ in first.out + second.out:
        assert owner is not None
        seen[owner] += 1
        assert value == seen[owner]
    assert sum(seen.values()) == len(keys)


@given(st.lists(st.tuples(KEYS, st.integers(-100, 100)), min_size=1))
def test_sum_min_and_max_are_those_of_python(records: list[tuple[bytes, int]]) -> None:
    for make, reference in ((sum_of, sum), (min_of, min), (max_of, max)):
        chain = Chain(Aggregate("fold", make(lambda value: value)))
        for key, value in records:
            chain.push(key, value, 0)
        for place, (key, value) in enumerate(records):
            seen = [v for k, v in records[: place + 1] if k == key]
            assert chain.out[place] == (key, reference(seen), 0), value


def test_an_aggregator_of_the_user_keeps_its_accumulator_as_state() -> None:
    step = Aggregate("average", Average())
    chain = Chain(step)
    for value in (1.0, 3.0):
        chain.push(b"a", value, 0)
    chain.scope.end_span()
    again = chain.restarted()
    again.push(b"a", 5.0, 0)
    assert chain.values + again.values == [1.0, 2.0, 3.0]
    assert step.stores[0].value_type is Totals


def test_a_fold_without_a_declared_type_checks_what_it_will_have_to_read_back() -> None:
    chain = Chain(Aggregate("sum", sum_of(lambda value: value)))
    with pytest.raises(UserCodeError) as caught:
        chain.push(b"a", 1j, 0)
    assert caught.value.problem == "sum met a complex where it expected int | float"
    assert caught.value.hint == "say of which type the results are: pass to=complex, or annotate the function"


@pytest.mark.parametrize(
    "step",
    [
        Reduce("step", lambda old, _: old, int),
        Aggregate("step", count()),
        Aggregate("step", sum_of(lambda value: value)),
        Aggregate("step", Average()),
    ],
    ids=["reduce", "count", "sum", "own"],
)
def test_a_record_without_a_key_is_refused(step: Any) -> None:
    chain = Chain(step)
    with pytest.raises(UserCodeError, match="a record without a key reached a step that works by key"):
        chain.push(None, 1, 0)


@given(st.lists(st.lists(st.tuples(KEYS, st.integers(0, 9))), max_size=4))
def test_latest_sends_one_result_per_key_and_span_and_it_is_the_last_of_each(
    spans: list[list[tuple[bytes, int]]],
) -> None:
    each, latest = Chain(Aggregate("sum", sum_of(int))), Chain(Aggregate("sum", sum_of(int), "latest"))
    time = 0
    for span in spans:
        start_each, start_latest = len(each.out), len(latest.out)
        for key, value in span:
            time += 1
            each.push(key, value, time)
            latest.push(key, value, time)
        assert len(latest.out) == start_latest
        each.scope.end_span()
        latest.scope.end_span()
        expected = {key: (key, value, at) for key, value, at in each.out[start_each:]}
        assert latest.out[start_latest:] == list(expected.values())


def test_latest_after_latest_loses_nothing_at_the_end_of_a_span() -> None:
    chain = Chain(
        Aggregate("first", count(), "latest"),
        Map("same", lambda n: n),
        Aggregate("second", sum_of(int), "latest"),
    )
    for _ in range(3):
        chain.push(b"a", None, 1)
    chain.scope.end_span()
    assert chain.out == [(b"a", 3, 1)]


def test_keyed_steps_have_effects_and_a_store_of_their_name() -> None:
    for step in (Reduce("mine", max, int), Aggregate("mine", count())):
        assert step.has_effects
        assert [store.name for store in step.stores] == ["mine"]
