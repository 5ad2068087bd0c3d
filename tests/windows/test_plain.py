"""The short way: that it is taken where it may be, and is no other way than the long one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import UserCodeError
from streamkit.model.duration import milliseconds, minutes
from streamkit.model.ids import MAX_TIME
from streamkit.operators.aggregators import count, max_of, min_of, sum_of
from streamkit.operators.step import MAIN
from streamkit.progress.task_clock import TimerFailed
from streamkit.windows import (
    CountEvictor,
    CountTrigger,
    Decision,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
    TriggerContext,
    Window,
    counting,
    cumulating,
    everything,
    hopping,
    session,
    sliding,
    tumbling,
)
from streamkit.windows import operator as operator_module
from streamkit.windows import plain as plain_module
from streamkit.windows.contents import Reducing
from streamkit.windows.definition import emitting, windowing
from streamkit.windows.plain import is_plain
from streamkit.windows.step import WindowStep
from tests.operators.scope import steps_in
from tests.operators.test_keyed import Average
from tests.windows.reference import Model, Rules
from tests.windows.scope import Task, WindowScope
from tests.windows.streams import Happening, Ran, assigner_of, happenings, step_of
from tests.windows.test_against_reference import aligned, sessions

TEN = tumbling(milliseconds(10))


class TheLongWay(EventTimeTrigger):
    """The default trigger, but not recognised as such."""


class Never(Trigger[int]):
    """Fires at nothing and remembers nothing."""

    def on_record(self, value: int, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        return Decision.CONTINUE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None: ...


class TheLongWayByTheClock(ProcessingTimeTrigger):
    """Likewise."""


def step(windows: Any = TEN, fold: Any = None, emit: str = "close", **options: Any) -> WindowStep:
    chosen = emitting(windowing(windows, **options), emit)
    return WindowStep(name="w", windows=chosen, fold=fold or count(), value_type=int)


def values(task: Task) -> list[Any]:
    taken = [value for _, value, _ in task.out]
    task.out.clear()
    return taken


def test_only_aligned_folded_windows_with_the_default_trigger_are_plain() -> None:
    five = milliseconds(5)
    plain = [TEN, hopping(five, five), cumulating(five, five), tumbling(five, time="processing")]
    assert all(is_plain(step(each)) for each in plain)
    assert is_plain(step(TEN, lateness=minutes(1)))
    assert is_plain(step(TEN, trigger=EventTimeTrigger()))
    assert is_plain(step(TEN, emit="update"))
    others = [everything(), counting(5), session(five), sliding(five)]
    assert not any(is_plain(step(each)) for each in others)
    assert not is_plain(step(TEN, trigger=CountTrigger(1)))
    assert not is_plain(step(TEN, trigger=TheLongWay()))
    assert not is_plain(step(TEN, evictor=CountEvictor(1)))
    assert not is_plain(step(tumbling(five, time="processing"), trigger=EventTimeTrigger()))


FOLDS: list[Any] = [
    count(),
    sum_of(int),
    min_of(int),
    max_of(int),
    Reducing("joined", lambda one, other: one * 10 + other, int),
    Average(),
]


@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.name)
@pytest.mark.parametrize(
    "windows",
    [TEN, hopping(milliseconds(10), milliseconds(3)), cumulating(milliseconds(9), milliseconds(3))],
    ids=["tumbling", "hopping", "cumulating"],
)
@pytest.mark.parametrize("lateness", [0, 7])
def test_every_fold_comes_to_the_same_result_on_both_ways(fold: Any, windows: Any, lateness: int) -> None:
    allowed = milliseconds(lateness)
    short, long = (Task(step(windows, fold, lateness=allowed, trigger=t)) for t in (None, TheLongWay()))
    assert is_plain(step(windows, fold, lateness=allowed))
    for each in (short, long):
        for number, time in enumerate([1, 4, 4, 12, 9, 3, 14, 2, 25, 11]):
            each.push(b"a", number + 1, time)
            each.advance(time - 3)
        each.advance(MAX_TIME)
    assert short.out == long.out
    assert len(short.out) >= 3
    assert short.late_records == long.late_records
    assert short.rows == long.rows == {}


@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.name)
@pytest.mark.parametrize("make", [tumbling, hopping, cumulating])
def test_the_clock_on_the_wall_knows_both_ways_too(fold: Any, make: Any) -> None:
    sizes = (milliseconds(9),) if make is tumbling else (milliseconds(9), milliseconds(3))
    windows = make(*sizes, time="processing")
    short, long = (Task(step(windows, fold, trigger=t)) for t in (None, TheLongWayByTheClock()))
    assert is_plain(step(windows, fold))
    for each in (short, long):
        for number in range(20):
            each.push(b"a", number + 1, 1_000 - number)
            each.pass_time(number * 2)
        each.pass_time(100)
    assert short.out == long.out
    assert len(short.out) >= 4
    assert short.rows == long.rows == {}


def test_a_session_that_has_grown_on_the_short_way_fires_on_the_long_one() -> None:
    """Its timer is still where its end was before it grew."""
    windows, fold = session(milliseconds(10)), sum_of(int)
    task = Task(step(windows, fold, lateness=milliseconds(50)))
    task.push(b"a", 1, 0)
    task.push(b"a", 2, 8)
    task.step = step(windows, fold, lateness=milliseconds(50), trigger=TheLongWay())
    task.restart()
    task.advance(17)
    assert values(task) == [3]
    task.advance(MAX_TIME)
    assert values(task) == []
    assert task.rows == {}


@settings(deadline=None)
@given(st.one_of(aligned(), sessions()), happenings(), st.sets(st.integers(0, 60)))
def test_a_pipeline_may_change_from_one_way_to_the_other_and_keep_its_windows(
    rules: Rules, stream: list[Happening], changes: set[int]
) -> None:
    plain = step_of(rules)
    long = step_of(rules)
    long = WindowStep(
        name="w",
        windows=windowing(long.windows.assigner, lateness=milliseconds(rules.lateness), trigger=TheLongWay()),
        fold=long.fold,
        into=long.into,
        value_type=int,
    )
    model = Model(rules)
    ran = Ran(Task(plain), model, 0)
    ran.task.advance(0)
    model.watermark = 0
    for number, (what, *details) in enumerate(stream):
        if number in changes:
            ran.task.step = long if ran.task.step is plain else plain
            ran.task.restart()
        if what == "record":
            key, distance = details
            ran.task.push(key, number, ran.task.scope.watermark + distance)
            model.record(key, number, model.watermark + distance)
        elif what == "watermark":
            ran.task.advance(ran.task.scope.watermark + details[0])
            model.advance(model.watermark + details[0])
    assert ran.ours() == ran.theirs()
    assert ran.task.late_records == len(model.late)


@pytest.mark.parametrize("windows", [TEN, session(milliseconds(10))], ids=["aligned", "sessions"])
@pytest.mark.parametrize(("old", "new"), [(0, 20), (20, 0), (20, 5), (5, 20)])
@pytest.mark.parametrize("trigger", [None, TheLongWay()], ids=["short", "long"])
def test_another_lateness_leaves_nothing_behind_and_loses_nothing(
    windows: Any, old: int, new: int, trigger: Any
) -> None:
    """Windows that were opened with one lateness are closed with another."""
    for changed_at in (3, 12, 16):
        fold = Reducing("all", lambda a, b: a | b, int)
        task = Task(step(windows, fold, lateness=milliseconds(old), trigger=trigger))
        seen = 0
        late = []
        for time in range(40):
            if time == changed_at:
                task.step = step(windows, fold, lateness=milliseconds(new), trigger=trigger)
                task.restart()
            before = task.late_records
            task.push(b"a", 1 << time, max(time - 12, 0))
            late += [time] if task.late_records > before else []
            task.advance(time)
        task.advance(MAX_TIME)
        for value in values(task):
            seen |= value
        assert seen == sum(1 << time for time in range(40) if time not in late)
        assert task.rows == {}


@pytest.mark.parametrize("windows", [TEN, session(milliseconds(10))], ids=["plain", "sessions"])
@pytest.mark.parametrize("lateness", [0, 20])
@pytest.mark.parametrize("old", ["update", "never"])
@pytest.mark.parametrize("times", [(5, 6), (3, 3)], ids=["later", "same"])
def test_what_comes_after_a_change_of_the_trigger_is_in_a_result(
    windows: Any, lateness: int, old: str, times: tuple[int, int]
) -> None:
    """The old trigger has set no timer for the end of the windows that are open."""
    fold = Reducing("all", lambda a, b: a | b, int)
    allowed = milliseconds(lateness)
    before = (
        step(windows, fold, "update", lateness=allowed)
        if old == "update"
        else step(windows, fold, trigger=Never(), lateness=allowed)
    )
    task = Task(before)
    task.push(b"a", 1, 3)
    task.step = step(windows, fold, lateness=allowed)
    task.restart()
    values(task)
    task.push(b"a", 2, times[0])
    task.push(b"a", 4, times[1])
    task.advance(15)
    assert values(task) == [7]
    task.advance(MAX_TIME)
    assert values(task) == []
    assert task.rows == {}


def test_a_closed_window_does_not_look_open_because_its_none_is_cached() -> None:
    task = Task(step())
    task.push(b"a", 1, 5)
    task.advance(9)
    assert values(task) == [1]
    task.push(b"a", 2, 6)
    assert task.late_records == 1
    task.scope.end_span()
    task.push(b"a", 3, 7)
    assert task.late_records == 2
    task.advance(MAX_TIME)
    assert values(task) == []


def test_a_reduce_to_none_empties_the_window_and_the_next_record_begins_it_again() -> None:
    task = Task(
        step(fold=Reducing("until_zero", lambda a, b: (a + b) or None, int), lateness=milliseconds(5))
    )
    for value in (1, -1):
        task.push(b"a", value, 5)
    task.advance(9)
    assert values(task) == []
    task.push(b"a", 7, 5)
    assert values(task) == [7]
    task.push(b"a", -7, 5)
    assert values(task) == []
    task.push(b"a", 3, 5)
    assert values(task) == [3]
    task.advance(14)
    assert task.rows == {}
    task = Task(step(fold=Reducing("until_zero", lambda a, b: (a + b) or None, int)))
    for value in (1, -1, 5):
        task.push(b"a", value, 5)
    task.advance(9)
    assert values(task) == [5]


@settings(deadline=None, max_examples=300)
@given(st.one_of(aligned(), sessions()), happenings())
def test_folds_that_empty_windows_again_leave_nothing_behind(rules: Rules, stream: list[Happening]) -> None:
    fold = Reducing("emptied", lambda a, b: None if (a + b) % 3 == 0 else a + b, int)
    found = []
    for trigger in (None, TheLongWay()):
        lateness = milliseconds(rules.lateness)
        task = Task(step(assigner_of(rules), fold, lateness=lateness, trigger=trigger))
        task.advance(0)
        for number, (what, *details) in enumerate(stream):
            if what == "record":
                task.push(details[0], number + 1, task.scope.watermark + details[1])
            elif what == "watermark":
                task.advance(task.scope.watermark + details[0])
            elif what == "restart":
                task.restart()
        task.advance(MAX_TIME)
        assert task.rows == {}
        found.append((task.out, task.late_records))
    assert found[0] == found[1]


def test_results_carry_the_last_millisecond_of_their_window() -> None:
    task = Task(step(hopping(milliseconds(10), milliseconds(5))))
    task.push(b"a", 1, 7)
    task.advance(100)
    assert task.out == [(b"a", 1, 9), (b"a", 1, 14)]


def test_a_record_that_is_late_for_some_of_its_windows_is_in_the_others() -> None:
    task = Task(step(hopping(milliseconds(10), milliseconds(5))))
    task.advance(9)
    task.push(b"a", 1, 7)
    task.advance(MAX_TIME)
    assert task.out == [(b"a", 1, 14)]
    assert task.late_records == 0


@pytest.mark.parametrize("options", [{}, {"lateness": milliseconds(5)}, {"emit": "update"}], ids=str)
def test_a_record_without_a_key_is_refused_and_the_step_is_named(options: Any) -> None:
    task = Task(step(**options))
    with pytest.raises(
        UserCodeError, match="a record without a key reached a step that works by key"
    ) as caught:
        task.push(None, 1, 5)
    assert steps_in(caught.value) == ["w"]


def test_an_error_in_a_fold_leaves_the_window_as_it_was_and_names_the_step() -> None:
    task = Task(step(fold=Reducing("divide", lambda a, b: a // b, int)))
    task.push(b"a", 8, 1)
    with pytest.raises(ZeroDivisionError) as caught:
        task.push(b"a", 0, 1)
    assert steps_in(caught.value) == ["w"]
    task.push(b"a", 2, 1)
    task.advance(9)
    assert values(task) == [4]


def test_an_error_while_firing_names_the_step() -> None:
    broken = replace_into(step(), lambda _key, _window, _result: 1 // 0)
    for each in (broken, replace_into(step(trigger=TheLongWay()), broken.into)):
        task = Task(each)
        task.push(b"a", 8, 1)
        with pytest.raises(TimerFailed) as caught:
            task.advance(9)
        assert type(caught.value.cause) is ZeroDivisionError
        assert steps_in(caught.value.cause) == ["w"]


def replace_into(made: WindowStep, into: Any) -> WindowStep:
    return WindowStep(name=made.name, windows=made.windows, fold=made.fold, into=into)


def test_panes_forget_all_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_module, "REMEMBERED_PANES_MAX", 3)
    for windows in (TEN, hopping(milliseconds(10), milliseconds(5))):
        task = Task(step(windows))
        for time in range(0, 200, 7):
            task.push(b"a", 1, time)
        task.advance(MAX_TIME)
        each_in = 1 if windows is TEN else 2
        assert sum(values(task)) == len(range(0, 200, 7)) * each_in
    panes = plain_module.Panes(TEN)
    only = plain_module.OnlyNamespaces(panes)
    assert len({only[start] for start in range(0, 100, 10)}) == 10
    assert len(panes) <= 3
    assert len(only) <= 3


def test_windows_that_are_past_their_end_are_forgotten_when_they_close() -> None:
    scope = WindowScope(late_step := step(lateness=milliseconds(5)))
    windows = plain_module._PlainWindows(late_step, {MAIN: lambda *_: None}, scope)
    for namespace in windows._panes[0]:
        windows.enter(b"a", namespace, 1, 5)
        scope.advance(9)
        assert windows._past == {namespace}
        scope.advance(14)
        assert windows._past == set()


def test_the_long_way_forgets_its_panes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_module, "REMEMBERED_PANES_MAX", 3)
    windows = operator_module.WindowOperator(step(), {MAIN: lambda *_: None}, WindowScope(step()))
    for time in range(0, 200, 7):
        windows.take(b"a", 1, time, time)
    assert len(windows._panes) <= 3


def test_windows_at_the_end_of_time_close_with_it() -> None:
    for trigger in (None, TheLongWay()):
        task = Task(step(tumbling(minutes(1)), lateness=minutes(1), trigger=trigger))
        task.push(b"a", 1, MAX_TIME - 10)
        task.push(b"a", 1, MAX_TIME - 70_000)
        task.advance(MAX_TIME - 1)
        assert [value for _, value, _ in task.out] == [1]
        task.advance(MAX_TIME)
        assert [value for _, value, _ in task.out] == [1, 1]
        assert task.out[-1][2] == MAX_TIME
        assert len(task.rows) == 1, "the other one would have closed later than time goes"
