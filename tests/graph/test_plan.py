from streamkit.graph.pipeline import pipeline
from streamkit.graph.plan import Plan
from streamkit.graph.policy import ErrorPolicy, fail
from streamkit.graph.stage import Target
from streamkit.model.duration import seconds
from streamkit.operators.exchange import ShuffleStep
from streamkit.windows import tumbling
from tests.graph.shop import (
    Click,
    Dedup,
    by_number,
    by_page,
    clicks,
    counts,
    is_human,
    taps,
    top_pages,
    totals,
    unique,
)


def to(*steps: int) -> tuple[Target, ...]:
    """Where records go on to, by main inputs."""
    return tuple(map(Target, steps))


def names(plan: Plan, stage: str) -> list[str]:
    return [each.step.name for each in plan.stage(stage).steps]


def test_a_pipeline_is_cut_at_its_shuffle() -> None:
    plan = top_pages().plan()
    assert [stage.name for stage in plan.stages] == ["clicks", "by_page"]
    first, second = plan.stages
    assert names(plan, "clicks") == ["is_human", "by_page"]
    assert names(plan, "by_page") == ["per_page", "to_total", "write_page-totals"]
    assert [(each.topic, each.kind, each.entry) for each in first.inputs] == [("clicks", "source", to(0))]
    assert [(each.topic, each.kind) for each in first.outputs] == [("top-pages.by_page.shuffle.1", "shuffle")]
    assert [(each.topic, each.kind, each.entry) for each in second.inputs] == [
        ("top-pages.by_page.shuffle.1", "shuffle", to(0))
    ]
    assert [(each.topic, each.kind) for each in second.outputs] == [("page-totals", "sink")]
    assert [each.downstream for each in second.steps] == [to(1), to(2), ()]
    assert [store.name for store in second.stores] == ["per_page"]
    assert (first.changelog, second.changelog) == (
        "top-pages.clicks.changelog.1",
        "top-pages.by_page.changelog.1",
    )


def test_the_plan_names_its_topics() -> None:
    plan = top_pages().plan(generation=3)
    assert plan.sources() == ("clicks",)
    assert plan.sinks() == ("page-totals",)
    assert plan.shuffles() == {"top-pages.by_page.shuffle.3": None}
    assert plan.changelogs() == {"top-pages.clicks.changelog.3": None, "top-pages.by_page.changelog.3": None}
    assert plan.dead_letter_topic == "top-pages.dead-letters"


def test_building_twice_gives_equal_plans() -> None:
    pages = top_pages()
    assert pages.plan() == pages.plan()


def test_a_shuffle_carries_the_types_it_needs() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_number).count().write(counts)
    plan = p.plan()
    shuffle = plan.stage("clicks").steps[0].step
    assert isinstance(shuffle, ShuffleStep)
    assert (shuffle.key_type, shuffle.value_type) == (int, Click)
    assert (plan.stage("by_number").inputs[0].key_type, plan.stage("by_number").inputs[0].value_type) == (
        int,
        Click,
    )


def test_united_sources_are_one_stage_with_several_inputs() -> None:
    p = pipeline("p")
    p.read(clicks).filter(is_human).union(p.read(taps)).key_by(by_page).count().write(counts)
    plan = p.plan()
    assert [stage.name for stage in plan.stages] == ["clicks", "by_page"]
    stage = plan.stages[0]
    assert [(each.topic, each.entry) for each in stage.inputs] == [("clicks", to(0)), ("taps", to(1))]
    assert names(plan, "clicks") == ["is_human", "by_page"]
    assert [each.downstream for each in stage.steps] == [to(1), ()]


def test_a_topic_is_an_input_of_one_stage_however_often_it_is_read() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).count().write(counts)
    p.read(clicks).key_by(by_number).process(Dedup()).write(unique)  # type: ignore[arg-type]
    p.read_keyed(clicks).filter(is_human).write(unique)
    plan = p.plan()
    assert [stage.name for stage in plan.stages] == ["clicks", "by_page", "by_number"]
    assert [(each.topic, each.entry) for each in plan.stages[0].inputs] == [("clicks", to(0, 1, 2))]
    assert [topic for stage in plan.stages for topic in (each.topic for each in stage.inputs)].count(
        "clicks"
    ) == 1


