"""Laws that hold for every pipeline: built at random, planned, and run on the spot against a naive reading."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.graph.fingerprint import compare, describe_plan
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.graph.stage import Stage, Target
from streamkit.model.topic import topic
from streamkit.operators.step import MAIN, Push
from tests.operators.scope import StepScope

Recipe = list[tuple[str, int, int]]
RECIPES = st.lists(
    st.tuples(
        st.sampled_from(["read", "map", "flat_map", "union", "key_by", "count", "count_keyed"]),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    max_size=14,
)
TOPICS = [topic(f"in-{number}", int) for number in range(3)]


def twice(number: int) -> list[int]:
    return [number, number]


def build(recipe: Recipe) -> tuple[Pipeline, dict[str, Counter[Any]]]:
    """A pipeline, and what each of its sinks must hold after every source has had the records 1, 2, 3."""
    p = pipeline("p")
    streams: list[tuple[Any, Counter[int]]] = [(p.read(TOPICS[0]), Counter([1, 2, 3]))]
    for place, (kind, first, second) in enumerate(recipe):
        stream, expected = streams[first % len(streams)]
        other, more = streams[second % len(streams)]
        if kind in ("read", "count_keyed"):  # all records of a source have one key
            source = TOPICS[first % 3]
            counted = kind == "count_keyed" and p.read_keyed(source).count(name=f"t{place}").unkeyed()
            streams.append((counted or p.read(source), Counter([1, 2, 3])))
        elif kind == "map":
            streams.append((stream.map(lambda n: n + 1, to=int), Counter(n + 1 for n in expected.elements())))
        elif kind == "flat_map":
            streams.append((stream.flat_map(twice), expected + expected))
        elif kind == "union":
            streams.append((stream.union(other), expected + more))
        elif kind == "key_by":
            keyed = stream.key_by(lambda n: n, key_type=int, name=f"k{place}")
            streams.append((keyed.unkeyed(), expected))
        else:
            counted = stream.key_by(lambda n: n, key_type=int, name=f"k{place}").count(name=f"c{place}")
            streams.append(
                (counted.unkeyed(), Counter(m for n in expected.values() for m in range(1, n + 1)))
            )
    for number, (stream, _) in enumerate(streams):
        stream.write(topic(f"out-{number}", int))
    return p, {f"out-{number}": expected for number, (_, expected) in enumerate(streams)}


def planned(p: Pipeline) -> Plan | None:
    try:
        return p.plan()
    except InvalidPipeline as error:
        if "read its own output" not in error.problem:  # the one mistake that a recipe can make
            raise
        return None


def bind(stage: Stage, scope: StepScope) -> Callable[[tuple[Target, ...], bytes | None, Any, int], None]:
    pushes: dict[Target, Push] = {}

    def enter(targets: tuple[Target, ...], key: bytes | None, value: Any, time: int) -> None:
        for target in targets:
            pushes[target](key, value, time)

    for each in reversed(stage.steps):
        bound = each.step.bind({MAIN: partial(enter, each.downstream)}, scope)
        pushes |= {Target(each.id, port): push for port, push in bound.items()}
    return enter


def run(plan: Plan) -> dict[str, Counter[Any]]:
    """Every stage in one task, upstream first: what comes into the sinks."""
    topics: dict[str, list[tuple[bytes | None, bytes | None, int]]] = {
        name: [(b"k", b"%d" % number, 0) for number in (1, 2, 3)] for name in plan.sources()
    }
    for stage in plan.stages:
        scope = StepScope(*(each.step for each in stage.steps))
        enter = bind(stage, scope)
        for source in stage.inputs:
            decode = source.value_codec().decode
            for key, data, time in topics.get(source.topic, []):
                enter(source.entry, key, decode(data or b""), time)
        for name, written in scope.written.items():
            topics.setdefault(name, []).extend(written)
    return {name: Counter(int(data or b"") for _, data, _ in topics[name]) for name in plan.sinks()}


@settings(max_examples=200, deadline=None)
@given(RECIPES)
def test_every_plan_gives_what_the_pipeline_says(recipe: Recipe) -> None:
    p, expected = build(recipe)
    if plan := planned(p):
        assert run(plan) == expected


@settings(max_examples=200, deadline=None)
@given(RECIPES)
def test_every_plan_is_well_formed(recipe: Recipe) -> None:
    p, expected = build(recipe)
    plan = planned(p)
    if plan is None:
        return
    inputs = [each.topic for stage in plan.stages for each in stage.inputs]
    steps = [each.step.name for stage in plan.stages for each in stage.steps]
    assert len(set(inputs)) == len(inputs)
    assert len(set(steps)) == len(steps)
    assert set(plan.sinks()) == set(expected)
    written: set[str] = set()
    for stage in plan.stages:
        assert {each.topic for each in stage.inputs if each.kind == "shuffle"} <= written
        written |= {each.topic for each in stage.outputs}
        for place, each in enumerate(stage.steps):
            assert each.id == place
            assert all(after.step > place for after in each.downstream)
    counts = {f"in-{number}": number + 1 for number in range(3)}
    assert all(stage.partitions for stage in resolve(plan, counts).stages)
    assert compare(describe_plan(plan), describe_plan(resolve(plan, counts))) == []
