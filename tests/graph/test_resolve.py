from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.model.duration import seconds
from streamkit.windows import tumbling
from tests.graph.shop import Dedup, by_number, by_page, clicks, counts, taps, top_pages, unique


def counted(plan: Plan) -> dict[str, int | None]:
    return {stage.name: stage.partitions for stage in plan.stages}


def test_a_shuffle_has_as_many_partitions_as_there_are_tasks_upstream() -> None:
    plan = resolve(top_pages().plan(), {"clicks": 6, "page-totals": 2})
    assert counted(plan) == {"clicks": 6, "by_page": 6}
    assert plan.shuffles() == {"top-pages.by_page.shuffle.1": 6}
    assert plan.changelogs() == {"top-pages.clicks.changelog.1": 6, "top-pages.by_page.changelog.1": 6}
    assert [each.partitions for stage in plan.stages for each in stage.outputs] == [6, 2]


def test_the_pipeline_or_the_key_by_may_fix_the_count() -> None:
    p = pipeline("p", partitions=12)
    keyed = p.read(clicks).key_by(by_page)
    keyed.key_by(by_number, partitions=3).count().write(counts)
    assert counted(resolve(p.plan(), {"clicks": 6})) == {"clicks": 6, "by_page": 12, "by_number": 3}


def test_a_stage_has_as_many_tasks_as_its_largest_input() -> None:
    p = pipeline("p")
    p.read(clicks).union(p.read(taps)).key_by(by_page).count().write(counts)
    plan = resolve(p.plan(), {"clicks": 2, "taps": 5})
    assert counted(plan) == {"clicks": 5, "by_page": 5}
    assert [each.partitions for each in plan.stages[0].inputs] == [2, 5]


def test_a_sink_that_is_not_known_stays_open() -> None:
    plan = resolve(top_pages().plan(), {"clicks": 6})
    assert plan.stages[1].outputs[0].partitions is None


def test_a_source_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match='topic "clicks" does not exist'):
        resolve(top_pages().plan(), {})


def test_more_partitions_than_key_groups_are_refused() -> None:
    with pytest.raises(InvalidPipeline, match="a shuffle cannot have 2000 partitions"):
        resolve(top_pages().plan(), {"clicks": 2000})


@given(st.integers(1, 64), st.integers(1, 64), st.one_of(st.none(), st.integers(1, 64)))
def test_every_input_has_a_count_that_its_stage_can_serve(a: int, b: int, fixed: int | None) -> None:
    p = pipeline("p")
    keyed = p.read(clicks).key_by(by_page, partitions=fixed).process(Dedup())
    p.read(taps).union(keyed).write(unique)
    plan = resolve(p.plan(), {"clicks": a, "taps": b})
    written = {each.topic: each.partitions for stage in plan.stages for each in stage.outputs}
    for stage in plan.stages:
        assert stage.partitions == max(each.partitions or 0 for each in stage.inputs)
        for each in stage.inputs:
            if each.kind == "shuffle":
                assert each.partitions == written[each.topic] == (fixed or a)
    assert resolve(plan, {"clicks": a, "taps": b}) == plan


# Another number of tasks than the pipeline says, for a generation that begins.


def chained(**options: Any) -> Pipeline:
    p = pipeline("p", **options)
    keyed = p.read(clicks).key_by(by_page)
    keyed.key_by(by_number).count().write(counts)
    keyed.write(unique)
    return p


@pytest.mark.parametrize("partitions", [None, 2, 12])
def test_parallelism_goes_before_what_the_pipeline_says(partitions: int | None) -> None:
    plan = resolve(chained(partitions=partitions).plan(), {"clicks": 6}, parallelism=4)
    assert counted(plan) == {"clicks": 6, "by_page": 4, "by_number": 4}
    assert plan.shuffles() == {"p.by_page.shuffle.1": 4, "p.by_number.shuffle.1": 4}
    assert plan.changelogs() == {
        "p.clicks.changelog.1": 6,
        "p.by_page.changelog.1": 4,
        "p.by_number.changelog.1": 4,
    }
    assert {each.topic: each.partitions for stage in plan.stages for each in stage.outputs} == {
        **plan.shuffles(),
        "page-counts": None,
        "unique": None,
    }
    assert resolve(plan, {"clicks": 6}, parallelism=4) == plan
    assert resolve(plan, {"clicks": 6}) == plan