def test_a_fork_is_a_fan_out_inside_the_stage() -> None:
    p = pipeline("p")
    stream = p.read(clicks).filter(is_human)
    stream.write(unique)
    stream.key_by(by_page).count().write(counts)
    stage = p.plan().stage("clicks")
    assert stage.steps[0].downstream == to(1, 2)


def test_a_union_of_a_stream_with_itself_gives_every_record_twice() -> None:
    p = pipeline("p")
    stream = p.read(clicks)
    stream.union(stream).write(unique)
    assert p.plan().stages[0].inputs[0].entry == to(0, 0)


def test_unrelated_sources_are_stages_of_their_own() -> None:
    p = pipeline("p")
    p.read(clicks).write(unique)
    p.read(taps, name="from-phones").write(unique)
    assert [stage.name for stage in p.plan().stages] == ["clicks", "from-phones"]


def test_a_topic_keyed_already_needs_no_shuffle() -> None:
    p = pipeline("p")
    p.read_keyed(clicks).count().write(counts)
    plan = p.plan()
    assert names(plan, "clicks") == ["count", "write_page-counts"]
    assert [store.name for store in plan.stages[0].stores] == ["count"]


def test_branches_of_one_keyed_stream_can_be_united_and_stay_keyed() -> None:
    p = pipeline("p")
    keyed = p.read(clicks).key_by(by_page)
    keyed.filter(is_human).union(keyed.process(Dedup())).count().write(counts)
    assert [each.downstream for each in p.plan().stage("by_page").steps] == [to(2), to(2), to(3), ()]


def test_every_stage_comes_after_the_stages_it_reads_from() -> None:
    p = pipeline("p")
    late = p.read(taps)
    keyed = p.read(clicks).key_by(by_page).process(Dedup())
    late.union(keyed).write(unique)
    plan = p.plan()
    assert [stage.name for stage in plan.stages] == ["clicks", "by_page"]
    assert [each.topic for each in plan.stages[1].inputs] == ["taps", "p.by_page.shuffle.1"]


def test_names_that_only_tell_apart_are_numbered() -> None:
    p = pipeline("p")
    stream = p.read(clicks).filter(lambda click: click.number).filter(lambda click: click.page)
    stream.filter(is_human).filter(is_human).filter(is_human, name="filter").write(unique)
    stream.write(unique)
    assert names(p.plan(), "clicks") == [
        "filter_2",
        "filter_3",
        "is_human",
        "is_human_2",
        "filter",
        "write_unique",
        "write_unique_2",
    ]


def test_a_record_fails_clean_until_something_above_has_effects() -> None:
    p = pipeline("p")
    keyed = p.read(clicks).filter(is_human).key_by(by_page)
    keyed.map(lambda click: click, to=Click).reduce(lambda old, _: old, name="best").filter(is_human).write(
        unique
    )
    keyed.filter(is_human).process(Dedup()).write(unique)
    plan = p.plan()
    assert [each.fails_clean for each in plan.stage("clicks").steps] == [True, True]
    by_name = {each.step.name: each.fails_clean for each in plan.stage("by_page").steps}
    assert by_name == {
        "map": True,
        "best": False,  # its function may work on the state in place
        "is_human_2": False,
        "write_unique": False,
        "is_human_3": False,  # the other branch has been served
        "Dedup": False,
        "write_unique_2": False,
    }


def test_a_process_step_may_have_effects_before_it_raises() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).process(Dedup()).write(unique)
    assert [each.fails_clean for each in p.plan().stage("by_page").steps] == [False, False]


def test_the_error_policy_is_in_the_plan() -> None:
    assert top_pages().plan().on_error == ErrorPolicy("dead_letter", 0, 0.1)
    assert top_pages(on_error=fail()).plan().on_error.action == "fail"


def test_writing_the_totals_needs_nothing_more() -> None:
    assert top_pages().plan().sinks() == (totals.name,)


def test_a_record_that_raises_in_a_window_may_have_left_a_trace() -> None:
    p = pipeline("p")
    windows = p.read(clicks).key_by(by_page).window(tumbling(seconds(1)))
    windows.count(name="n").peek(print)
    assert [each.fails_clean for each in p.plan().stage("by_page").steps] == [False, False]
