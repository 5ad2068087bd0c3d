"""Windows as a user writes them: what goes into the plan, what is refused, and what the types say."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamkit.errors import InvalidPipeline
from streamkit.graph.describe import as_text
from streamkit.graph.fingerprint import compare, describe_plan, fingerprint
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.stage import StageStep
from streamkit.graph.stream import Windowed
from streamkit.model.duration import days, minutes, seconds
from streamkit.model.topic import topic
from streamkit.operators.aggregators import Aggregator
from streamkit.windows import (
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    Window,
    WindowContext,
    WindowProcess,
    counting,
    everything,
    session,
    sliding,
    tumbling,
    window_value,
)
from streamkit.windows.step import WindowStep
from streamkit.windows.triggers import EveryRecordTrigger
from tests.graph.shop import Click, by_page, clicks, counts
from tests.graph.test_typing import check

MINUTE = tumbling(minutes(1))
late_clicks = topic("late-clicks", Click)


class PerMinute(msgspec.Struct):
    page: str
    minute: int
    clicks: int


per_minute = topic("per-minute", PerMinute)


def to_row(page: str, window: Window, clicks: int) -> PerMinute:
    return PerMinute(page, window.start, clicks)


class Pages(WindowProcess[str, Click, PerMinute]):
    def process(self, key: str, window: Window, elements: list[Click], ctx: WindowContext[PerMinute]) -> None:
        ctx.emit(PerMinute(key, window.start, len(elements)))


class Counted(WindowProcess[str, int, PerMinute]):
    fired = window_value(int, 0)

    def process(self, key: str, window: Window, elements: list[int], ctx: WindowContext[PerMinute]) -> None:
        ctx.emit(PerMinute(key, window.start, elements[0]))


class Mean(Aggregator[Click, tuple[int, int], float]):
    def create(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, accumulator: tuple[int, int], value: Click, /) -> tuple[int, int]:
        return (accumulator[0] + 1, accumulator[1] + value.number)

    def result(self, accumulator: tuple[int, int], /) -> float:
        return accumulator[1] / accumulator[0]


def windowed(windows: Any = MINUTE, **options: Any) -> Windowed[str, Click]:
    return pipeline("p").read(clicks).key_by(by_page).window(windows, **options)


def planned(p: Pipeline) -> list[StageStep]:
    return [each for stage in p.plan().stages for each in stage.steps]


def window_step(p: Pipeline) -> WindowStep:
    (found,) = [each.step for each in planned(p) if isinstance(each.step, WindowStep)]
    return found


def test_a_count_by_minute_and_its_late_records_in_a_plan() -> None:
    p = pipeline("p")
    (
        p.read(clicks)
        .key_by(by_page)
        .window(MINUTE, lateness=minutes(2), late=late_clicks)
        .count(into=to_row, name="per_minute")
        .write(per_minute)
    )
    assert as_text(p.plan()).endswith("""\
