import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.graph.pipeline import pipeline
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
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
