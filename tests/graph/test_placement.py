"""Which state can be shared among another number of tasks, and which cannot."""

import pytest

import streamkit as sk
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.resolve import resolve
from streamkit.graph.stage import placement_of
from streamkit.model.duration import seconds
from streamkit.operators.process import Context, Operator
from streamkit.operators.side import Side
from streamkit.state.views import ValueState
from streamkit.windows import tumbling
from tests.graph.shop import Click, Dedup, by_number, by_page, clicks, counts, taps, unique


def behind_a_key_by() -> Pipeline:
    p = pipeline("p")
    p.read(clicks).key_by(by_page, name="s").count().write(counts)
    return p


def of_a_keyed_topic() -> Pipeline:
    p = pipeline("p")
    p.read_keyed(clicks, name="s").count().write(counts)
    return p


def of_an_agent_without_a_key() -> Pipeline:
    p = pipeline("p")

    @p.agent(clicks)
    def count_up(click: Click, ctx: Context[str, int], seen: ValueState[int] = sk.value(int, 0)) -> None:
        seen.set(seen.get() + 1)

    p.read(clicks, name="s")
    return p


def united_with_a_source_behind_the_state() -> Pipeline:
    p = pipeline("p")
    keyed = p.read(clicks).key_by(by_page, name="s").process(Dedup())
    p.read(taps).union(keyed).write(unique)
    return p


def united_with_state_of_a_source() -> Pipeline:
    p = pipeline("p")
    keyed = p.read(clicks).key_by(by_page, name="s").count(name="a")
    p.read_keyed(taps).count(name="b").unkeyed().union(keyed).write(counts)
    return p


def without_state() -> Pipeline:
    p = pipeline("p")
    p.read(clicks, name="s").write(unique)
    return p


def without_state_behind_a_key_by() -> Pipeline:
    p = pipeline("p")
    p.read(clicks).key_by(by_page, name="s").write(unique)
    return p


def without_state_of_both() -> Pipeline:
    p = pipeline("p")
    p.read(taps).union(p.read(clicks).key_by(by_page, name="s")).write(unique)
    return p


@pytest.mark.parametrize(
    ("made", "placement"),
    [
        (behind_a_key_by, "groups"),
        (of_a_keyed_topic, "source"),
        (of_an_agent_without_a_key, "source"),
        (united_with_a_source_behind_the_state, "groups"),
        (united_with_state_of_a_source, "source"),
        (without_state, "source"),
        (without_state_behind_a_key_by, "groups"),
        (without_state_of_both, "source"),
    ],
)
def test_a_stage_is_placed_as_its_state_is(made, placement) -> None:  # type: ignore[no-untyped-def]
    assert made().plan().stage("s").placement == placement


def test_one_source_among_the_inputs_is_enough() -> None:
    assert placement_of(["shuffle", "shuffle"]) == "groups"
    assert placement_of(["shuffle", "source"]) == placement_of(["source"]) == "source"


def test_each_store_is_fed_by_its_own_inputs() -> None:
    fed = united_with_state_of_a_source().plan().stage("s").fed_by()
    assert {store: [each.topic for each in inputs] for store, inputs in fed.items()} == {
        "a": ["p.s.shuffle.1"],
        "b": ["taps"],
    }


def test_two_stores_of_one_stage_may_have_other_owners() -> None:
    p = pipeline("p")
    a = p.read(clicks).key_by(by_page, partitions=3).count(name="a")
    b = p.read(taps).key_by(by_number, partitions=5).count(name="b")
    a.unkeyed().union(b).write(counts)
    stage = resolve(p.plan(), {"clicks": 2, "taps": 2}).stage("by_page")
    assert (stage.partitions, stage.placement) == (5, "groups")
    assert {store: [each.partitions for each in fed] for store, fed in stage.fed_by().items()} == {
        "a": [3],
        "b": [5],
    }


def test_windows_and_their_timers_are_fed_by_the_shuffle() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).window(tumbling(seconds(60))).count().write(counts)
    stage = p.plan().stage("by_page")
    assert len(stage.stores) > 1
    assert stage.fed_by() == {store.name: stage.inputs for store in stage.stores}


def test_what_leaves_by_a_side_output_feeds_too() -> None:
    odd = Side("odd", Click)

    class Sorting(Operator[str, Click, Click]):
        sides = (odd,)

        def on_record(self, value: Click, ctx: Context[str, Click]) -> None:
            ctx.emit_to(odd, value)

    p = pipeline("p")
    sorted_ = p.read_keyed(clicks, name="s").process(Sorting())
    sorted_.side(odd).count(name="odds").write(counts)
    assert p.plan().stage("s").fed_by()["odds"] == p.plan().stage("s").inputs
    assert p.plan().stage("s").placement == "source"
