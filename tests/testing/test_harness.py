import subprocess
import sys
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


NUMBERED = sk.topic("numbered", int, key=int)
MAYBE = sk.topic("maybe", str | None)


def several() -> sk.Pipeline:
    pipeline = sk.pipeline("several")
    pipeline.read(VIEWS).write(sk.topic("views-out", View))
    pipeline.read(NUMBERED).write(sk.topic("numbered-out", int))
    pipeline.read(MAYBE).write(sk.topic("maybe-out", str | None))
    return pipeline


@pytest.mark.parametrize(
    ("send", "problem", "hint"),
    [
        (lambda h: h.send(VIEWS, View("a"), key=5), "has keys of type str, and the key is 5", "key=int"),
        (lambda h: h.send(NUMBERED, 1, key="a"), "has keys of type int, and the key is 'a'", "key=str"),
        (lambda h: h.send(VIEWS, {"page": "a"}), "has values of type View, and the value is", "send_bytes"),
        (lambda h: h.send(VIEWS, None), "and the value is None", "send_bytes"),
        (lambda h: h.send(NUMBERED, "1"), "has values of type int, and the value is '1'", "send_bytes"),
        (lambda h: h.send(VIEWS, View("a"), timestamp="now"), "and not 'now'", "tzinfo=UTC"),
        (
            lambda h: h.send(VIEWS, View("a"), timestamp=datetime(2026, 1, 1)),  # noqa: DTZ001 - refused for it
            "and not a datetime without a time zone",
            "tzinfo=UTC",
        ),
        (lambda h: h.send(VIEWS, View("a"), headers={"t": "x"}), 'header "t" is text', "write b'x'"),
        (lambda h: h.send_bytes(VIEWS, b"", headers=[("t", "x")]), 'header "t" is text', "write b'x'"),
        (lambda h: h.send(VIEWS, View("a"), headers={"t": 1}), 'header "t" is 1', "b'...'"),
        (lambda h: h.send(VIEWS, View("a"), headers=["t"]), "a name and its bytes, and not 't'", "pairs"),
        (lambda h: h.advance("5"), "a number of seconds, and not '5'", "sk.minutes(1)"),
        (lambda h: h.advance(event_time={VIEWS: "5"}), "event time is a number of milliseconds", "tzinfo"),
        (lambda h: h.scale("2"), "the number of workers is a whole number, and not '2'", "0 or more"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(send, problem, hint):
    with Harness(several()) as harness:
        with pytest.raises(Misconfigured) as refused:
            send(harness)
        assert problem in refused.value.problem
        assert hint in refused.value.hint
        harness.run()
        assert harness.records(sk.topic("views-out", View)) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"workers": "2"}, "the number of workers is a whole number, and not '2'"),
        ({"partitions": 0}, "the number of partitions, one for all topics, cannot be 0"),
        ({"partitions": {"views": 2}}, "the number of partitions, one for all topics, is a whole number"),
        ({"commit_interval_s": "soon"}, 'commit_interval_s is "soon"; it must be a number of seconds'),
        ({"comit_interval_s": 1}, "comit_interval_s is not a setting"),
    ],
)
def test_a_harness_that_cannot_be_is_refused(given, problem):
    with pytest.raises(Misconfigured) as refused:
        Harness(counting(), **given)
    assert problem in refused.value.problem
    if "comit_interval_s" in given:
        assert refused.value.hint == "did you mean commit_interval_s?"


def test_headers_moments_and_durations_are_given_in_any_form():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with Harness(several(), start=at) as harness:
        for headers in ({"t": b"x"}, [("t", b"x")], (("t", b"x"),)):
            harness.send(VIEWS, View("a"), timestamp=at, headers=headers)
        harness.send(MAYBE, None, "a")
        before = harness.now_ms
        harness.advance(sk.minutes(1), event_time={VIEWS: at})
        assert harness.now_ms - before >= 60_000
        found = harness.records(sk.topic("views-out", View))
        assert [each.timestamp for each in found] == [1_767_225_600_000] * 3
        assert sorted(harness.read(sk.topic("maybe-out", str | None)), key=str) == [None, "a"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "ask",
    [
        lambda harness: harness.send(VIEWS, View("a")),
        lambda harness: harness.read(COUNTS),
        lambda harness: harness.run(),
        lambda harness: harness.watermarks(),
    ],
)
def test_a_harness_that_has_ended_says_so(ask):
    with Harness(counting()) as harness:
        pass
    with pytest.raises(Misconfigured, match="has ended with its `with` block"):
        ask(harness)
    harness.close()  # once more is nothing


def test_a_harness_that_nobody_closes_says_so_in_one_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import gc, streamkit as sk\n"
        "from streamkit.testing import Harness\n"
        'pipeline = sk.pipeline("p")\n'
        'pipeline.read(sk.topic("a", str)).write(sk.topic("b", str))\n'
        "harness = Harness(pipeline)\n"
        "del harness\n"
        "gc.collect()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stderr == "a Harness was not closed: use it in a `with` block, or call close()\n"
