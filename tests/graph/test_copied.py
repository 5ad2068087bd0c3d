"""A copy of a pipeline: what has another name, what must have one, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from streamkit.errors import InvalidPipeline
from streamkit.graph.from_cut import compare_with_cut, describe_for_cut
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.model.duration import seconds
from streamkit.operators.exchange import WriteStep
from streamkit.windows import tumbling
from tests.graph.shop import by_page, clicks, counts, taps, top_pages, unique


def two_sinks() -> Pipeline:
    p = pipeline("p")
    keyed = p.read(clicks).key_by(by_page, name="s")
    keyed.window(tumbling(seconds(60)), late=unique).count().write(counts)
    return p


def test_a_copy_has_internal_topics_of_its_own() -> None:
    copy = top_pages().plan(name="b", sink_suffix="-b")
    assert (copy.name, copy.group) == ("b", "b")
    assert copy.dead_letter_topic == "b.dead-letters"
    assert copy.shuffles() == {"b.by_page.shuffle.1": None}
    assert copy.changelogs() == {"b.clicks.changelog.1": None, "b.by_page.changelog.1": None}
    assert copy.sources() == ("clicks",)
    assert copy.sinks() == ("page-totals-b",)
    assert copy.stage("clicks").steps[-1].step.topic == "b.by_page.shuffle.1"  # type: ignore[attr-defined]


def test_a_copy_may_be_of_another_generation_too() -> None:
    copy = top_pages().plan(generation=3, name="b", sink_suffix="-b")
    assert (copy.group, copy.shuffles()) == ("b~3", {"b.by_page.shuffle.3": None})


def test_everything_that_is_written_gets_the_suffix() -> None:
    plan = two_sinks().plan(name="b", sink_suffix="-b")
    assert set(plan.sinks()) == {"page-counts-b", "unique-b"}
    writes = [each.step for each in plan.stage("s").steps if isinstance(each.step, WriteStep)]
    assert {(step.name, step.topic) for step in writes} == {
        ("write_page-counts", "page-counts-b"),
        ("write_unique", "unique-b"),
    }


def test_sinks_may_be_named_one_by_one() -> None:
    plan = two_sinks().plan(name="b", sinks={"unique": "late-of-b"}, sink_suffix="-b")
    assert set(plan.sinks()) == {"page-counts-b", "late-of-b"}


def test_a_sink_of_both_must_be_meant() -> None:
    plan = two_sinks().plan(name="b", sinks={"unique": "unique", "page-counts": "counts-of-b"})
    assert set(plan.sinks()) == {"unique", "counts-of-b"}


def test_the_pipeline_itself_is_not_changed() -> None:
    p = top_pages()
    before = p.plan()
    p.plan(name="b", sink_suffix="-b")
    assert p.plan() == before == p.plan(name="top-pages")


def test_a_copy_is_started_from_a_cut_of_the_first() -> None:
    found = compare_with_cut(
        describe_for_cut(two_sinks().plan()), two_sinks().plan(name="b", sink_suffix="-b")
    )
    assert (set(found.kept), found.refused()) == ({"count", "count.event_timers"}, [])


@pytest.mark.parametrize(
    ("made", "given", "told"),
    [
        (
            top_pages,
            {"name": "b"},
            'a copy of pipeline "top-pages" by the name of "b" would write to "page-totals"',
        ),
        (two_sinks, {"name": "b", "sinks": {"unique": "u"}}, 'would write to "page-counts" too'),
        (
            two_sinks,
            {"name": "b", "sinks": {"uniqe": "u"}},
            'topic "uniqe" is to be written under another name',
        ),
        (two_sinks, {"name": "b", "sinks": {"unique": "u", "page-counts": "u"}}, 'would both be in "u"'),
        (
            two_sinks,
            {"name": "b", "sinks": {"unique": "page-counts", "page-counts": "u"}},
            'would both be in "page-counts"',
        ),
        (two_sinks, {"name": "b.c", "sink_suffix": "-b"}, 'pipeline name "b.c" has characters'),
        (two_sinks, {"name": "", "sink_suffix": "-b"}, 'pipeline name "" has characters'),
        (two_sinks, {"name": "b", "sink_suffix": " b"}, "which Kafka does not take"),
        (two_sinks, {"name": "b", "sinks": {"unique": "clicks"}, "sink_suffix": "-b"}, "is read and written"),
        (
            two_sinks,
            {"name": "b", "sinks": {"unique": "b.dead-letters"}, "sink_suffix": "-b"},
            "keeps its dead letters",
        ),
    ],
)
def test_a_copy_that_would_mix_what_belongs_apart_is_refused(
    made: Callable[[], Pipeline], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        made().plan(**given)


def test_a_pipeline_that_writes_nothing_needs_no_suffix() -> None:
    p = pipeline("p")
    p.read(taps).peek(print)
    assert p.plan(name="b").group == "b"