stage by_page
  shuffle p.by_page.shuffle.1: str -> Click
  └─ window per_minute
     ├─ write -> per-minute
     └─ late: write -> late-clicks
  state per_minute: window of int, version 1
  state per_minute.event_timers: timers in event time""")
    assert set(p.plan().sinks()) == {"late-clicks", "per-minute"}


def test_without_a_topic_for_them_late_records_need_no_steps() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).window(MINUTE).count().write(counts)
    assert [each.step.name for each in planned(p)][1:] == ["count", "write_page-counts"]


def test_steps_are_named_after_what_they_do_unless_told_otherwise() -> None:
    def name(make: Any, **options: Any) -> str:
        p = pipeline("p")
        make(p.read(clicks).key_by(by_page).window(MINUTE, **options)).peek(print)
        return window_step(p).name

    def newest(one: Click, other: Click) -> Click:
        return max(one, other, key=lambda click: click.number)

    assert name(lambda w: w.count()) == "count"
    assert name(lambda w: w.sum(lambda click: click.number)) == "sum"
    assert name(lambda w: w.min(lambda click: click.number)) == "min"
    assert name(lambda w: w.max(lambda click: click.number)) == "max"
    assert name(lambda w: w.reduce(newest)) == "newest"
    assert name(lambda w: w.reduce(lambda a, _: a)) == "reduce"
    assert name(lambda w: w.aggregate(Mean())) == "Mean"
    assert name(lambda w: w.process(Pages())) == "Pages"
    assert name(lambda w: w.count(), name="by_minute") == "by_minute"
    assert name(lambda w: w.reduce(newest), name="by_minute") == "by_minute"
    assert name(lambda w: w.process(Pages()), name="by_minute") == "by_minute"
    assert name(lambda w: w.count(name="mine"), name="by_minute") == "mine"


def test_the_type_of_the_results_is_that_of_whoever_makes_them() -> None:
    def found(keyed: Any) -> Any:
        return keyed._node.value_type

    assert found(windowed().count()) is int
    assert found(windowed().count(into=to_row)) is PerMinute
    assert found(windowed().count(into=lambda key, _, n: (key, n))) is None
    assert found(windowed().count(into=lambda *given: given[2], to=int)) is int
    assert found(windowed().count(into=Counted())) is PerMinute
    assert found(windowed().reduce(lambda a, _: a)) is Click
    assert found(windowed().aggregate(Mean())) is float
    assert found(windowed().sum(lambda click: click.number, to=int)) is int
    assert found(windowed().process(Pages())) is PerMinute
    with pytest.raises(InvalidPipeline, match='topic "page-counts" holds values of type int'):
        windowed().count(into=to_row).write(counts)  # type: ignore[arg-type]


def test_the_sum_keeps_its_type_when_into_makes_another() -> None:
    p = pipeline("p")
    clicked = p.read(clicks).key_by(by_page).window(MINUTE)
    clicked.sum(lambda click: click.number, into=to_row, to=PerMinute).write(per_minute)
    assert window_step(p).contents_store.value_type == int | float


def test_updates_are_a_trigger() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).window(MINUTE).count(emit="update").write(counts)
    assert isinstance(window_step(p).windows.trigger, EveryRecordTrigger)


def test_windows_over_all_records_go_through_one_task() -> None:
    p = pipeline("p")
    p.read(clicks).window_all(MINUTE).count().write(counts)
    p.read(clicks).window_all(MINUTE, name="daily").count(name="others").write(counts)
    stages = p.plan().stages
    assert [stage.name for stage in stages] == ["clicks", "window_all", "daily_all"]
    assert [each.partitions for stage in stages[1:] for each in stage.inputs] == [1, 1]
    shuffle: Any = next(each.step for each in planned(p) if each.step.name == "window_all")
    assert shuffle.key_fn(Click("ann", "home")) == "all"


def test_windows_need_a_key_or_all() -> None:
    with pytest.raises(InvalidPipeline, match="window needs a key: call key_by first"):
        pipeline("p").read(clicks).window  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: windowed(minutes(1)), "window() takes windows, got"),
        (lambda: windowed(lateness=seconds(-1)), "the lateness of a window is below zero"),
        (lambda: windowed(lateness=5), "the lateness of a window is a duration, got 5"),
        (
            lambda: windowed(tumbling(minutes(1), time="processing"), lateness=seconds(1)),
            "nothing is ever late for tumbling windows of 60000 ms of processing time",
        ),
        (lambda: windowed(counting(5), late=late_clicks), "nothing is ever late for windows of 5 records"),
        (
            lambda: windowed(everything(), lateness=days(1)),
            "nothing is ever late for one window of everything",
        ),
        (lambda: windowed(trigger=CountTrigger), "trigger is a Trigger, got"),
        (lambda: windowed(counting(5), trigger=CountTrigger(1)), "windows of 5 records cannot have another"),
        (
            lambda: windowed(sliding(seconds(1)), trigger=CountTrigger(1)),
            "sliding windows over 1000 ms cannot",
        ),
        (
            lambda: windowed(
                session(seconds(1)), trigger=DeltaTrigger[Any](1, lambda one, other: one - other)
            ),
            'trigger "DeltaTrigger" does not say what happens when two windows become one',
        ),
        (lambda: windowed(evictor=CountEvictor), "evictor is an Evictor, got"),
        (
            lambda: windowed(counting(5), evictor=CountEvictor(1)),
            "windows of 5 records cannot have an evictor",
        ),
        (lambda: windowed().count(emit="each"), 'emit is "close" or "update", got \'each\''),
        (lambda: windowed(trigger=CountTrigger(2)).count(emit="update"), 'emit="update" and a trigger both'),
        (lambda: windowed(counting(5)).count(emit="update"), 'emit="update" and a trigger both say when'),
        (lambda: windowed(session(seconds(1))).aggregate(Mean()), 'aggregator "Mean" does not say how two'),
        (lambda: windowed().process(Pages), "process() takes a WindowProcess, got"),
        (
            lambda: windowed(session(seconds(1))).count(into=Counted()),
            '"Counted.fired" belongs to a window, and sessions with a gap of 1000 ms have no state',
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(make: Any, problem: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        make()
    assert caught.value.problem.startswith(problem)
    assert caught.value.hint


def test_late_records_are_not_written_twice() -> None:
    twice = windowed(late=late_clicks)
    twice.count()
    with pytest.raises(InvalidPipeline, match="would write each late record twice"):
        twice.sum(lambda click: click.number)
    both = windowed()
    both.count()
    both.sum(lambda click: click.number)


def test_who_keeps_elements_must_know_their_type() -> None:
    untyped = pipeline("p").read(clicks).key_by(by_page).map(lambda click: click.number, name="numbers")
    untyped.window(MINUTE).count()
    for make in (
        lambda: untyped.window(MINUTE, evictor=CountEvictor(1)).count(name="other"),
        lambda: untyped.window(MINUTE, trigger=CountTrigger(1)).count(name="other"),
        lambda: untyped.window(MINUTE).reduce(max, name="other"),
        lambda: untyped.window(sliding(seconds(1))).count(name="other"),
    ):
        with pytest.raises(InvalidPipeline, match='step "numbers" does not say'):
            make()


# The fingerprint.


def described(p: Pipeline) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(describe_plan(p.plan())))
    return read


def counting_in(windows: Any, name: str = "count", **options: Any) -> Pipeline:
    p = pipeline("p")
    p.read(clicks).key_by(by_page, name="shuffle").window(windows, **options).count(name=name).write(counts)
    return p


def test_other_windows_are_told_and_another_name_makes_it_another_step() -> None:
    old, new = counting_in(MINUTE), counting_in(tumbling(minutes(2)))
    assert fingerprint(old.plan()) != fingerprint(new.plan())
    assert compare(described(old), described(new)) == [
        'Step "count" of stage "shuffle" changed from tumbling windows of 60000 ms to tumbling windows of 120000 ms,'
        " and its open windows would be misread; make it what it was; or give it another name, for example"
        ' name="count_2", and start with --allow-dropped-state, which gives up its open windows.'
    ]
    # Where it was told to give it that name, nobody asks whether it was renamed.
    renamed = described(counting_in(tumbling(minutes(2)), "count_2"))
    assert 'Store "count" of stage "shuffle" is gone; its state would be lost.' in compare(
        described(old), renamed
    )
    assert compare(described(old), renamed, allow_dropped=True) == []
    same = described(counting_in(MINUTE, "count_2"))
    assert 'was it renamed to "count_2"?' in compare(described(old), same)[0]


def test_lateness_and_triggers_may_change() -> None:
    old = counting_in(MINUTE)
    for new in (
        counting_in(MINUTE, lateness=minutes(5)),
        counting_in(MINUTE, trigger=CountTrigger(5)),
        counting_in(MINUTE, late=late_clicks),
    ):
        assert compare(described(old), described(new)) == []


def test_an_evictor_changes_what_is_stored_and_is_told() -> None:
    (told,) = compare(described(counting_in(MINUTE)), described(counting_in(MINUTE, evictor=CountEvictor(2))))
    assert "changed its type from int to list[tuple[int, Click]] without a new version" in told


def test_a_plan_without_windows_says_nothing_about_them() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).count().write(counts)
    assert all("definitions" not in stage for stage in described(p)["stages"].values())


# What the type checker sees.

PROGRAM = """
import msgspec
from typing import reveal_type
from streamkit.graph.pipeline import pipeline
from streamkit.model.duration import minutes
from streamkit.model.topic import topic
from streamkit.windows import CountTrigger, DeltaTrigger, Window, WindowContext, WindowProcess, tumbling, window_value