def test_parallelism_goes_before_the_count_that_a_topic_was_created_with() -> None:
    existing = {"clicks": 6, "p.by_page.shuffle.1": 3}
    assert counted(resolve(chained().plan(), existing))["by_page"] == 3
    assert counted(resolve(chained().plan(), existing, parallelism=5))["by_page"] == 5


def test_a_count_of_the_key_by_itself_stays() -> None:
    p = pipeline("p", partitions=2)
    p.read(clicks).key_by(by_page, partitions=3).key_by(by_number).count().write(counts)
    plan = resolve(p.plan(), {"clicks": 6}, parallelism=8)
    assert counted(plan) == {"clicks": 6, "by_page": 3, "by_number": 8}


def test_windows_over_everything_stay_with_one_task() -> None:
    p = chained()
    p.read(taps).window_all(tumbling(seconds(60))).count(name="all").write(counts)
    plan = resolve(p.plan(), {"clicks": 6, "taps": 6}, parallelism=8)
    assert counted(plan)["window_all"] == 1
    assert counted(plan)["by_page"] == 8


def test_state_that_lies_by_a_topic_refuses_another_parallelism() -> None:
    p = chained()
    p.read_keyed(taps).count(name="taps").write(counts)
    assert counted(resolve(p.plan(), {"clicks": 6, "taps": 4}, parallelism=4))["taps"] == 4
    with pytest.raises(InvalidPipeline, match='stage "taps" cannot be shared among 8 tasks') as refused:
        resolve(p.plan(), {"clicks": 6, "taps": 4}, parallelism=8)
    assert refused.value.detail == (
        'it keeps state by the partitions of topic "taps", which has 4 partitions, and where the producers of that'
        " topic have put the keys"
    )
    assert "give each key_by that should have it partitions=8" in refused.value.hint


def test_so_does_a_stage_that_has_both() -> None:
    p = pipeline("p", partitions=3)
    keyed = p.read(clicks).key_by(by_page).count(name="a").unkeyed()
    p.read_keyed(taps).count(name="b").unkeyed().union(keyed).write(counts)
    with pytest.raises(InvalidPipeline, match='stage "by_page" cannot be shared among 5') as refused:
        resolve(p.plan(), {"clicks": 4, "taps": 4}, parallelism=5)
    assert 'topic "taps", which has 4 partitions' in refused.value.detail


def test_only_sources_that_feed_state_are_asked() -> None:
    p = pipeline("p")
    tapped = p.read_keyed(taps).reduce(min, name="least").unkeyed()
    tapped.union(p.read(clicks)).key_by(by_page).count(name="a").write(counts)
    assert counted(resolve(p.plan(), {"clicks": 6, "taps": 4}, parallelism=4)) == {"taps": 6, "by_page": 4}


def test_parallelism_helps_a_source_with_more_partitions_than_key_groups() -> None:
    assert counted(resolve(top_pages().plan(), {"clicks": 2000}, parallelism=8))["by_page"] == 8


def test_a_source_without_state_keeps_its_own_count() -> None:
    p = pipeline("p")
    p.read(taps).union(p.read(clicks).key_by(by_page).process(Dedup())).write(unique)
    assert counted(resolve(p.plan(), {"clicks": 2, "taps": 3}, parallelism=8)) == {"clicks": 2, "by_page": 8}
    assert counted(resolve(p.plan(), {"clicks": 2, "taps": 9}, parallelism=8)) == {"clicks": 2, "by_page": 9}


@pytest.mark.parametrize(
    ("partitions", "hint"), [(None, "add partitions to the topic"), (3, "change the partitions=")]
)
def test_parallelism_that_nothing_would_have_is_refused(partitions: int | None, hint: str) -> None:
    p = pipeline("p")
    stream = p.read(clicks)
    stream.write(unique)
    if partitions:
        stream.key_by(by_page, partitions=partitions).count().write(counts)
    with pytest.raises(
        InvalidPipeline, match="nothing in the pipeline can be shared among 8 tasks"
    ) as refused:
        resolve(p.plan(), {"clicks": 4}, parallelism=8)
    assert hint in refused.value.hint


@pytest.mark.parametrize("parallelism", [0, -1, 1025])
def test_a_parallelism_that_key_groups_cannot_have_is_refused(parallelism: int) -> None:
    told = f"a shuffle cannot have {parallelism} partitions; at parallelism={parallelism}"
    with pytest.raises(InvalidPipeline, match=told):
        resolve(chained().plan(), {"clicks": 4}, parallelism=parallelism)
