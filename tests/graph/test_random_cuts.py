"""Laws of a start from a cut that hold for every pipeline, built at random."""

import json
from collections.abc import Iterable

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.graph.fingerprint import Description, Drop, compare, describe_plan
from streamkit.graph.from_cut import compare_with_cut, describe_for_cut, shuffle_name
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from tests.graph.test_random_graphs import RECIPES, TOPICS, Recipe, build, planned

COUNTS = {topic.name: number + 1 for number, topic in enumerate(TOPICS)}
STATEFUL = RECIPES.filter(lambda recipe: any(kind == "count" for kind, _, _ in recipe))


def read_back(described: Description) -> Description:
    read: Description = json.loads(json.dumps(described))
    return read


def stores_of(plan: Plan) -> dict[str, str]:
    return {store.name: stage.name for stage in plan.stages for store in stage.stores}


def plan_of(recipe: Recipe) -> Plan:
    plan = planned(build(recipe)[0])
    assume(plan is not None)
    assert plan is not None
    return plan


def another(recipe: Recipe, *, name: str | None = None, generation: int = 2) -> Plan:
    suffix = "" if name is None else f"-{name}"
    return build(recipe)[0].plan(generation=generation, name=name, sink_suffix=suffix)


def resolved_if_free(plan: Plan, counts: dict[str, int], parallelism: int | None) -> Plan | None:
    try:
        return resolve(plan, counts, parallelism=parallelism)
    except InvalidPipeline as error:
        if f"cannot be shared among {parallelism} tasks" not in error.problem:
            raise
        return None


def without(recipe: Recipe, places: Iterable[int]) -> Recipe:
    """The recipe with steps without state in some places, so that all others keep their names."""
    return [("key_by", *rest) if at in places else (kind, *rest) for at, (kind, *rest) in enumerate(recipe)]  # type: ignore[misc]


def owners(plan: Plan) -> list[int | None]:
    """For each store the count of the one input that feeds it."""
    fed = [inputs for stage in plan.stages for inputs in stage.fed_by().values()]
    assert all(len(inputs) == 1 for inputs in fed)
    return [inputs[0].partitions for inputs in fed]


@settings(max_examples=200, deadline=None)
@given(RECIPES, st.sampled_from([describe_plan, describe_for_cut]), st.sampled_from([None, "q", "p-2"]))
def test_another_generation_or_name_keeps_everything(recipe: Recipe, describe, name) -> None:  # type: ignore[no-untyped-def]
    plan = resolve(plan_of(recipe), COUNTS)
    new = resolve(another(recipe, name=name), COUNTS)
    found = compare_with_cut(read_back(describe(plan)), new)
    assert found.refused() == []
    assert found.kept == stores_of(plan) == stores_of(new)
    assert [*found.moved, *found.empty, *found.dropped] == []
    assert all(each.endswith(" is kept.") for each in found.in_words())
    assert found.origins() == {stage.name: (stage.name,) for stage in plan.stages if stage.stores}


@settings(max_examples=200, deadline=None)
@given(STATEFUL, st.integers(1, 64), st.one_of(st.none(), st.integers(1, 64)))
def test_counts_may_always_change_behind_a_key_by(
    recipe: Recipe, grown: int, parallelism: int | None
) -> None:
    plan = resolve(plan_of(recipe), COUNTS)
    counts = COUNTS if any(kind == "count_keyed" for kind, _, _ in recipe) else dict.fromkeys(COUNTS, grown)
    new = resolved_if_free(another(recipe), counts, parallelism)
    if new is None:
        assert "source" in {stage.placement for stage in plan.stages if stage.stores}
        return
    found = compare_with_cut(read_back(describe_for_cut(plan)), new)
    assert (found.refused(), found.kept) == ([], stores_of(plan))
    for each, before, after in zip(found.taken.values(), owners(plan), owners(new), strict=True):
        assert (each.tasks_before, each.tasks) == (before, after)
        assert each.placement == "groups" or before == after
        assert each.placement == "source" or parallelism in (None, after)


@settings(max_examples=200, deadline=None)
@given(STATEFUL, st.data())
def test_a_step_with_state_that_is_gone_is_a_drop_and_one_that_is_new_is_empty(
    recipe: Recipe, data: st.DataObject
) -> None:
    stateful = [at for at, (kind, _, _) in enumerate(recipe) if kind == "count"]
    gone = data.draw(st.sets(st.sampled_from(stateful), min_size=1))
    fewer = without(recipe, gone)
    plan, new = resolve(plan_of(recipe), COUNTS), resolve(plan_of(fewer), COUNTS)
    names = {f"c{at}" for at in gone}
    found = compare_with_cut(read_back(describe_for_cut(plan)), new)
    assert all(isinstance(each, Drop) for each in found.problems)
    assert len(found.refused()) == len(gone)
    assert found.refused(allow_dropped=True) == []
    assert found.dropped.keys() == names
    assert {store: each.stage for store, each in found.taken.items()} == stores_of(new)
    back = compare_with_cut(read_back(describe_for_cut(new)), plan)
    assert (back.refused(), back.empty.keys()) == ([], names)


@settings(max_examples=200, deadline=None)
@given(RECIPES, RECIPES)
def test_of_any_two_plans_each_store_has_one_fate(first: Recipe, second: Recipe) -> None:
    old, new = resolve(plan_of(first), COUNTS), resolve(plan_of(second), COUNTS)
    found = compare_with_cut(read_back(describe_for_cut(old)), new)
    fates = [set(found.kept), set(found.moved), set(found.empty)]
    assert len(set().union(*fates)) == sum(map(len, fates))
    assert set().union(*fates) <= stores_of(new).keys()
    assert found.dropped.keys() == stores_of(old).keys() - stores_of(new).keys()
    assert found.empty.keys() == stores_of(new).keys() - stores_of(old).keys()
    assert all(stores_of(old)[store] == stores_of(new)[store] == stage for store, stage in found.kept.items())


@settings(max_examples=200, deadline=None)
@given(RECIPES, RECIPES)
def test_what_workers_may_go_on_with_may_be_started_from_a_cut(first: Recipe, second: Recipe) -> None:
    alike = dict.fromkeys(COUNTS, 2)
    old, new = resolve(plan_of(first), alike), resolve(plan_of(second), alike)
    if compare(describe_plan(old), describe_plan(new)) == []:
        assert compare_with_cut(describe_for_cut(old), new).refused() == []


@settings(max_examples=200, deadline=None)
@given(RECIPES, st.integers(1, 12), st.sampled_from([None, "q"]))
def test_every_shuffle_is_known_by_its_key_by(recipe: Recipe, generation: int, name: str | None) -> None:
    plan_of(recipe)
    plan = another(recipe, name=name, generation=generation)
    keys = {step.step.name for stage in plan.stages for step in stage.steps if step.step.kind == "key_by"}
    described = describe_plan(plan)
    assert {shuffle_name(topic, described) for topic in plan.shuffles()} == keys


@settings(max_examples=100, deadline=None)
@given(RECIPES)
def test_what_stands_beside_a_cut_holds_what_workers_store(recipe: Recipe) -> None:
    plan = resolve(plan_of(recipe), COUNTS)
    described = describe_for_cut(plan)
    for stage in described["stages"].values():
        stage.pop("fed_by", None)
    assert described == describe_plan(plan)