class Click(msgspec.Struct):
    user: str
    number: int


class Report(WindowProcess[str, Click, bytes]):
    fired = window_value(int, 0)

    def process(self, key: str, window: Window, elements: list[Click], ctx: WindowContext[bytes]) -> None:
        ctx.emit(bytes(self.fired.get() + len(elements)))


class Rate(WindowProcess[str, int, float]):
    def process(self, key: str, window: Window, elements: list[int], ctx: WindowContext[float]) -> None:
        ctx.emit(elements[0] / 60)


def described(user: str, window: Window, clicks: int) -> str:
    return f"{user} {window.start_time} {clicks}"


clicks = topic("clicks", Click)
numbers = topic("numbers", int)
stream = pipeline("p").read(clicks)
windowed = stream.key_by(lambda click: click.user).window(tumbling(minutes(1)), late=clicks)
reveal_type(windowed)
reveal_type(stream.window_all(tumbling(minutes(1))))
reveal_type(windowed.count())
reveal_type(windowed.count(into=described))
reveal_type(windowed.count(into=lambda user, window, clicks: (user, window.end, clicks)))
reveal_type(windowed.count(into=Rate()))
reveal_type(windowed.reduce(lambda old, new: new))
reveal_type(windowed.sum(lambda click: click.number))
reveal_type(windowed.max(lambda click: click.number, into=described))
reveal_type(windowed.process(Report()))
windowed.count().write(numbers)
"""

REVEALED = [
    "Windowed[str, Click]",
    "Windowed[str, Click]",
    "Keyed[str, int]",
    "Keyed[str, str]",
    "Keyed[str, tuple[str, int, int]]",
    "Keyed[str, float]",
    "Keyed[str, Click]",
    "Keyed[str, int]",
    "Keyed[str, str]",
    "Keyed[str, bytes]",
]

MISTAKES = [
    ("windowed.process(Rate())", 'expected "WindowProcess[str, Click, float]"'),
    ("windowed.count(into=Report())", 'Argument "into" to "count" of "Windowed" has incompatible type'),
    ("stream.window(tumbling(minutes(1)))", '"Stream[Click]" has no attribute "window"'),
    ("windowed.write(numbers)", '"Windowed[str, Click]" has no attribute "write"'),
    ('windowed.count(emit="each")', 'No overload variant of "count"'),
    (
        "stream.window_all(tumbling(minutes(1)), late=numbers)",
        'Argument "late" to "window_all" of "Stream" has incompatible type "Topic[int]"',
    ),
]


def test_types_flow_through_windows_and_mistakes_are_seen(tmp_path: Path) -> None:
    said = check(PROGRAM + "\n".join(line for line, _ in MISTAKES), tmp_path)
    revealed = [line.split('"')[1] for line in said if line.startswith("note: Revealed")]
    for prefix in ("streamkit.graph.stream.", "program.", "builtins."):
        revealed = [line.replace(prefix, "") for line in revealed]
    assert revealed == REVEALED
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    assert len(errors) == len(MISTAKES), errors
    for error, (line, expected) in zip(errors, MISTAKES, strict=True):
        assert expected in error, line
