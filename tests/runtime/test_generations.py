"""Generations of one pipeline: each has its own internal topics, group and writers, and leaves the others alone."""

import pytest

import streamkit as sk
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.testing import Harness, harness

WORDS = sk.topic("words", str)
COUNTS = sk.topic("counts", int)


def counting() -> sk.Pipeline:
    pipeline = sk.pipeline("counting")
    pipeline.read(WORDS).key_by(str, name="by_word").count(name="n").write(COUNTS)
    return pipeline


def test_the_first_generation_has_the_group_of_the_pipelines_name_and_later_ones_their_own():
    assert counting().plan().group == "counting"
    later = counting().plan(generation=2).group, counting().plan(generation=12).group
    assert later == ("counting~2", "counting~12")
    # A worker of one generation retires the writers whose ids begin with its group and a dot: none of another's.
    assert not any(each.startswith("counting.") for each in later)


def test_a_later_generation_begins_anew_and_leaves_the_first_as_it_was(monkeypatch: pytest.MonkeyPatch):
    with Harness(counting(), workers=2, partitions=2) as running:
        running.send(WORDS, "a", "a", "b", key="x")
        running.run()
        assert sorted(running.read(COUNTS)) == [1, 1, 2]
        switch(running, 2, monkeypatch)
        running.run()
        assert sorted(running.read(COUNTS)) == [1, 1, 2]  # it has read all from the start, with empty state
        running.send(WORDS, "a", key="x")
        running.run()
        assert running.read(COUNTS) == [3]
        switch(running, 1, monkeypatch)
        running.run()
        assert running.read(COUNTS) == [3]  # it had read no further, and its state was still there


def switch(running: Harness, generation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop all workers of one generation; those of another start, on disks of their own."""

    def plan(pipeline: sk.Pipeline) -> Plan:
        return pipeline.plan(generation=generation)

    monkeypatch.setattr(harness, "require_plan", plan)
    running.scale(0)
    running.change_pipeline(counting())
    running.scale(2)


def test_no_internal_topic_of_two_generations_has_the_same_name_but_the_dead_letters():
    first, second = (
        resolve(counting().plan(generation=number), {"words": 2, "counts": 2}) for number in (1, 2)
    )
    topics = [{*plan.shuffles(), *plan.changelogs()} for plan in (first, second)]
    assert not topics[0] & topics[1]
    assert first.dead_letter_topic == second.dead_letter_topic
