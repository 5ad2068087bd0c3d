import time
from datetime import UTC, datetime

import pytest

import streamkit as sk
from streamkit.errors import Misconfigured
from streamkit.testing import Harness
from streamkit.windows import sliding, tumbling
from tests.runtime.pages import COUNTS, VIEWS, View, counting, page_of

OTHER = sk.topic("visits", View)


def broken() -> sk.Pipeline:
    pipeline = sk.pipeline("broken")
    pipeline.read(VIEWS).map(lambda view: view.page.nothing, to=View).write(sk.topic("out", View))
    return pipeline


def windowed() -> sk.Pipeline:
    pipeline = sk.pipeline("windowed")
    keyed = pipeline.read(VIEWS).key_by(page_of)
    keyed.window(tumbling(sk.minutes(1))).count(name="per_minute").write(sk.topic("minutes", int))
    keyed.window(sliding(sk.minutes(1))).count(name="last_minute").write(sk.topic("sliding", int))
    keyed.count(name="total").write(sk.topic("totals", int))
    return pipeline


def test_it_begins_at_the_present_time_unless_told_otherwise():
    before = int(time.time() * 1000)
    with Harness(counting()) as harness:
        assert before <= harness.now_ms <= int(time.time() * 1000) + 60_000
    with Harness(counting(), start=1_000) as harness:
        assert 1_000 <= harness.now_ms < 60_000
    with Harness(counting(), start=datetime(2020, 1, 1, tzinfo=UTC)) as harness:
        assert 0 <= harness.now_ms - 1_577_836_800_000 < 60_000


def run(pipeline: sk.Pipeline, *, reads: bool = False, fails: bool = False) -> None:
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("home"), View("shop"))
        harness.run()
        if reads:
            assert len(harness.dead_letters()) == 2
        if fails:
            raise KeyError("of the test itself")


def test_dead_letters_that_nobody_reads_fail_the_test():
    with pytest.raises(AssertionError) as failed:
        run(broken())
    assert str(failed.value).startswith(
        '2 dead letters that nobody has read; the first failed in step "map": AttributeError'
    )
    assert "harness.dead_letters()" in str(failed.value)


def test_dead_letters_that_were_read_are_expected_ones_and_an_error_of_the_test_comes_first():
    run(broken(), reads=True)
    with pytest.raises(KeyError):
        run(broken(), fails=True)


def test_a_topic_that_the_pipeline_does_not_have_is_refused_with_those_that_it_has():
    with Harness(counting()) as harness:
        for use in (
            lambda: harness.send(OTHER, View("home")),
            lambda: harness.send(COUNTS, None),
            lambda: harness.send_bytes("visits", b""),
            lambda: harness.read(OTHER),
            lambda: harness.advance(event_time={OTHER: 0}),
            lambda: Harness(counting(), topic_configs={"visits": {}}),
        ):
            with pytest.raises(Misconfigured) as refused:
                use()
            assert "views" in refused.value.hint


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("per_minutes", 'has no step "per_minutes"'),
        ("total", 'has a step "total", but it keeps no windows'),
        ("last_minute", 'has a step "last_minute", but it keeps no windows'),
    ],
)
def test_a_step_without_windows_is_refused_with_those_that_have_some(step, problem):
    with Harness(windowed(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        with pytest.raises(Misconfigured) as refused:
            harness.windows(step)
        assert problem in refused.value.problem
        assert refused.value.hint == "steps with windows are: per_minute"
        assert [each.contents for each in harness.windows("per_minute")] == [1]


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda harness: harness.read("counts"), "a topic is wanted here, and not 'counts'"),
        (lambda harness: harness.send("views", View("a")), "a topic is wanted here, and not 'views'"),
        (lambda harness: harness.advance(event_time={"views": 5}), "a topic is wanted here"),
        (lambda harness: harness.advance(-5), "the time that passes cannot be -5"),
        (lambda harness: harness.crash(7), "there is no worker 7"),
        (lambda harness: harness.restart(-1), "there is no worker -1"),
        (lambda harness: harness.scale(-1), "the number of workers cannot be -1"),
        (lambda harness: harness.change_pipeline(None), "the harness runs a pipeline, and got None"),
    ],
)
def test_what_the_harness_cannot_do_is_refused_with_what_it_can(ask, problem):
    with Harness(counting()) as harness, pytest.raises(Misconfigured) as refused:
        ask(harness)
    assert problem in refused.value.problem
    assert refused.value.hint


def test_bytes_are_sent_to_a_topic_or_to_its_name():
    with Harness(counting()) as harness:
        harness.send_bytes(VIEWS, b'{"page":"a"}', key=b"k")
        harness.send_bytes("views", b'{"page":"a"}', key=b"k")
        harness.run()
        assert len(harness.read(COUNTS)) == 2
